"""Both services of the example, in one image: ``api`` answers, ``proxy`` passes on to the upstream that its file names.

``reload`` has the process that its container runs read the file again, as ``nginx -s reload`` does.
"""

from __future__ import annotations

import http.client
import os
import signal
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

UPSTREAM = Path("/conf/upstream")
PORT = 8080
TIMEOUT_S = 2.0
DRAIN_S = 3.0
"""How long a server that was asked to end takes no request any more and has those under way finish."""


class Api(BaseHTTPRequestHandler):
    """Answers every GET."""

    def do_GET(self) -> None:
        """Answer 200."""
        self.answer(200, b"an order\n")

    def answer(self, status: int, body: bytes) -> None:
        """Send *status* with *body*."""
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


class Proxy(Api):
    """Passes every GET on, and answers 502 when there is nobody."""

    upstream = ""

    def do_GET(self) -> None:
        """Answer what the upstream answers."""
        host, _, port = self.upstream.partition(":")
        try:
            connection = http.client.HTTPConnection(host, int(port), timeout=TIMEOUT_S)
            connection.request("GET", self.path)
            response = connection.getresponse()
            self.answer(response.status, response.read())
        except OSError:
            self.answer(502, b"bad gateway\n")


def read() -> None:
    """Read where the upstream is; requests from now on go there."""
    Proxy.upstream = UPSTREAM.read_text(encoding="utf-8").strip()


def main(role: str) -> None:
    """Serve as *role* until asked to end, or tell the process that serves here to read its file again."""
    if role == "reload":
        os.kill(1, signal.SIGHUP)
        return
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))  # the first process of a container ends by its own word only
    signal.signal(signal.SIGHUP, lambda *_: read())
    if role == "proxy":
        read()
    try:
        with ThreadingHTTPServer(("", PORT), Proxy if role == "proxy" else Api) as server:
            server.serve_forever()
    finally:
        time.sleep(DRAIN_S)


if __name__ == "__main__":
    main(sys.argv[1])
