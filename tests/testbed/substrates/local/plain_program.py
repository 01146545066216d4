"""A program that answers, passes `traceparent` on to its back, and tries what it should not reach.

Without a back it sends a span of each item that it is asked for, as a library does that knows the routes of a program.
"""

import http.server
import json
import os
import pathlib
import socket
import time
import urllib.error
import urllib.request

BACK = os.environ.get("BACK_URL")


def call(path, headers):
    """Return status, headers, body and seconds of a call to the back."""
    passed = {name: value for name, value in headers.items() if name.lower() in ("traceparent", "tracestate")}
    began = time.monotonic()
    try:
        with urllib.request.urlopen(urllib.request.Request(BACK + path, headers=passed), timeout=5) as answer:
            status, given, body = answer.status, answer.headers, answer.read()
    except urllib.error.HTTPError as error:
        status, given, body = error.code, error.headers, error.read()
    given = {name.lower(): value for name, value in given.items()}
    return {"status": status, "headers": given, "body": body.decode(), "seconds": time.monotonic() - began}


def send_span(traceparent, began_ns):
    """Send the span of a request by OTLP."""
    _, trace, parent, _ = traceparent.split("-")
    texts = {"http.request.method": "GET", "url.path": "/items/1", "http.route": "/items/:item"}
    attributes = [{"key": key, "value": {"stringValue": text}} for key, text in texts.items()]
    times = {"startTimeUnixNano": str(began_ns), "endTimeUnixNano": str(time.time_ns())}
    ids = {"traceId": trace, "spanId": os.urandom(8).hex(), "parentSpanId": parent}
    span = {**ids, **times, "name": "GET /items/:item", "kind": 2, "attributes": attributes}
    body = {"resourceSpans": [{"resource": {}, "scopeSpans": [{"scope": {}, "spans": [span]}]}]}
    url, headers = os.environ["OTEL_EXPORTER_OTLP_ENDPOINT"] + "/v1/traces", {"Content-Type": "application/json"}
    urllib.request.urlopen(urllib.request.Request(url, json.dumps(body).encode(), headers), timeout=5).close()


def reach():
    """Return the sockets, files and ports through which somebody else's administration answers."""
    patterns = ("proc/[0-9]*/root/tmp/*admin*", "tmp/*admin*", "run/*admin*", "dev/shm/*admin*")
    found = [str(path) for pattern in patterns for path in pathlib.Path("/").glob(pattern)]
    for port in (9901, 15000, 15001, 15006, 19000):
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/config_dump", timeout=1) as answer:
                found.append(f"{port}: {answer.read()[:80]}")
        except OSError:
            pass
    table = pathlib.Path("/proc/net/unix").read_text().splitlines()[1:]
    paths = [words[-1] for words in map(str.split, table) if len(words) == 8]
    for path in paths:
        for name in (path, "\0" + path.lstrip("@")):
            try:
                with socket.socket(socket.AF_UNIX) as tried:
                    tried.connect(name)
                    found.append(path)
            except OSError:
                pass
    return {"admin": found, "user": os.getuid()}


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        began_ns = time.time_ns()
        status, body = 200, {"item": self.path, "method": self.command}
        if self.path == "/missing":
            status, body = 404, {}
        elif self.path == "/reach":
            body = reach()
        elif self.path == "/asked":
            body = {name.lower(): value for name, value in self.headers.items()}
        elif self.path == "/seen":
            body = call("/items/1", self.headers)
        elif BACK and self.path.startswith("/items/"):
            seen = call(self.path, self.headers)
            status, body = (200, json.loads(seen["body"])) if seen["status"] == 200 else (502, {})
        written = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(written)))
        self.end_headers()
        self.wfile.write(written)
        if not BACK and self.path.startswith("/items/") and (traceparent := self.headers.get("traceparent")):
            send_span(traceparent, began_ns)

    def do_PUT(self):
        self.do_GET()

    def log_message(self, *_):
        pass


http.server.ThreadingHTTPServer(("0.0.0.0", 8080), Handler).serve_forever()
