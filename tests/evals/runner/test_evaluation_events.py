"""opsassay trace export otel: graded runs as spans and evaluation events, in a file and at a real OTLP receiver."""

from __future__ import annotations

import json
import shutil
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from google.protobuf.json_format import ParseDict
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from opsassay.cli import run
from opsassay.core.schema.run import Metric, MetricStatus
from opsassay.evals.runner.evaluation_events import EVENT, with_base64
from opsassay.evals.runner.store import RunStore, read_verdicts
from opsassay.telemetry.otlp.client import ReceiverControl, start_receiver
from opsassay.telemetry.otlp.seal import decode_spool

GOLDEN = Path(__file__).parents[1] / "golden" / "diagnosis_store"


@pytest.fixture
def store(tmp_path):
    """A graded store of one run of an agent and three of methods, which have no trace."""
    shutil.copytree(GOLDEN, tmp_path / "store")
    return tmp_path / "store"


@pytest.fixture
def verdict(store):
    (run_dir,) = (path.parent for path in RunStore(store).root.rglob("trace.jsonl"))
    (found,) = read_verdicts(run_dir)
    return found


@pytest.fixture
def sent_headers():
    """The URL of a server that takes everything, and the headers of each request that it took."""
    taken = []

    class Taking(BaseHTTPRequestHandler):
        def do_POST(self):
            taken.append(dict(self.headers))
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_):
            pass

    with HTTPServer(("127.0.0.1", 0), Taking) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}", taken
        server.shutdown()


def exported(store, tmp_path, *words):
    assert run(["trace", "export", "otel", str(store), "-o", str(tmp_path / "otel.jsonl"), *words]) == 0
    return [json.loads(line) for line in (tmp_path / "otel.jsonl").read_text().splitlines()]


def attributes(record):
    return {one.key: getattr(one.value, one.value.WhichOneof("value")) for one in record.attributes}


def test_each_metric_is_an_event_of_the_agents_span(store, tmp_path, verdict, capsys):
    spans, events = exported(store, tmp_path)
    assert capsys.readouterr().err.count("it has no trace.jsonl") == 3
    sent = ParseDict(with_base64(spans), ExportTraceServiceRequest()).resource_spans[0].scope_spans[0].spans
    records = ParseDict(with_base64(events), ExportLogsServiceRequest()).resource_logs[0].scope_logs[0].log_records
    (root,) = (span for span in sent if not span.parent_span_id)
    assert {(one.trace_id, one.span_id, one.event_name) for one in records} == {(root.trace_id, root.span_id, EVENT)}
    assert {one.time_unix_nano for one in records} == {root.end_time_unix_nano}
    found = {one["gen_ai.evaluation.name"]: one for one in map(attributes, records)}
    assert found.keys() == verdict.metrics.keys()
    for name, metric in verdict.metrics.items():
        assert found[name].get("gen_ai.evaluation.score.value") == metric.value
        assert found[name].get("gen_ai.evaluation.score.label") == (None if metric.value is not None else metric.status)
        assert found[name].get("gen_ai.evaluation.explanation", "") == metric.reason
        assert (found[name]["opsassay.run"], found[name]["opsassay.profile"]) == (verdict.run, verdict.profile)


def test_a_metric_that_could_not_be_graded_is_an_error(store, tmp_path, verdict):
    (path,) = (one for one in store.rglob("verdicts/*.json") if (one.parents[1] / "trace.jsonl").exists())
    failed = Metric(status=MetricStatus.FAILED, reason="the judge gave no answer")
    path.write_text(verdict.model_copy(update={"metrics": {"claims": failed}}).model_dump_json())
    _, events = exported(store, tmp_path)
    (record,) = ParseDict(with_base64(events), ExportLogsServiceRequest()).resource_logs[0].scope_logs[0].log_records
    found = attributes(record)
    assert (found["error.type"], found["gen_ai.evaluation.score.label"]) == ("failed_to_grade", "failed")
    assert "gen_ai.evaluation.score.value" not in found


def test_a_real_receiver_takes_spans_and_events(store, tmp_path, verdict):
    process = start_receiver(tmp_path / "state")
    try:
        control = ReceiverControl(tmp_path / "state")
        control.open_session(tmp_path / "session", "s")
        url = f"http://127.0.0.1:{control.port}/"
        assert run(["trace", "export", "otel", str(store), "--otlp", url, "--json"]) == 0
        control.close_session("s")
        process.stdin.close()  # which ends it
        process.wait(20)
    finally:
        process.kill()
        process.wait(20)
    tables = decode_spool(tmp_path / "session")
    root = tables["traces"].filter(tables["traces"]["parent_span_id"] == "")
    assert root.height == 1
    assert tables["logs"].height == len(verdict.metrics)
    assert set(tables["logs"]["span_id"]) == set(root["span_id"])
    assert set(tables["logs"]["trace_id"]) == set(root["trace_id"])
    assert set(tables["logs"]["message"]) == {EVENT}


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        ((), 2, "Nothing says where the runs go; give -o FILE, --otlp URL or both."),
        (("--otlp", "http://127.0.0.1:9"), 1, "No receiver takes telemetry at http://127.0.0.1:9/v1/traces"),
        (("--otlp", "nowhere"), 2, "is no URL of an OTLP/HTTP receiver"),
    ],
)
def test_what_cannot_be_sent_is_one_sentence(store, words, code, said, capsys):
    assert run(["trace", "export", "otel", str(store), *words]) == code
    assert said in capsys.readouterr().err.replace("\n", " ")


def test_a_store_without_graded_runs_says_why(store, capsys):
    for path in store.rglob("verdicts"):
        shutil.rmtree(path)
    assert run(["trace", "export", "otel", str(store), "--otlp", "http://127.0.0.1:9"]) == 2
    assert "holds no graded run with a trace" in capsys.readouterr().err


def test_headers_come_from_the_variable_that_all_exporters_read(store, tmp_path, monkeypatch, sent_headers):
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer%20x , x-team = ops")
    url, headers = sent_headers
    assert run(["trace", "export", "otel", str(store), "--otlp", url]) == 0
    assert [(one["Authorization"], one["X-Team"]) for one in headers] == [("Bearer x", "ops")] * 2
