"""The probe: an HTTP server in a namespace of its own that sends one request when asked, and says how it went.

``GET /?url=http://shop.shop:8080/&timeout=3`` is answered with ``{"status", "latency_s", "error"}``. Only the standard
library is imported, so that a probe is ready at once.
"""

from __future__ import annotations

import http.client
import json
import time
import urllib.error
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

CONNECTED_WITHIN_S = 3.0
"""A connection that takes longer is none: what drops packets is closed and not slow."""


class Connection(http.client.HTTPConnection):
    """A connection that may wait longer for an answer than for being accepted."""

    def connect(self) -> None:
        """Open the connection within CONNECTED_WITHIN_S; responses may take the whole timeout; raises OSError."""
        patience_s = self.timeout or CONNECTED_WITHIN_S
        self.timeout = min(patience_s, CONNECTED_WITHIN_S)
        super().connect()
        self.sock.settimeout(patience_s)


class Opener(urllib.request.HTTPHandler):
    """Opens URLs by such connections."""

    def http_open(self, request: urllib.request.Request) -> http.client.HTTPResponse:
        """Send *request* by a `Connection`, with its timeouts, and return the response."""
        return self.do_open(Connection, request)


def probe(url: str, timeout_s: float) -> dict[str, Any]:
    """Send one GET to *url*; return status (None without an answer), latency_s and error text."""
    started = time.monotonic()
    status, error = None, ""
    try:
        if urlsplit(url).scheme != "http":
            raise ValueError("only http is probed")
        with urllib.request.build_opener(Opener).open(url, timeout=timeout_s) as answer:
            answer.read()
            status = answer.status
    except urllib.error.HTTPError as refused:
        status = refused.code
    except (OSError, ValueError) as failure:
        error = str(failure)
    return {"status": status, "latency_s": time.monotonic() - started, "error": error}


class ProbeHandler(BaseHTTPRequestHandler):
    """Answers one request to probe."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        """Probe the URL in the query and answer with the result."""
        query = parse_qs(urlsplit(self.path).query)
        try:
            outcome, code = probe(query["url"][0], float(query.get("timeout", ["3"])[0])), 200
        except (KeyError, ValueError):
            outcome, code = {"error": "give url and timeout"}, 400
        body = json.dumps(outcome).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *arguments: Any) -> None:  # noqa: A002
        """Write no log."""


def serve(port: int) -> None:
    """Serve probe requests at the TCP *port* until killed."""
    ThreadingHTTPServer(("", port), ProbeHandler).serve_forever()
