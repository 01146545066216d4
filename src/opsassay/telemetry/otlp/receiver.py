"""The receiver process: data port, control socket, state folder, and an orderly end."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import tempfile
import threading
import time
from pathlib import Path

from aiohttp import web

from opsassay.core.errors import StartError
from opsassay.core.logs import Log
from opsassay.core.schema.locks import folder_lock
from opsassay.telemetry.otlp import control
from opsassay.telemetry.otlp.intake import Intake
from opsassay.telemetry.otlp.sessions import SessionRecorder

_log = Log(__name__)
STATE_NAME = "receiver.json"
_LOCK_NAME = "receiver.lock"
_IN_FLIGHT_TIMEOUT_S = 5.0


def run(state: Path, host: str, port: int, *, die_with_stdin: bool) -> None:
    """Run `receive` with the same arguments in a new event loop, until it returns."""
    state.mkdir(parents=True, exist_ok=True)
    asyncio.run(receive(state, host, port, die_with_stdin=die_with_stdin))


async def receive(state: Path, host: str, port: int, *, die_with_stdin: bool = False) -> None:
    """Receive until SIGTERM, SIGINT, or the end of standard input if *die_with_stdin*; then close every session.

    *state* is the folder of the receiver's own files.
    Raises StartError when the port or the state folder is taken, OperationError when the disk refuses the last flush.
    """
    taken = StartError(f"Another receiver already runs on {state}; stop it or choose another folder.")
    with folder_lock(state, name=_LOCK_NAME, wait=False, refusal=taken):
        listener = _listen_on(host, port)
        await _serve_until_stopped(state, listener, die_with_stdin=die_with_stdin)


def _listen_on(host: str, port: int) -> socket.socket:
    """Return a socket that listens on *host* and *port*; raises StartError."""
    try:
        return socket.create_server((host, port), backlog=1024)
    except OSError as error:
        raise StartError(
            f"Cannot listen on {host} port {port}: {os.strerror(error.errno or 0)}; free it or choose another --port."
        ) from error


async def _serve_until_stopped(state: Path, listener: socket.socket, *, die_with_stdin: bool) -> None:
    """Receive until a signal, or with *die_with_stdin* the end of stdin; answer open requests, then close all sessions."""
    stopped, loop = asyncio.Event(), asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopped.set)
    recorder = SessionRecorder()
    runner = web.AppRunner(
        Intake(recorder).application(),
        access_log=None,
        auto_decompress=False,
        handle_signals=False,
        shutdown_timeout=_IN_FLIGHT_TIMEOUT_S,
    )
    await runner.setup()
    await web.SockSite(runner, listener).start()
    controls = await asyncio.start_unix_server(control.Control(recorder).serve, sock=control.bind(state))
    if die_with_stdin:
        threading.Thread(target=_wait_for_stdin, args=(loop, stopped), daemon=True).start()
    _announce(state, listener.getsockname()[1])
    _log.info("ready", port=listener.getsockname()[1], pid=os.getpid())
    try:
        await stopped.wait()
    finally:
        controls.close()
        await runner.cleanup()  # requests in flight are answered first
        await recorder.close()
        for name in (STATE_NAME, control.SOCKET_NAME):
            (state / name).unlink(missing_ok=True)
        _log.info("stopped")


def _wait_for_stdin(loop: asyncio.AbstractEventLoop, stopped: asyncio.Event) -> None:
    """Set *stopped* when standard input ends; runs in a thread, since epoll takes no regular file and no /dev/null."""
    try:
        while os.read(0, 4096):
            pass
    except OSError:
        pass  # a closed standard input has ended, too
    loop.call_soon_threadsafe(stopped.set)


def _announce(state: Path, port: int) -> None:
    """Write receiver.json with the port atomically into *state*; its presence means that the receiver is ready."""
    text = json.dumps({"pid": os.getpid(), "port": port, "started_ns": time.time_ns()})
    handle, temporary = tempfile.mkstemp(dir=state, prefix=f".{STATE_NAME}.")
    with os.fdopen(handle, "w") as stream:
        stream.write(text + "\n")
        stream.flush()
        os.fsync(stream.fileno())
    Path(temporary).replace(state / STATE_NAME)
