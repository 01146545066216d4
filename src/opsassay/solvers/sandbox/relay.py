"""Relays connections from inside the sandbox to Unix sockets outside, byte by byte.

The listening sockets are made inside, the relay runs outside: a server needs no permissions for the agent's user and
gets no descriptors from it, and the agent finds no relay process to disturb.
"""

from __future__ import annotations

import os
import socket
import threading
from contextlib import suppress

MOST_CONNECTIONS = 64
"""Most connections at the same time per listening socket; further ones wait."""

CHUNK_BYTES = 2**16


def start(listener: socket.socket, path: str) -> None:
    """Forward each connection to *listener* to the Unix socket *path*, in background threads; raises OSError."""
    folder, name = os.path.split(path)
    descriptor = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    path = f"/proc/self/fd/{descriptor}/{name}"  # the path of a socket is at most 108 bytes long
    threading.Thread(target=_accept_connections, args=(listener, path), daemon=True).start()


def _accept_connections(listener: socket.socket, path: str) -> None:
    """Forward each connection to the socket *path*, up to `MOST_CONNECTIONS` at a time, until *listener* closes."""
    room = threading.BoundedSemaphore(MOST_CONNECTIONS)
    while True:
        room.acquire()
        try:
            inside, _ = listener.accept()
        except OSError:  # the seal is closed
            return
        threading.Thread(target=_carry_connection, args=(inside, path, room), daemon=True).start()


def _carry_connection(inside: socket.socket, path: str, room: threading.BoundedSemaphore) -> None:
    """Copy both directions between *inside* and the Unix socket *path*, then release *room*."""
    outside = socket.socket(socket.AF_UNIX)
    try:
        outside.connect(path)
        back = threading.Thread(target=_copy_bytes, args=(outside, inside), daemon=True)
        back.start()
        _copy_bytes(inside, outside)
        back.join()
    except OSError:
        pass  # nobody listens outside: the agent sees its connection closed
    finally:
        inside.close()
        outside.close()
        room.release()


def _copy_bytes(source: socket.socket, target: socket.socket) -> None:
    """Copy bytes from *source* to *target* until *source* ends, then close that direction on both sockets."""
    with suppress(OSError):  # one of them went away
        while chunk := source.recv(CHUNK_BYTES):
            target.sendall(chunk)
    with suppress(OSError):
        target.shutdown(socket.SHUT_WR)
    with suppress(OSError):
        source.shutdown(socket.SHUT_RD)
