"""A small server in a service's place: answers every path with the name of its pod. Only the standard library is imported.

    python -m opsassay.testbed.substrates.kubernetes.agent.stand_in [--port 8080] [--needs FILE] [--memory-mb N]

``--needs`` is a file without which it ends at once, as a server does that cannot read its configuration.
"""

from __future__ import annotations

import argparse
import os
import signal
import socket
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any


class StandInHandler(BaseHTTPRequestHandler):
    """Answers 200."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        """Answer with the name of this pod."""
        body = (socket.gethostname() + "\n").encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/plain")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_POST = do_GET  # noqa: N815 - the name that the base class calls

    def log_message(self, format: str, *arguments: Any) -> None:  # noqa: A002
        """Write no log."""


def main() -> None:
    """Run the stand-in HTTP server until asked to end."""
    parser = argparse.ArgumentParser(
        prog="python -m opsassay.testbed.substrates.kubernetes.agent.stand_in", description=__doc__
    )
    parser.add_argument("--port", type=int, default=8080, help="where it listens")
    parser.add_argument("--needs", type=Path, help="a file without which it ends")
    parser.add_argument("--memory-mb", type=int, default=0, help="memory that it takes")
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))  # process 1 has no default
    if given.needs is not None and not given.needs.is_file():
        sys.exit(f"cannot read the configuration {given.needs}: no such file")
    taken = bytearray(given.memory_mb << 20)
    taken[::4096] = b"x" * len(taken[::4096])
    ThreadingHTTPServer(("", given.port), StandInHandler).serve_forever()


if __name__ == "__main__":
    main()
