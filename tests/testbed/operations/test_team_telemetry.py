"""What a trial sees of a project that sends its telemetry to its team's own backends, which our own APIs play here."""

from __future__ import annotations

import itertools
import threading
import time
import urllib.request

import pytest
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from opsassay.core.errors import OperationError
from opsassay.core.schema.incident import Window
from opsassay.core.schema.system import System
from opsassay.evals.remediation.trial.live_apis import live_apis
from opsassay.telemetry.backends.serving import api_urls, serving_on_port
from opsassay.telemetry.otlp.client import ReceiverControl, start_receiver
from opsassay.testbed.operations import arguments as args
from opsassay.testbed.operations import team_telemetry
from opsassay.testbed.operations.live import LiveAlerts, LiveTelemetry
from opsassay.testbed.operations.team_telemetry import TeamTelemetry
from opsassay.testbed.operations.telemetry_view import TelemetryView
from opsassay.testbed.recording.backends import LAG_S


@pytest.fixture
def receivers(tmp_path):
    """The receiver behind the team's backends, and that of OpsAssay."""
    processes = [start_receiver(tmp_path / name) for name in ("team", "own")]
    try:
        yield [ReceiverControl(tmp_path / name) for name in ("team", "own")]
    finally:
        for process in processes:
            process.stdin.close()
            process.kill()
            process.wait(20)


def send(receiver, service, number, *, failed=False, name="GET /"):
    """Send one server span and one line of *service*, as of now."""
    spans, logs, now = ExportTraceServiceRequest(), ExportLogsServiceRequest(), time.time_ns()
    for group in (spans.resource_spans.add(), logs.resource_logs.add()):
        group.resource.attributes.add(key="service.name").value.string_value = service
    span = spans.resource_spans[0].scope_spans.add().spans.add(name=name, kind=2)
    span.trace_id, span.span_id = (number + 1).to_bytes(16, "big"), (number + 1).to_bytes(8, "big")
    span.start_time_unix_nano, span.end_time_unix_nano = now - 5_000_000, now
    span.status.code = 2 if failed else 1
    line = logs.resource_logs[0].scope_logs.add().log_records.add(time_unix_nano=now, severity_text="ERROR")
    line.body.string_value = f"{service} says {number}"
    for signal, message in (("traces", spans), ("logs", logs)):
        url, headers = f"http://127.0.0.1:{receiver.port}/v1/{signal}", {"Content-Type": "application/x-protobuf"}
        urllib.request.urlopen(urllib.request.Request(url, message.SerializeToString(), headers), timeout=10).close()


def system_with(backends):
    services = {name: {"operations": {"GET /": {}}} for name in ("orders", "stock")}
    load = {"mix": [{"request": "orders GET /"}]}
    return System.model_validate({"system": "shop", "services": services, "load": load, "backends": backends})


def test_tools_and_alerts_have_what_the_backends_hold_and_nothing_twice(receivers, tmp_path, monkeypatch):
    monkeypatch.setattr(team_telemetry, "PATIENCE_S", 0.0)
    team, own = receivers
    began = time.monotonic()
    with LiveTelemetry(team, tmp_path / "there") as there:
        apis = live_apis(TelemetryView(there, None), None)
        with serving_on_port(apis) as url:
            named = {name: {"url": api_urls(url)[name]} for name in ("tempo", "loki")}
            system = system_with({**named, "limits": {"retry_s": 0}})
            stopped = threading.Event()

            def work():
                for number in itertools.count():
                    failed = time.monotonic() > began + 16
                    send(team, "orders", number, failed=failed)
                    send(own, "orders", 10**6 + number, name="ours")
                    send(own, "stock", 2 * 10**6 + number)
                    if stopped.wait(0.1):
                        return

            worker = threading.Thread(target=work)
            worker.start()
            try:
                with TeamTelemetry(own, tmp_path / "here", system) as telemetry:
                    usual = Window(start_ns=telemetry.since_ns, end_ns=telemetry.since_ns + 12 * 10**9)
                    alerts = LiveAlerts(telemetry, system.slo, usual)
                    view = TelemetryView(telemetry, alerts)
                    deadline = time.monotonic() + 90
                    while not any(one.service == "orders" for one in alerts.firing()[1]):
                        assert time.monotonic() < deadline, alerts.firing()
                        time.sleep(1)
                    assert telemetry.arrived_ns() <= time.time_ns() - LAG_S * 1e9
                    assert "orders" in view.answer_query(args.Alerts())
                    assert "orders says" in view.answer_query(args.SearchLogs(service="orders", since_s=60))
                    traces = telemetry.tables()["traces"]
                    names = set(traces.select("service_name", "span_name").iter_rows())
                    assert names == {("orders", "GET /"), ("stock", "GET /")}, "those of a backend alone"
                    assert traces["span_id"].is_unique().all()
                    backends_end(telemetry)
            finally:
                stopped.set()
                worker.join(20)


def backends_end(telemetry):
    """Let the backends be where nothing answers, and require that the telemetry says so."""
    telemetry.system = telemetry.system.model_copy(
        update={"backends": system_with({"loki": "http://127.0.0.1:1", "limits": {"retry_s": 0}}).backends}
    )
    deadline = time.monotonic() + 30
    while telemetry.failure is None and time.monotonic() < deadline:
        time.sleep(0.2)
    with pytest.raises(OperationError, match=r"127\.0\.0\.1:1"):
        telemetry.tables()
