"""Calls one tool of the MCP server from a command line: ``python opsassay_tool.py NAME KEY=VALUE ...``.

A value @FILE is the content of FILE; JSON is parsed; without NAME the tools are listed. The file is copied into an agent's
work folder, so it imports the standard library only.
"""

import json
import socket
import sys
from pathlib import Path
from typing import Any, TextIO


def main(words: list[str]) -> int:
    """Call the tool that *words* (NAME KEY=VALUE ...) names and print its output; return 0, or 1 when it failed."""
    described = json.loads(Path(__file__).with_name("mcp.json").read_text())
    stream = open_tools(described["mcpServers"]["opsassay"]["args"][1], "opsassay_tool")
    if not words:
        for tool in ask_server(stream, "tools/list", {})["tools"]:
            print(f"{tool['name']}({', '.join(tool['inputSchema'].get('properties', {}))}): {tool['description']}")
        return 0
    arguments = dict(_parse_argument(word) for word in words[1:])
    found = ask_server(stream, "tools/call", {"name": words[0], "arguments": arguments})
    print("\n".join(part.get("text", "") for part in found["content"]))
    return int(bool(found.get("isError")))


def open_tools(path: str, client: str) -> TextIO:
    """Connect to the MCP server at the Unix socket *path* under the client name *client*; return the stream."""
    server = socket.socket(socket.AF_UNIX)
    server.connect(path)
    stream = server.makefile("rw", encoding="utf-8", newline="\n")
    server.close()  # the stream holds it open
    about = {"name": client, "version": "1"}
    ask_server(stream, "initialize", {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": about})
    _send_message(stream, {"method": "notifications/initialized"})
    return stream


def _parse_argument(word: str) -> tuple[str, object]:
    """Return (key, value) of "key=value": the value as JSON or as text, "@file" as the file's text."""
    key, _, value = word.partition("=")
    if value.startswith("@"):
        return key, Path(value[1:]).read_text()
    try:
        return key, json.loads(value)
    except ValueError:
        return key, value


def _send_message(stream: TextIO, message: dict[str, Any]) -> None:
    """Write *message* to *stream* as one line of JSON-RPC 2.0."""
    stream.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    stream.flush()


def ask_server(stream: TextIO, method: str, params: dict[str, Any]) -> Any:
    """Send the MCP request *method* over *stream*, return its result; raises SystemExit for an error or a closed stream."""
    _send_message(stream, {"id": 1, "method": method, "params": params})
    while line := stream.readline():
        answer = json.loads(line)
        if answer.get("id") == 1:
            if "error" in answer:
                raise SystemExit(f"{method}: {answer['error'].get('message')}")
            return answer["result"]
    raise SystemExit("the server ended")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
