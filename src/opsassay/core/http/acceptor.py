"""Connections to a listening socket, each served in a thread of its own; nothing of them is left when the block ends.

`socketserver` looks only every so often whether it shall end, and leaves open connections to themselves; a server that is
started for each of hundreds of worlds has to end within a millisecond, and wholly.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import TracebackType

from opsassay.core.errors import StartError, UserError

MOST_CONNECTIONS = 128
"""At the same time; further ones wait."""

END_TIMEOUT_S = 5.0
"""How long the end waits for what is being answered; a server's own answers take no such time."""

_PAUSE_S = 0.05


class Acceptor:
    """While the block runs every connection to *listener* is given to *serve* and closed when that returns."""

    def __init__(self, listener: socket.socket, serve: Callable[[socket.socket], None]) -> None:
        self._listener, self._serve = listener, serve
        self._room = threading.BoundedSemaphore(MOST_CONNECTIONS)
        self._open: dict[socket.socket, threading.Thread] = {}
        self._lock, self._ending = threading.Lock(), threading.Event()
        self._thread = threading.Thread(target=self._accept, name="acceptor", daemon=True)

    def __enter__(self) -> Acceptor:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ending.set()
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # wakes the thread that accepts
        with self._lock:
            left = dict(self._open)
        for connection in left:
            with suppress(OSError):  # it ended by itself
                connection.shutdown(socket.SHUT_RDWR)
        for thread in (self._thread, *left.values()):
            thread.join(END_TIMEOUT_S)
        self._listener.close()

    def _accept(self) -> None:
        while not self._ending.is_set():
            self._room.acquire()
            try:
                connection, _ = self._listener.accept()
            except OSError:  # the end, or no descriptor is free: then there may be one soon
                self._room.release()
                self._ending.wait(_PAUSE_S)
                continue
            thread = threading.Thread(target=self._run, args=(connection,), name="connection", daemon=True)
            with self._lock:
                if self._ending.is_set():
                    connection.close()
                    return
                self._open[connection] = thread
                thread.start()

    def _run(self, connection: socket.socket) -> None:
        try:
            self._serve(connection)
        finally:
            with self._lock:
                del self._open[connection]
            connection.close()
            self._room.release()


def listen_on_port(port: int = 0) -> socket.socket:
    """Return a socket that listens on *port* of 127.0.0.1, on any free one for 0; raises UserError when it cannot.

    It is StartError where no port at all can be listened on.
    """
    listener = socket.socket(socket.AF_INET)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", port))
    except OSError as error:
        listener.close()
        why = error.strerror or error
        if not port:
            raise StartError(
                f"No port of 127.0.0.1 can be listened on ({why}); free the cause and try again."
            ) from error
        raise UserError(f"Port {port} of 127.0.0.1 cannot be listened on ({why}); choose another.") from error
    listener.listen(MOST_CONNECTIONS)
    return listener


def listen_on_socket(path: Path) -> socket.socket:
    """Return a socket that listens at *path*, for this user only; raises UserError when there can be none."""
    listener = socket.socket(socket.AF_UNIX)
    try:
        listener.bind(str(path))
    except OSError as error:
        listener.close()
        raise UserError(f"No Unix socket can be made at {path}: {error}; name a new file in a short path.") from error
    path.chmod(0o600)  # nobody can connect before it listens
    listener.listen(MOST_CONNECTIONS)
    return listener
