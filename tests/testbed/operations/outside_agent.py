"""An operator from outside without any library: reads its task, speaks MCP by hand, restarts what the task names."""

import json
import socket
import sys
from pathlib import Path

task = Path(sys.argv[1]).read_text()
server = socket.socket(socket.AF_UNIX)
server.connect(sys.argv[2])
lines = server.makefile("rw", encoding="utf-8")


def ask(number, method, params):
    lines.write(json.dumps({"jsonrpc": "2.0", "id": number, "method": method, "params": params}) + "\n")
    lines.flush()
    return json.loads(lines.readline())


hello = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "mine", "version": "1"}}
ask(1, "initialize", hello)
lines.write(json.dumps({"jsonrpc": "2.0", "method": "notifications/initialized"}) + "\n")
lines.flush()
target = "orders" if "orders" in task else "nothing"
print(ask(2, "tools/call", {"name": "restart", "arguments": {"target": target}}))
