"""A service over HTTP: answers after its callees, and says so by OpenTelemetry."""

import http.server
import os
import sys
import urllib.request
from pathlib import Path

from opentelemetry import propagate, trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import SpanKind, Status, StatusCode

provider = TracerProvider()
provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
trace.set_tracer_provider(provider)
tracer = trace.get_tracer(__name__)
CALLEES = os.environ.get("CALLEES", "").split()


def call(name):
    with tracer.start_as_current_span("GET", kind=SpanKind.CLIENT) as span:
        span.set_attributes({"http.request.method": "GET", "server.address": name, "url.full": f"http://{name}:8000/"})
        headers = {}
        propagate.inject(headers)
        with urllib.request.urlopen(
            urllib.request.Request(f"http://{name}:8000/", headers=headers), timeout=2
        ) as answer:
            span.set_attribute("http.response.status_code", answer.status)
            answer.read()


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        with tracer.start_as_current_span(
            f"GET {self.path}",
            context=propagate.extract({k.lower(): v for k, v in self.headers.items()}),
            kind=SpanKind.SERVER,
        ) as span:
            status = 200
            try:
                for name in CALLEES:
                    call(name)
            except OSError as error:
                status = 502
                span.set_status(Status(StatusCode.ERROR, str(error)))
                print(f"ERROR {name} does not answer: {error}", file=sys.stderr, flush=True)
            span.set_attributes(
                {"http.request.method": "GET", "http.route": self.path, "http.response.status_code": status}
            )
            body = b"{}\n"
            self.send_response(status)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    def log_message(self, *words):
        pass


Path("/data/started").write_text("once\n")  # in a folder of the user, which the container may write to
print("listening", flush=True)
http.server.ThreadingHTTPServer(("", 8000), Handler).serve_forever()
