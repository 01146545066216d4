"""MCP servers whose tools an agent has in addition to the task's: one process each per run, sandboxed like an agent."""

from __future__ import annotations

import shutil
import socket
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import replace
from pathlib import Path

from pydantic import Field

from opsassay.core.errors import ConfigError, StartError
from opsassay.core.schema.base import Written
from opsassay.core.untrusted import require_socket_path
from opsassay.evals.runner.commands import AGENT_INSIDE, SOCKETS_INSIDE, places_of, run_command
from opsassay.evals.runner.mounts import mounts_of
from opsassay.solvers.agents import mcp_host
from opsassay.solvers.agents.command import CommandAgent
from opsassay.solvers.agents.mcp_tools import STARTING_S, ServerGoneError, ToolServer
from opsassay.solvers.agents.ready import external_agent
from opsassay.solvers.sandbox import Ended, Sandbox, SandboxLimits

_HOST, _SOCKET = "opsassay_host.py", "server"


class PlannedTools(Written):
    """An MCP server in a plan, whose tools agents get in addition."""

    mcp: str = Field(description="file of an MCP server, in the folder of the plan, with the keys of an agent.yaml")


def tool_servers(tools: Sequence[PlannedTools], folder: Path) -> list[CommandAgent]:
    """Return the MCP servers *tools* of a plan in *folder*; ConfigError for equal names or images, as `external_agent`."""
    servers = [external_agent(folder / one.mcp) for one in tools]
    names = [one.name for one in servers]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise ConfigError(f"tools: two MCP servers are called {twice}; give each a name of its own.")
    for one in servers:
        mounts_of(one)
        if one.file.image:
            raise ConfigError(
                f"tools: the MCP server {one.name} names an image, and servers run without; leave it out."
            )
    return servers


def joined_name(name: str, servers: Sequence[CommandAgent]) -> str:
    """Return the solver *name* followed by the names of *servers*, joined by " + ", for results."""
    return " + ".join([name, *(one.name for one in servers)])


def no_mcp(agent: str) -> ConfigError:
    """Return the error for *agent*, whose agent.yaml lacks the need mcp although MCP servers join its run."""
    return ConfigError(f"tools: {agent} has no tools by MCP; write mcp among the needs of its agent.yaml.")


@contextmanager
def started_servers(
    servers: Sequence[CommandAgent], view: Path, folder: Path, seconds: float, *, sealed: bool
) -> Iterator[list[ToolServer]]:
    """Yield the running *servers*, which read *view* and work below *folder*, until the block or *seconds* end.

    Raises StartError, with one sentence, for one that does not start or list its tools.
    """
    with ExitStack() as stack:
        pool = stack.enter_context(ThreadPoolExecutor(max(len(servers), 1)))
        yield [
            stack.enter_context(_start_server(one, view, folder / f"server-{number}", seconds, pool, sealed=sealed))
            for number, one in enumerate(servers)
        ]


@contextmanager
def _start_server(
    server: CommandAgent, view: Path, home: Path, seconds: float, pool: ThreadPoolExecutor, *, sealed: bool
) -> Iterator[ToolServer]:
    """Start an MCP server's command in *home*, in a sandbox if *sealed*, and yield the connection; raises StartError."""
    work, files, path = home / "work", home / "agent", home / f"{_SOCKET}.sock"
    work.mkdir(parents=True)
    for name, file in server.each_file():
        (files / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(file, files / name)
    files.mkdir(exist_ok=True)
    (work / _HOST).write_bytes(Path(mcp_host.__file__).read_bytes())
    places = places_of(view, work, files, sealed=sealed)
    own = server.file.limits
    limits = replace(SandboxLimits(), wall_clock_s=seconds, memory_bytes=own.memory_mb * 2**20, processes=own.processes)
    seal = Sandbox(
        view=view, work=work, sockets={_SOCKET: path}, ports={}, limits=limits,
        environment={"LANG": "C.UTF-8", "TZ": "UTC", **server.variables(places), "HOME": places["work"]},
        readable={AGENT_INSIDE: files, **mounts_of(server)},
    )  # fmt: skip
    reached = f"{SOCKETS_INSIDE}/{path.name}" if sealed else str(path)
    words = [places["python"], f"{places['work']}/{_HOST}", reached, *server.words(places)]
    require_socket_path(path)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen(1)
        ended = pool.submit(run_command, words, seal, sealed=sealed)
        connection = _accept_connection(server.name, listener, ended)
    with closing(connection):
        try:
            joined = ToolServer(server.name, connection, own.query_seconds)
        except ServerGoneError as gone:
            connection.close()
            raise StartError(
                f"The MCP server {server.name} does not list its tools: {_last_words(ended) or gone}."
            ) from gone
        yield joined


def _accept_connection(name: str, listener: socket.socket, end_of_server: Future[Ended]) -> socket.socket:
    """Return the connection of the server *name*; raises StartError when the server ends first."""
    listener.settimeout(0.1)
    deadline = time.monotonic() + STARTING_S
    while not end_of_server.done() and time.monotonic() < deadline:
        with suppress(TimeoutError):
            return listener.accept()[0]
    why = _last_words(end_of_server) if end_of_server.done() else f"it did not start within {STARTING_S:g} s"
    raise StartError(f"The MCP server {name} cannot join: {why}.")


def _last_words(end_of_server: Future[Ended]) -> str:
    """Return how a server ended by itself, with its last line of output; '' when it was killed."""
    end = end_of_server.result()
    said = (end.stderr_tail.strip().splitlines() or [""])[-1][:200]
    return "" if end.signal or not end.exit_code else f"it {end.reason}{f' ({said})' if said else ''}"
