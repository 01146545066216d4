"""Accepts connections on a listening socket and serves each in a thread; closes all of them when its block ends.

The thread that accepts a connection serves it while another one waits for the next: a thread that is started or woken for
each connection first waits for a processor (p95 of a response 4.6 ms instead of 0.25 on a busy machine). `socketserver`
ends late and leaves open connections; a server that starts for each of hundreds of worlds must end within a millisecond.
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
"""Most connections at the same time; further ones wait."""

END_TIMEOUT_S = 5.0
"""Seconds that the end waits for responses in progress."""

_PAUSE_S = 0.05
_MOST_WAITING = 2
"""Threads that wait for a connection; a thread beyond them ends once it has served its connection."""


class Acceptor:
    """Calls *serve* with every connection to *listener* while the block runs, and closes it when *serve* returns."""

    def __init__(self, listener: socket.socket, serve: Callable[[socket.socket], None]) -> None:
        self._listener, self._serve = listener, serve
        self._room = threading.BoundedSemaphore(MOST_CONNECTIONS)
        self._open: set[socket.socket] = set()
        self._threads: set[threading.Thread] = set()
        self._waiting = 0
        self._lock, self._ending = threading.Lock(), threading.Event()

    def __enter__(self) -> Acceptor:
        with self._lock:
            self._start_thread()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ending.set()
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # wakes the threads that accept
        with self._lock:
            left, threads = set(self._open), set(self._threads)
        for connection in left:
            with suppress(OSError):  # it ended by itself
                connection.shutdown(socket.SHUT_RDWR)
        for thread in threads:
            thread.join(END_TIMEOUT_S)
        self._listener.close()

    def _start_thread(self) -> None:
        """Start and register a thread that accepts connections; the caller holds the lock."""
        thread = threading.Thread(target=self._accept_connections, name="connection", daemon=True)
        thread.start()
        self._threads.add(thread)
        self._waiting += 1

    def _accept_connections(self) -> None:
        """Accept and serve connections in this thread until the server closes or enough other threads wait."""
        try:
            while not self._ending.is_set():
                if (connection := self._accept_next()) is not None and not self._serve_connection(connection):
                    return
        finally:
            with self._lock:
                self._threads.discard(threading.current_thread())

    def _accept_next(self) -> socket.socket | None:
        """Wait for the next connection and return it; None if the listener is closed or no file descriptor is free."""
        self._room.acquire()
        try:
            return self._listener.accept()[0]
        except OSError:  # the end, or no descriptor is free: then there may be one soon
            self._room.release()
            self._ending.wait(_PAUSE_S)
            return None

    def _serve_connection(self, connection: socket.socket) -> bool:
        """Serve and close *connection* while another thread accepts; return whether this thread is to accept again."""
        with self._lock:
            if self._ending.is_set():
                connection.close()
                return False
            self._open.add(connection)
            self._waiting -= 1
            if not self._waiting:
                with suppress(RuntimeError):  # there can be no more threads: then this one waits again
                    self._start_thread()
        try:
            self._serve(connection)
        finally:
            with self._lock:
                self._open.discard(connection)
            connection.close()
            self._room.release()
        with self._lock:
            again = self._waiting < _MOST_WAITING
            self._waiting += again
        return again


def listen_on_port(port: int = 0) -> socket.socket:
    """Listen on *port* of 127.0.0.1 (0: any free one); raises UserError if it is taken, StartError if none is free."""
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
    """Return a Unix socket that listens at *path*, for this user only; raises UserError when it cannot be made."""
    listener = socket.socket(socket.AF_UNIX)
    try:
        listener.bind(str(path))
    except OSError as error:
        listener.close()
        raise UserError(f"No Unix socket can be made at {path}: {error}; name a new file in a short path.") from error
    path.chmod(0o600)  # nobody can connect before it listens
    listener.listen(MOST_CONNECTIONS)
    return listener
