"""Tools of external MCP servers in an exam: each is offered as SERVER_TOOL and called over the server's connection."""

from __future__ import annotations

import json
import re
import socket
import time
from collections.abc import Mapping
from typing import Any

from opsassay.core.errors import StartError
from opsassay.core.schema.tool_session import ToolSpec
from opsassay.core.schema.trajectory import ToolCall
from opsassay.solvers.agents.mcp_server import MAX_LINE_BYTES
from opsassay.solvers.agents.tools import MAX_CHARACTERS

_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_MOST_PAGES = 20
STARTING_S = 60.0
"""Seconds that a server may take to start and to list its tools."""


class ServerGoneError(Exception):
    """A server answers no more; the message says why."""


class ToolServer:
    """The MCP server *name* at the other end of *connection*; a call longer than *seconds* ends it.

    Raises ServerGoneError when it does not list its tools, StartError for a tool name that no model can call. *gone* is the
    reason why it ended, '' while it runs.
    """

    def __init__(self, name: str, connection: socket.socket, seconds: float) -> None:
        self._name, self._connection = name, connection
        self._received, self._number, self.gone = bytearray(), 0, ""
        self._seconds = max(seconds, STARTING_S)
        about = {"name": "opsassay", "version": "1"}
        try:
            self._ask("initialize", protocolVersion="2025-06-18", capabilities={}, clientInfo=about)
            self._send_message(method="notifications/initialized")
            self._tools = {f"{name}_{tool.name}": tool for tool in self._list_tools()}
        except (ValueError, TypeError) as error:
            raise ServerGoneError(" ".join(str(error).split())[:300]) from error
        self._seconds = seconds
        if wrong := next((tool for tool in self._tools if not _NAME.fullmatch(tool)), None):
            raise StartError(f"The MCP server {name} has a tool that no model can call: {wrong[:100]!r}.")

    def specs(self) -> tuple[ToolSpec, ...]:
        """Return the specifications of the server's tools under their names for the agent, SERVER_TOOL."""
        return tuple(
            ToolSpec(name=name, description=tool.description or "", parameters=tool.input_schema)
            for name, tool in self._tools.items()
        )

    def call(self, tool: str, arguments: Mapping[str, Any]) -> ToolCall:
        """Call *tool*, named SERVER_TOOL; return the call with its text output, of status "error" if it failed."""
        from mcp import types

        given = dict(arguments)
        try:
            found = self._ask("tools/call", name=self._tools[tool].name, arguments=given)
            result = types.CallToolResult.model_validate(found)
        except ServerGoneError as gone:
            return ToolCall(tool=tool, arguments=given, output=f"Error: {gone}.", status="error")
        except (ValueError, TypeError) as error:
            said = " ".join(str(error).split())[:300]
            return ToolCall(tool=tool, arguments=given, output=f"Error: {self._name} said: {said}.", status="error")
        parts = (one.text if isinstance(one, types.TextContent) else f"[{one.type}]" for one in result.content)
        text = "\n".join(parts)[:MAX_CHARACTERS]
        return ToolCall(tool=tool, arguments=given, output=text, status="error" if result.is_error else "ok")

    def _list_tools(self) -> list[Any]:
        """Return the server's tools (MCP ``tools/list``), of at most `_MOST_PAGES` pages."""
        from mcp import types

        tools, page = list[Any](), types.ListToolsResult.model_validate(self._ask("tools/list"))
        for _ in range(_MOST_PAGES):
            tools += page.tools
            if page.next_cursor is None:
                break
            page = types.ListToolsResult.model_validate(self._ask("tools/list", cursor=page.next_cursor))
        return tools

    def _ask(self, method: str, **params: Any) -> Any:
        """Return the result of the MCP request *method*; raises ValueError for an error response, else ServerGoneError."""
        if self.gone:
            raise ServerGoneError(self.gone)
        self._number += 1
        deadline = time.monotonic() + self._seconds
        try:
            self._send_message(id=self._number, method=method, params=params)
            while True:
                message = json.loads(self._read_line(deadline))
                if "method" in message and "id" in message:
                    reply = {"result": {}} if message["method"] == "ping" else _NOT_OFFERED
                    self._send_message(id=message["id"], **reply)
                elif message.get("id") == self._number:
                    break
        except TimeoutError:
            self.gone = f"the MCP server {self._name} gave no answer in {self._seconds:g} s; its tools are gone"
        except OSError:
            self.gone = f"the MCP server {self._name} has ended; its tools are gone"
        except (ValueError, TypeError, AttributeError):
            self.gone = f"the MCP server {self._name} does not speak MCP; its tools are gone"
        if self.gone:
            raise ServerGoneError(self.gone)
        if "result" not in message:
            error = message.get("error")
            raise ValueError(error.get("message") if isinstance(error, dict) else "neither a result nor an error")
        return message["result"]

    def _send_message(self, **message: Any) -> None:
        """Send *message* to the server as one line of JSON-RPC 2.0."""
        self._connection.settimeout(self._seconds)
        self._connection.sendall(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")

    def _read_line(self, deadline: float) -> bytes:
        """Return the server's next line before *deadline* (monotonic, s); raises OSError, ValueError if too long."""
        while (end := self._received.find(b"\n")) < 0:
            if len(self._received) > MAX_LINE_BYTES:
                raise ValueError("a line that is too long")
            self._connection.settimeout(max(deadline - time.monotonic(), 0.001))
            if not (data := self._connection.recv(65536)):
                raise ConnectionResetError
            self._received += data
        line = bytes(self._received[:end])
        del self._received[: end + 1]
        return line


_NOT_OFFERED = {"error": {"code": -32601, "message": "not offered"}}
