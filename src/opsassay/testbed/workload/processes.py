"""Starts and watches the processes of a system: programs, and forks of the template process."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
from asyncio.subprocess import DEVNULL, Process
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from opsassay.core.errors import StartError
from opsassay.core.logs import readable
from opsassay.testbed.core.fleet import sleep_until
from opsassay.testbed.core.state import MARKER, SystemState, note_process
from opsassay.testbed.kernel.namespaces import enter
from opsassay.testbed.workload.runtime.forks import die_with_parent

LOG_TAIL_LINES = 12
STOP_S = 5.0


def log_tail(path: Path, lines: int = LOG_TAIL_LINES) -> str:
    """Return the last *lines* of the log file *path*, '' if it cannot be read."""
    try:
        return "\n".join(readable(path.read_text(errors="replace"))[-lines:])
    except OSError:
        return ""


def environment(state: SystemState) -> dict[str, str]:
    """Return the environment for processes of the system: this one's, plus MARKER, by which they are found."""
    return {**os.environ, MARKER: str(state.dir), "PYTHONUNBUFFERED": "1"}


def _become_child(namespace: str | None) -> None:
    """Prepare a forked child: it dies with its parent, and enters the network *namespace* (a path) if given."""
    die_with_parent()
    if namespace is not None:
        enter(namespace)


async def start_program(
    state: SystemState, name: str, command: Sequence[str], *,
    stdin: int = DEVNULL, stdout: int | None = None, namespace: str | None = None,
) -> Process:  # fmt: skip
    """Start *command* as the process *name* of the system; it dies with this process; its output goes to its log.

    *stdin* and *stdout* are as of subprocess, *stdout* None the log. It runs in the network *namespace* at that path;
    None: in that of this process.
    """
    log = state.log(name)
    with log.open("ab") as output:
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=stdin,
            stdout=output if stdout is None else stdout,
            stderr=output,
            env=environment(state),
            cwd=state.dir,
            preexec_fn=partial(_become_child, namespace),
            start_new_session=True,
        )
    note_process(state, process.pid)
    return process


class Template:
    """The supervisor's side of the template process *pid*: *connection* is the socket to it."""

    def __init__(
        self, state: SystemState, pid: int, connection: socket.socket, on_exit: Callable[[str, int, int], None]
    ) -> None:
        self._state, self._pid, self._connection, self._on_exit = state, pid, connection, on_exit
        self._spawned: dict[str, asyncio.Future[int]] = {}
        self._writer: asyncio.StreamWriter | None = None
        self._reading: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Wait until the template process (which forks the system's processes) is ready; raises StartError."""
        note_process(self._state, self._pid)
        reader, self._writer = await asyncio.open_unix_connection(sock=self._connection)
        if not await reader.readline():
            raise StartError("The template process ended at its start.", log_tail(self._state.log("template")))
        self._reading = asyncio.create_task(self._read_messages(reader))

    async def spawn(self, role: str, name: str, config: Mapping[str, Any]) -> int:
        """Have the template fork a process *name* that runs *role* ("replica") with *config*; return its pid."""
        assert self._writer is not None
        future: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._spawned[name] = future
        request = {"id": name, "role": role, "config": dict(config), "log": str(self._state.log(name))}
        self._writer.write(json.dumps(request).encode() + b"\n")
        await self._writer.drain()
        return await future

    async def _read_messages(self, stream: asyncio.StreamReader) -> None:
        """Handle the template's messages until it ends: pids of new processes, and ends of processes."""
        while line := await stream.readline():
            message = json.loads(line)
            if "spawned" in message:
                self._spawned.pop(message["spawned"]).set_result(message["pid"])
            elif "exited" in message:
                self._on_exit(message["exited"], message["pid"], message["status"])
        self._on_exit("template", self._pid, -1)

    async def stop(self) -> None:
        """Close the template's input, upon which it kills its children and ends; kill it when it is late."""
        if self._reading is not None:
            self._reading.cancel()
        with contextlib.suppress(OSError):  # closed already, since the process has ended
            self._connection.shutdown(socket.SHUT_WR)
        if not await sleep_until(self._has_ended, STOP_S, 0.01):
            os.kill(self._pid, signal.SIGKILL)
            await sleep_until(self._has_ended, STOP_S, 0.01)

    def _has_ended(self) -> bool:
        """Return whether the template process has ended, and reap it."""
        return os.waitpid(self._pid, os.WNOHANG)[0] == self._pid


class Channels:
    """The supervisor's side of the management interface: one channel per process, by name."""

    def __init__(self, state: SystemState, on_hello: Callable[[dict[str, Any]], None]) -> None:
        self._state, self._on_hello = state, on_hello
        self._writers: dict[str, asyncio.StreamWriter] = {}
        self._pending: dict[tuple[str, int], asyncio.Future[Any]] = {}
        self._serial = 0

    async def start(self) -> None:
        """Listen at the management socket, to which each process of the system connects."""
        self._server = await asyncio.start_unix_server(
            self._serve_connection, self._state.management_socket, limit=1 << 22
        )

    async def request(self, name: str, op: str, timeout_s: float = 5.0, **fields: Any) -> Any:
        """Send *op* with *fields* to the process *name* and return its answer.

        Raises TimeoutError, ConnectionError, or RuntimeError with the process's error.
        """
        writer = self._writers.get(name)
        if writer is None:
            raise ConnectionError(f"{name} has no management channel")
        self._serial += 1
        key = (name, self._serial)
        future = self._pending[key] = asyncio.get_running_loop().create_future()
        try:
            writer.write(json.dumps({"id": self._serial, "op": op, **fields}).encode() + b"\n")
            return await asyncio.wait_for(future, timeout_s)
        finally:
            self._pending.pop(key, None)

    def names(self) -> list[str]:
        """Return the sorted names of the processes that are connected."""
        return sorted(self._writers)

    def hang_up(self, name: str) -> None:
        """Close the connection to the process *name*, if any, which makes it end."""
        if (writer := self._writers.get(name)) is not None:
            writer.close()

    async def _serve_connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve the connection of one process: read its hello, then pass each answer to its request."""
        hello = json.loads(await reader.readline() or b"{}").get("hello")
        if not hello:
            writer.close()
            return
        name = hello["id"]
        self._writers[name] = writer
        self._on_hello(hello)
        try:
            while line := await reader.readline():
                answer = json.loads(line)
                future = self._pending.get((name, answer["id"]))
                if future is not None and not future.done():
                    if "error" in answer:
                        future.set_exception(RuntimeError(f"{name}: {answer['error']}"))
                    else:
                        future.set_result(answer["result"])
        except ConnectionError:
            pass  # the process ended in mid-line; the template reports its exit
        finally:
            if self._writers.get(name) is writer:
                del self._writers[name]
            for (who, _), pending in self._pending.items():
                if who == name and not pending.done():
                    pending.set_exception(ConnectionError(f"{name} ended"))
            writer.close()
