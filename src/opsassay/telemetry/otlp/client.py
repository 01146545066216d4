"""The other end of the control socket, and a way to start a receiver."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from opsassay.core.errors import LostError, OperationError, StartError, UserError
from opsassay.telemetry.otlp.control import socket_address
from opsassay.telemetry.otlp.counts import ReceiverStats, SessionStats

_TIMEOUT_S = 120.0  # a close flushes a whole recording to the disk


class ReceiverControl:
    """Controls the receiver that runs on *state_dir*, from the same machine and the same user.

    Every method raises LostError when no receiver answers there, UserError for what the receiver refuses, and
    OperationError for what its disk does. The calls are short except `close_session`, which waits for the disk; from an
    event loop use `asyncio.to_thread`.
    """

    def __init__(self, state_dir: Path) -> None:
        self.state_dir = Path(state_dir)

    @property
    def port(self) -> int:
        """The TCP port at which the receiver takes OTLP."""
        try:
            return int(json.loads((self.state_dir / "receiver.json").read_text())["port"])
        except (OSError, ValueError, KeyError) as error:
            raise LostError(_describe_no_receiver(self.state_dir)) from error

    def open_session(self, directory: Path, name: str) -> None:
        """Record everything that arrives from now on into *directory*, which is created, as session *name*."""
        self._send_command(command="open_session", directory=str(Path(directory).absolute()), name=name)

    def refresh(self, name: str) -> None:
        """Copy all that session *name* has recorded so far into its directory; nothing to do for a local receiver."""

    def close_session(self, name: str) -> SessionStats:
        """Stop the session *name* and return its counts; its spool is on the disk and complete by then."""
        return SessionStats.model_validate(self._send_command(command="close_session", name=name))

    def stats(self) -> ReceiverStats:
        """Return the counts of the receiver and of its open sessions."""
        return ReceiverStats.model_validate(self._send_command(command="stats"))

    def _send_command(self, **command: str) -> Any:
        """Send *command* to the receiver and return its result; raises LostError, UserError or OperationError."""
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
                connection.settimeout(_TIMEOUT_S)
                with socket_address(self.state_dir) as address:
                    connection.connect(address)
                connection.sendall(json.dumps(command).encode() + b"\n")
                with connection.makefile("rb") as stream:
                    answer = json.loads(stream.readline())
        except (OSError, ValueError) as error:
            raise LostError(_describe_no_receiver(self.state_dir)) from error
        if "error" in answer:
            raise (UserError if answer["user_error"] else OperationError)(answer["error"])
        return answer["result"]


def start_receiver(
    state_dir: Path, host: str = "127.0.0.1", port: int = 0, *, die_with_stdin: bool = True, timeout_s: float = 20.0
) -> subprocess.Popen[bytes]:
    """Start a receiver with its files in *state_dir*, else StartError; *die_with_stdin*: it ends with its stdin."""
    options = ["--state", str(state_dir), "--host", host, "--port", str(port)]
    command = [sys.executable, "-m", "opsassay.telemetry.otlp", *options]
    state_dir.mkdir(parents=True, exist_ok=True)
    log = state_dir / "receiver.log"
    with log.open("wb") as stream:
        process = subprocess.Popen(
            [*command, "--die-with-stdin"] if die_with_stdin else command,
            stdin=subprocess.PIPE if die_with_stdin else subprocess.DEVNULL,
            stdout=stream,
            stderr=stream,
        )
    deadline = time.monotonic() + timeout_s
    while process.poll() is None and time.monotonic() < deadline:
        try:
            if ReceiverControl(state_dir).stats().pid == process.pid:
                return process
        except LostError:
            time.sleep(0.02)
    process.kill()
    process.communicate()
    raise StartError("The OTLP receiver did not start.", log.read_text(errors="replace").strip())


def _describe_no_receiver(state_dir: Path) -> str:
    """Return the sentence that no receiver runs in *state_dir*."""
    return (
        f"No receiver answers in {state_dir}; start one with `python -m opsassay.telemetry.otlp --state {state_dir}`."
    )
