"""Copies bytes between standard streams and a Unix socket: ``python mcp_bridge.py /run/opsassay/tools.sock``.

The file is copied into an agent's work folder, so it imports the standard library only.
"""

import os
import socket
import sys
import threading


def main(path: str) -> None:
    """Copy between standard input and output and the Unix socket *path* until both ends close."""
    server = socket.socket(socket.AF_UNIX)
    server.connect(path)
    threading.Thread(target=_copy_stdin_to, args=(server,), daemon=True).start()
    while data := server.recv(65536):
        while data:
            data = data[os.write(1, data) :]


def _copy_stdin_to(server: socket.socket) -> None:
    """Send all of standard input to *server*, then close that direction."""
    while data := os.read(0, 65536):
        server.sendall(data)
    server.shutdown(socket.SHUT_WR)


if __name__ == "__main__":
    main(sys.argv[1])
