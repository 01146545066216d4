"""Finds the failing service by SQL over MCP and submits it; standard library only, as it is all there is when sealed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

LOOK = """
SELECT service_name, count(*) AS failed FROM abnormal_traces
WHERE "attr.status_code" = 'Error' AND service_name <> 'loadgenerator'
AND span_id NOT IN (SELECT parent_span_id FROM abnormal_traces WHERE "attr.status_code" = 'Error')
GROUP BY ALL ORDER BY failed DESC, service_name LIMIT 1"""
COUNT = "SELECT count(*) AS failed FROM abnormal_traces WHERE service_name = '{}' AND \"attr.status_code\" = 'Error'"


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
    rows = client.call("query_sql", sql=LOOK).splitlines()[1:-1]
    roots = []
    if rows:
        service = json.loads(rows[0])[0]
        evidence = [{"kind": "trace", "sql": COUNT.format(service), "claim": f"spans of {service} fail"}]
        roots = [{"service": service, "fault_kind": "http_response_status_modified", "evidence": evidence}]
    print(client.call("submit", root_causes=roots, propagation=[]), file=sys.stderr)
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
