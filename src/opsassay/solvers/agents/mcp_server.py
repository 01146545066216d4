"""The tools of an incident, and submit for the answer, served by MCP outside the sandbox over a Unix socket.

Messages are lines of JSON, as in MCP's stdio transport; `mcp_bridge` connects an MCP client to the socket.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from opsassay.core.schema.tool_session import ToolSession, ToolSpec
from opsassay.core.schema.trajectory import ToolCall
from opsassay.core.untrusted import require_socket_path
from opsassay.solvers.agents.contract import Answer, AnswerError, answer_schema, contract, read_diagnosis
from opsassay.solvers.agents.limits import Meter
from opsassay.solvers.agents.record import AgentRecorder
from opsassay.solvers.agents.tool_sessions import SUBMIT, CanCall, CountedToolSession
from opsassay.solvers.agents.tools import tool_specs

MAX_LINE_BYTES = 8 * 2**20
_CLIENTS = 16


def incident_specs(extra_specs: Sequence[ToolSpec] = ()) -> tuple[ToolSpec, ...]:
    """Return the specifications of the tools over an incident, then *extra_specs*, submit last."""
    about = "Hand in the answer, by this contract. A later answer takes the place of an earlier one.\n\n" + contract()
    return (*tool_specs(), *extra_specs, ToolSpec(name=SUBMIT, description=about, parameters=answer_schema()))


class DiagnosisToolSession(CountedToolSession):
    """The tools over one incident and those of *further*; *answer* is the last valid answer submitted, None before."""

    def __init__(
        self,
        tools: CanCall,
        meter: Meter,
        recorder: AgentRecorder,
        services: Collection[str],
        further: Sequence[ToolSpec] = (),
    ) -> None:
        super().__init__(tools, meter, recorder)
        self._services, self._further = services, further
        self.answer: Answer | None = None

    def own_specs(self) -> tuple[ToolSpec, ...]:
        """Return the specifications of the tools, submit last."""
        return incident_specs(self._further)

    def submitted(self, answer: dict[str, Any]) -> ToolCall:
        """Store *answer* if it meets the contract; return the call of submit, with notes on minor problems or an error."""
        try:
            self.answer = read_diagnosis(answer, self._services)
        except AnswerError as error:
            output = f"Error: not an answer by the contract: {error}."
            return ToolCall(tool=SUBMIT, arguments=answer, output=output, status="error")
        complaints = "".join(f" But {complaint}." for complaint in self.answer.complaints)
        return ToolCall(tool=SUBMIT, arguments=answer, output=f"Taken.{complaints}")


@contextmanager
def serving(session: ToolSession, path: Path) -> Iterator[Path]:
    """Serve the *session* at the Unix socket *path* while the block runs; raises UserError when the path is too long."""
    require_socket_path(path)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(path))
    listener.listen(_CLIENTS)
    open_: set[socket.socket] = set()
    thread = threading.Thread(target=_accept_clients, args=(listener, session, open_), name="opsassay-mcp", daemon=True)
    thread.start()
    try:
        yield path
    finally:
        with suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        for client in list(open_):
            with suppress(OSError):
                client.shutdown(socket.SHUT_RDWR)
        thread.join(10)
        with suppress(OSError):
            path.unlink()


def _accept_clients(listener: socket.socket, session: ToolSession, open_: set[socket.socket]) -> None:
    """Serve each client in a thread, up to `_CLIENTS` at a time, until *listener* closes; *open_*: their sockets."""
    serving_now: list[threading.Thread] = []
    while True:
        try:
            client, _ = listener.accept()
        except OSError:
            break
        serving_now = [thread for thread in serving_now if thread.is_alive()]
        if len(serving_now) >= _CLIENTS:
            client.close()
            continue
        open_.add(client)
        thread = threading.Thread(
            target=_serve_one, args=(client, session, open_), name="opsassay-mcp-client", daemon=True
        )
        serving_now.append(thread)
        thread.start()
    for thread in serving_now:
        thread.join(10)


def _serve_one(client: socket.socket, session: ToolSession, open_: set[socket.socket]) -> None:
    """Serve one MCP client until it disconnects or fails; then close its socket and drop it from *open_*."""
    import anyio

    try:
        anyio.run(_serve_client, client, session)
    except BaseException:  # noqa: BLE001, S110 - a client that breaks the protocol or hangs up ends its own session only
        pass
    finally:
        open_.discard(client)
        with suppress(OSError):
            client.shutdown(socket.SHUT_RDWR)
        client.close()


async def _serve_client(client: socket.socket, session: ToolSession) -> None:
    """Answer the MCP requests of one *client* (list tools, call tool) with the tools of *session* until it hangs up."""
    import anyio
    import anyio.to_thread
    from mcp import types
    from mcp.server.lowlevel import Server
    from mcp.server.stdio import stdio_server

    async def list_tools(_context: Any, _params: Any) -> types.ListToolsResult:
        """Answer MCP's tools/list with the tools of the session."""
        tools = [types.Tool(name=s.name, description=s.description, input_schema=s.parameters) for s in session.specs()]
        return types.ListToolsResult(tools=tools)

    async def call_tool(_context: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
        """Call the tool in *params*; answer with its output, marked as an error if it failed."""
        call = await anyio.to_thread.run_sync(session.call, params.name, dict(params.arguments or {}))
        content = [types.TextContent(type="text", text=call.output)]
        return types.CallToolResult(content=list(content), is_error=call.status == "error")

    server: Any = Server("opsassay", on_list_tools=list_tools, on_call_tool=call_tool)
    with (
        client.makefile("r", encoding="utf-8", errors="replace") as lines,
        client.makefile("w", encoding="utf-8") as out,
    ):
        bounded: Any = _Bounded(lines)
        reader, writer = anyio.wrap_file(bounded), anyio.wrap_file(out)
        async with stdio_server(reader, writer) as (incoming, outgoing):
            await server.run(incoming, outgoing, server.create_initialization_options())


class _Bounded:
    """The lines that a client sends, up to the first one longer than `MAX_LINE_BYTES`."""

    def __init__(self, lines: Any) -> None:
        self._lines = lines

    def __iter__(self) -> _Bounded:
        return self

    def __next__(self) -> str:
        return self.readline() or _end_session()

    def readline(self) -> str:
        """Return the next line; '' at the end of the stream, and for a line above the size limit."""
        line = str(self._lines.readline(MAX_LINE_BYTES))
        return line if line.endswith("\n") else ""

    def read(self, size: int = -1) -> str:
        """Return up to *size* characters, all of the rest for -1."""
        return str(self._lines.read(size))

    def close(self) -> None:
        """Close the file."""
        self._lines.close()


def _end_session() -> str:
    """Raise StopIteration, by which a reader's loop ends."""
    raise StopIteration
