"""The control socket: one JSON object a line in, one out; only the receiver's own user may open it."""

from __future__ import annotations

import asyncio
import json
import os
import socket
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from opsassay.core.errors import OpsAssayError, UserError
from opsassay.telemetry.otlp.sessions import SessionRecorder

SOCKET_NAME = "control.sock"


@contextmanager
def socket_address(state: Path) -> Iterator[str]:
    """Yield an address of the control socket in *state* that is short enough for the kernel's limit of 107 bytes."""
    directory = os.open(state, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{directory}/{SOCKET_NAME}"
    finally:
        os.close(directory)


def bind(state: Path) -> socket.socket:
    """Create and return the control socket in *state*; one that a killed receiver left there is replaced."""
    (state / SOCKET_NAME).unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    mask = os.umask(0o177)
    try:
        with socket_address(state) as address:
            listener.bind(address)
    finally:
        os.umask(mask)
    return listener


class Control:
    """Executes the commands open_session, close_session and stats on a *recorder*."""

    def __init__(self, recorder: SessionRecorder) -> None:
        self._recorder = recorder
        self._commands: dict[str, Callable[[dict[str, Any]], Awaitable[Any]]] = {
            "open_session": self._open_session,
            "close_session": self._close_session,
            "stats": self._read_stats,
        }

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer a client's commands, one JSON object a line, until it disconnects."""
        try:
            while line := await reader.readline():
                writer.write(json.dumps(await self._reply_to(line)).encode() + b"\n")
                await writer.drain()
        except (ConnectionError, ValueError):
            return  # the client went away, or sent a line without end
        finally:
            writer.close()

    async def _reply_to(self, line: bytes) -> dict[str, Any]:
        """Run the command in *line*; return {"result"}, or {"error", "user_error": whether it is a UserError}."""
        try:
            return {"result": await self._execute_line(line)}
        except OpsAssayError as error:
            return {"error": str(error), "user_error": isinstance(error, UserError)}

    async def _execute_line(self, line: bytes) -> Any:
        """Run the command in *line*, a JSON object, and return its result; raises UserError, OperationError."""
        try:
            command = json.loads(line)
            execute = self._commands[command["command"]]
        except (ValueError, KeyError, TypeError) as error:
            raise UserError(f"Unknown command on the control socket; known: {', '.join(self._commands)}.") from error
        try:
            return await execute(command)
        except (KeyError, TypeError) as error:
            raise UserError(f"{command['command']} lacks a field or has one of a wrong type: {error}.") from error

    async def _open_session(self, command: dict[str, Any]) -> None:
        """Open the session `name` of *command*, which records into its `directory`."""
        self._recorder.open_session(str(command["name"]), Path(command["directory"]))

    async def _close_session(self, command: dict[str, Any]) -> Any:
        """Close the session `name` of *command* and return its counts."""
        return (await self._recorder.close_session(command["name"])).model_dump()

    async def _read_stats(self, _: dict[str, Any]) -> Any:
        """Return the counts of the receiver and of its open sessions."""
        return self._recorder.stats().model_dump()
