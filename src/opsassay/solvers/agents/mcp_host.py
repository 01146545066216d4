"""Runs an MCP server whose standard streams are a Unix socket: ``python mcp_host.py /run/opsassay/server.sock WORD...``.

The file is copied into the server's work folder, so it imports the standard library only.
"""

import select
import socket
import subprocess
import sys

ENDING_S = 2


def main(path: str, words: list[str]) -> int:
    """Run the MCP server command *words*, connected to the socket *path*, until either ends; return its exit code."""
    other = socket.socket(socket.AF_UNIX)
    other.connect(path)
    server = subprocess.Popen(words, stdin=other.fileno(), stdout=other.fileno())
    hung_up = select.poll()
    hung_up.register(other, select.POLLRDHUP)
    while server.poll() is None and not hung_up.poll(100):
        pass
    try:
        return server.wait(ENDING_S)
    except subprocess.TimeoutExpired:
        server.kill()
        return server.wait()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
