"""A team's runbooks by MCP: the official SDK over standard input and output."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from mcp.server import MCPServer

PAGES = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
server = MCPServer("runbooks")


@server.tool()
def read(page: str) -> str:
    """Return a page of the team's runbooks: errors or late."""
    return PAGES.get(page, f"there is no page {page}; there are {', '.join(PAGES)}")


@server.tool()
def tables() -> list[str]:
    """Return the files of the incident that this server sees."""
    return sorted(path.name for path in Path(sys.argv[2]).glob("*.parquet"))


if __name__ == "__main__":
    server.run("stdio")
