"""Asks look.sql over MCP and submits what comes back; standard library only, as it is all there is when sealed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

LOOK = Path(__file__).with_name("look.sql")


def main() -> None:
    """Look, and hand in what was found."""
    described = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))["mcpServers"]["opsassay"]
    server = subprocess.Popen(
        [described["command"], *described["args"]], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    client = Client(server)
    about = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "by-mcp", "version": "1"}}
    client.ask("initialize", about)
    client.tell("notifications/initialized")
    rows = client.call("query_sql", sql=LOOK.read_text(encoding="utf-8")).splitlines()[1:-1]
    roots: list[dict[str, Any]] = []
    propagation: list[dict[str, Any]] = []
    for service, fault_kind, caller, claim, sql in map(json.loads, rows):
        evidence = [{"kind": "trace", "sql": sql, "claim": claim}]
        if caller is None:
            roots.append({"service": service, "fault_kind": fault_kind, "evidence": evidence})
        else:
            propagation.append({"from": service, "to": caller, "evidence": evidence})
    print(client.call("submit", root_causes=roots, propagation=propagation), file=sys.stderr)
    server.stdin.close()
    server.wait()


class Client:
    """Just enough of MCP: requests one after the other."""

    def __init__(self, server: subprocess.Popen[str]) -> None:
        self.server, self.number = server, 0

    def tell(self, method: str, **params: Any) -> None:
        """Send a notification."""
        self.server.stdin.write(json.dumps({"jsonrpc": "2.0", "method": method, "params": params}) + "\n")
        self.server.stdin.flush()

    def ask(self, method: str, params: dict[str, Any]) -> Any:
        """Send a request and return its result."""
        self.number += 1
        request = {"jsonrpc": "2.0", "id": self.number, "method": method, "params": params}
        self.server.stdin.write(json.dumps(request) + "\n")
        self.server.stdin.flush()
        while True:
            message = json.loads(self.server.stdout.readline())
            if message.get("id") == self.number:
                return message["result"]

    def call(self, tool: str, **arguments: Any) -> str:
        """Return what a tool says."""
        return self.ask("tools/call", {"name": tool, "arguments": arguments})["content"][0]["text"]


if __name__ == "__main__":
    main()
