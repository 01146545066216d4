"""What is recorded and what agents do, sent to another receiver while it happens; the receivers are real."""

from __future__ import annotations

import json
import shutil
import time
import urllib.request
from contextlib import contextmanager
from pathlib import Path

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from opsassay.cli import run
from opsassay.core.errors import UserError
from opsassay.core.schema.run import RunStatus
from opsassay.core.schema.run_folder import LIVE
from opsassay.core.schema.trajectory import TraceStep
from opsassay.evals.runner.gateway import ConversationTrace, gateway
from opsassay.evals.runner.ranking import run_id
from opsassay.evals.runner.run_push import RunPush
from opsassay.evals.runner.store import RunStore, read_run
from opsassay.solvers.agents.limits import Limits, Meter
from opsassay.solvers.agents.models.base import Message, Reply
from opsassay.solvers.agents.record import TRACE, AgentRecorder
from opsassay.telemetry.otlp.client import ReceiverControl, start_receiver
from opsassay.telemetry.otlp.forwarding import Forwarder
from opsassay.telemetry.otlp.requests import parse
from opsassay.telemetry.otlp.seal import decode_spool
from opsassay.telemetry.otlp.spool import Kind, SpoolFile, frame_header, read_frames, spool_path
from telemetry.packs import make_tree

GOLDEN = Path(__file__).parents[1] / "golden" / "diagnosis_store"


@contextmanager
def receiver(folder):
    """Run a receiver with an open session in *folder*; yields its control and its URL."""
    process = start_receiver(folder / "state")
    try:
        control = ReceiverControl(folder / "state")
        control.open_session(folder / "session", "s")
        yield control, f"http://127.0.0.1:{control.port}"
        process.stdin.close()
        process.wait(20)
    finally:
        process.kill()
        process.wait(20)


def sent_spans(number):
    request = ExportTraceServiceRequest()
    scope = request.resource_spans.add().scope_spans.add()
    now = time.time_ns()
    scope.spans.add(trace_id=bytes([number] * 16), span_id=bytes([number] * 8), name=f"s{number}",
                    start_time_unix_nano=now, end_time_unix_nano=now + 1)  # fmt: skip
    return request.SerializeToString()


def posted(url, body):
    request = urllib.request.Request(f"{url}/v1/traces", body, {"Content-Type": "application/x-protobuf"})
    urllib.request.urlopen(request, timeout=9).close()


def bodies(folder, signal="traces"):
    return [frame.payload for frame in read_frames(spool_path(folder, signal)) if frame.kind != Kind.OPENED]


def awaited(condition, timeout_s=20):
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.1)


@pytest.mark.slow
def test_what_a_session_accepts_goes_on_byte_for_byte_while_it_is_recorded(tmp_path):
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    with receiver(ours) as (control, here), receiver(theirs) as (_, there):
        with Forwarder(ours / "session", there, lambda: control.refresh("s")) as forwarder:
            posted(here, sent_spans(1))
            awaited(lambda: len(bodies(theirs / "session")) == 1)  # the session is still open
            posted(here, sent_spans(2))
        assert (forwarder.sender.sent, forwarder.sender.refused, forwarder.sender.notes()) == (2, 0, ())
        assert bodies(theirs / "session") == bodies(ours / "session")
        assert len(parse("traces", bodies(theirs / "session")[0]).resource_spans) == 1


@pytest.mark.slow
def test_a_receiver_that_is_not_there_is_noted_and_keeps_nobody_waiting(tmp_path, monkeypatch):
    monkeypatch.setattr("opsassay.telemetry.otlp.forwarding.LAST_S", 0.5)
    nowhere = "http://127.0.0.1:9"
    with receiver(tmp_path) as (_, here), Forwarder(tmp_path / "session", nowhere) as forwarder:
        posted(here, sent_spans(1))
        awaited(lambda: forwarder.sender.problem is not None)
    assert forwarder.sender.sent == 0
    assert forwarder.sender.notes()[0].startswith(
        "not all of the telemetry was sent on: No receiver takes telemetry at http"
    )
    with pytest.raises(UserError, match="is no URL of an OTLP/HTTP receiver"):
        Forwarder(tmp_path, "localhost:4318")


def begun(store, golden):
    return store.begin(golden.model_copy(update={"cell": "ab" * 8, "status": RunStatus.RUNNING, "attempt": 1}))


@pytest.mark.slow
def test_a_step_is_there_before_its_run_has_ended(tmp_path):
    golden = next(
        run for path in RunStore(GOLDEN).runs() if (path / "trace.jsonl").exists() for run in (read_run(path),)
    )
    store, problems = RunStore(tmp_path / "store"), []
    store.root.mkdir()
    with receiver(tmp_path) as (_, url):
        with RunPush(store, url, problems.append):
            folder, running = begun(store, golden)
            recorder = AgentRecorder(folder)
            said = [Message(role="user", content="what is it?")]
            recorder.step("rca", said, Reply(text="one"), model="m", started_ns=1, ended_ns=2)
            awaited(lambda: len(bodies(tmp_path / "session")) == 1)
            recorder.step("rca", said, Reply(text="two"), model="m", started_ns=3, ended_ns=4)
            store.end(folder, running.model_copy(update={"status": golden.status}))
        assert problems == []
    spans = decode_spool(tmp_path / "session")["traces"]
    names = spans["span_name"].to_list()
    assert names[:2] == ["chat m", "chat m"]
    assert names[2].startswith("invoke_agent")
    assert spans["trace_id"].n_unique() == 1
    root = spans.row(2, named=True)["span_id"]
    assert spans["parent_span_id"].to_list() == [root, root, ""]
    assert run_id(running) == f"{'ab' * 8}/1"


def test_a_trace_that_is_written_anew_at_the_end_is_sent_once_and_the_telemetry_of_the_run_whole(tmp_path):
    golden = next(read_run(path) for path in RunStore(GOLDEN).runs())
    store, problems = RunStore(tmp_path / "store"), []
    store.root.mkdir()
    with receiver(tmp_path) as (_, url):
        with RunPush(store, url, problems.append):
            folder, running = begun(store, golden)
            (folder / LIVE).mkdir()
            spool = SpoolFile(spool_path(folder / LIVE, "logs"))
            recorder = AgentRecorder(folder)
            said = [Message(role="user", content="what is it?")]
            recorder.step("agent", said, Reply(text="one"), model="m", started_ns=1, ended_ns=2)
            spool.append(frame_header(1, Kind.PROTOBUF, b"\n\0"), b"\n\0")
            awaited(lambda: len(bodies(tmp_path / "session")) == len(bodies(tmp_path / "session", "logs")) == 1)
            recorder.step("agent", said, Reply(text="two"), model="m", started_ns=3, ended_ns=4)
            anew = (folder / TRACE).with_suffix(".new")
            anew.write_text((folder / TRACE).read_text())
            spool.append(frame_header(2, Kind.PROTOBUF, b"\n\0"), b"\n\0")
            shutil.rmtree(folder / LIVE)  # as with the end of the system
            anew.replace(folder / TRACE)
            store.end(folder, running.model_copy(update={"status": golden.status}))
        assert problems == []
        assert len(bodies(tmp_path / "session", "logs")) == 2
        assert len(bodies(tmp_path / "session")) == 3  # two steps and the root
    spans = decode_spool(tmp_path / "session")["traces"]
    assert spans["span_name"].to_list()[:2] == ["chat m", "chat m"]
    assert spans.filter(spans["parent_span_id"] != "").height == 2


def test_a_step_of_an_external_agent_is_written_down_when_the_next_has_ended(tmp_path):
    (tmp_path / "model.yaml").write_text("rules:\n  - reply: one\n")
    meter = Meter(Limits())
    with gateway(f"scripted:{tmp_path}/model.yaml", tmp_path, meter) as gate, ConversationTrace(gate, tmp_path / TRACE):
        for text in ("first", "second"):
            asked = {"model": "m", "messages": [{"role": "user", "content": text}]}
            headers = {"Content-Type": "application/json", "Authorization": f"Bearer {gate.token}"}
            request = urllib.request.Request(f"{gate.url}/v1/chat/completions", json.dumps(asked).encode(), headers)
            urllib.request.urlopen(request, timeout=9).close()
        awaited((tmp_path / TRACE).exists)
        steps = gate.trace().steps
    assert [TraceStep.model_validate_json(line) for line in (tmp_path / TRACE).read_text().splitlines()] == [steps[0]]
    assert len(steps) == 2


@pytest.mark.slow
def test_a_graded_run_has_its_events_on_the_span_that_was_sent(tmp_path, capsys):
    tree = make_tree(tmp_path / "tree", count=1)
    (tmp_path / "model.yaml").write_text('rules:\n  - reply: \'{"root_causes": [], "propagation": []}\'\n')
    with receiver(tmp_path) as (_, url):
        words = [
            "run",
            str(tree.root),
            "-a",
            "rca",
            "--model",
            f"scripted:{tmp_path}/model.yaml",
            "--otlp",
            url,
            "--json",
        ]
        assert run(words) == 0, capsys.readouterr().err
        assert json.loads(capsys.readouterr().out)["items"][0]["status"] == "done"
    tables = decode_spool(tmp_path / "session")
    roots = tables["traces"].filter(tables["traces"]["parent_span_id"] == "")
    assert roots.height == 1
    assert tables["traces"].height > 1
    assert set(tables["logs"]["span_id"]) == set(roots["span_id"])
    assert set(tables["logs"]["message"]) == {"gen_ai.evaluation.result"}


def test_no_url_is_refused_before_anything_runs(tmp_path, capsys):
    tree = make_tree(tmp_path / "tree", count=1)
    assert run(["run", str(tree.root), "-a", "alert-count", "--otlp", "nowhere"]) == 2
    assert "is no URL of an OTLP/HTTP receiver" in capsys.readouterr().err
    assert not (tree.root / "runs").exists()
