"""A program of a team's own, with nothing but Python's library: it answers, calls its back, and says what it sees."""

import http.server
import json
import os
import pathlib
import socket
import sys
import threading
import time
import urllib.error
import urllib.request

BACK = os.environ.get("BACK_URL")


def report():
    """Return what the program finds of the machine that it runs on."""
    writable = []
    for folder in (".", "/", "/usr", "/tmp"):
        try:
            path = pathlib.Path(folder, "written-by-the-program")
            path.write_text("x")
            path.unlink()
            writable.append(folder)
        except OSError:
            pass
    return {
        "environment": dict(os.environ),
        "user": os.getuid(),
        "writable": writable,
        "processes": sorted(int(path.name) for path in pathlib.Path("/proc").glob("[0-9]*")),
        "etc": sorted(path.name for path in pathlib.Path("/etc").iterdir()),
        "root": sorted(path.name for path in pathlib.Path("/").iterdir()),
        "port_below_1024": bindable(80),
    }


def bindable(port):
    try:
        with socket.create_server(("0.0.0.0", port)):
            return True
    except OSError:
        return False


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        try:
            status, body = self.answer()
        except (OSError, urllib.error.URLError) as error:
            print(json.dumps({"level": "error", "msg": f"the back does not answer: {error}"}), flush=True)
            status, body = 502, b"{}"
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def answer(self):
        if self.path == "/report":
            return 200, json.dumps(report()).encode()
        if self.path == "/clock":
            began = time.monotonic()
            threading.Event().wait(0.2)
            return 200, json.dumps({"time": time.time(), "waited": time.monotonic() - began}).encode()
        if self.path == "/addresses":
            found = socket.getaddrinfo("back.pair.svc.cluster.local", 8080, socket.AF_INET, socket.SOCK_STREAM)
            return 200, json.dumps(sorted({address[0] for *_, address in found})).encode()
        if self.path == "/nobody":
            try:
                return 200, json.dumps(socket.gethostbyname("nobody")).encode()
            except OSError as error:
                return 404, json.dumps(str(error)).encode()
        if BACK and self.path.startswith("/items/"):
            with urllib.request.urlopen(f"{BACK}{self.path}", timeout=2) as answer:
                return 200, answer.read()
        return 200, json.dumps({"item": self.path}).encode()

    def log_message(self, *_):
        pass


print(json.dumps({"level": "warning", "msg": "starting"}), flush=True)
print("WARN this is no JSON", file=sys.stderr, flush=True)
http.server.ThreadingHTTPServer(("0.0.0.0", 8080), Handler).serve_forever()
