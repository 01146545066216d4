"""A service over HTTP without any OpenTelemetry: it passes `traceparent` on over a connection that it keeps."""

import http.client
import http.server
import os
import threading

CALLEE, ALONE = os.environ.get("CALLEE"), threading.Lock()
kept = http.client.HTTPConnection(CALLEE, 8000, timeout=3) if CALLEE else None


def ask(path, headers):
    """Return the status of the callee."""
    with ALONE:
        try:
            kept.request("GET", path, headers=headers)
            answer = kept.getresponse()
            answer.read()
            return answer.status
        except (OSError, http.client.HTTPException) as error:
            kept.close()
            print(f"ERROR {CALLEE} does not answer: {error}", flush=True)
            return 503


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        passed = {name: value for name, value in self.headers.items() if name.lower() in ("traceparent", "tracestate")}
        status = ask(self.path, passed) if kept else 200
        self.send_response(200 if status == 200 else 502)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *words):
        pass


print("listening", flush=True)
http.server.ThreadingHTTPServer(("", 8000), Handler).serve_forever()
