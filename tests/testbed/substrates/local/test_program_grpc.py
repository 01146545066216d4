"""Programs that send their telemetry over gRPC, to the address in their environment and to the one built into SDKs."""

from __future__ import annotations

import sys
import time

import pytest

from live import state_folder
from opsassay.core.errors import ConfigError
from opsassay.telemetry.otlp.seal import decode_spool
from opsassay.testbed.apps import load_system
from opsassay.testbed.substrates.local.capabilities import probe
from opsassay.testbed.substrates.local.substrate import LocalSubstrate

pytestmark = [pytest.mark.live, pytest.mark.timeout(200)]

PROGRAM = """
import time
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
named, built_in = TracerProvider(), TracerProvider()
named.add_span_processor(SimpleSpanProcessor(OTLPSpanExporter()))
built_in.add_span_processor(SimpleSpanProcessor(OTLPSpanExporter("http://localhost:4317", insecure=True)))
print("ready", flush=True)
while True:
    named.get_tracer("t").start_span("named").end()
    built_in.get_tracer("t").start_span("built in").end()
    time.sleep(0.2)
"""
SYSTEM = """
system: sends
services:
  sends:
    program:
      command: [{python}, sends.py]
      environment: {{OTEL_EXPORTER_OTLP_PROTOCOL: grpc}}
      ports: {{http: 8080}}
      ready: {{log: ready}}
      calls: []
load: {{rate_rps: 1, mix: [{{request: sends GET /}}]}}
"""


def test_spans_arrive_by_grpc_at_both_ports(tmp_path):
    if not (level := probe()["namespaced"]).available:
        pytest.skip(f"no namespaces here: {level.reason}")
    tmp_path.chmod(0o755)
    (tmp_path / "sends.py").write_text(PROGRAM)
    (tmp_path / "system.yaml").write_text(SYSTEM.format(python=sys.executable))
    try:
        system = load_system(str(tmp_path / "system.yaml"))
    except ConfigError as error:
        pytest.skip(str(error))
    with state_folder(), LocalSubstrate().deployed(system, "sends") as running:
        running.receiver.open_session(tmp_path / "s", "s")
        time.sleep(5)
        running.flush()
        running.receiver.close_session("s")
    traces = decode_spool(tmp_path / "s")["traces"]
    sent = traces.filter(traces["service_name"] == "sends")
    assert set(sent["span_name"]) == {"named", "built in"}
