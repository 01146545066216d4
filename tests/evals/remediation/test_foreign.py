"""Runs that were recorded elsewhere: real output of kubectl, answers of Prometheus, the records of the paper."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from opsassay.core.errors import DatapackError, UserError
from opsassay.evals.remediation.foreign.judging import ForeignRun
from opsassay.evals.remediation.foreign.watch import read_watch
from opsassay.scoring.verifiers import certify
from opsassay.testbed.substrates.kubernetes.api.object_server import ObjectServer
from opsassay.testbed.substrates.kubernetes.api.small_api import served, write_kubeconfig
from scoring.verifiers import listing
from scoring.verifiers.made import recording, scenario
from scoring.verifiers.test_listing import paper_timelines

DAY = "2026-11-29T00:"


def pod(name, at, *, ready=True, service="web", node="n1", leaving=None):
    """Return a pod of a replica set that nobody watched; *at* is when its condition changed, min:sec."""
    meta = {
        "name": name, "namespace": "shop", "uid": name, "creationTimestamp": f"{DAY}00:00Z",
        "labels": {"pod-template-hash": "5d9"},
        "ownerReferences": [{"kind": "ReplicaSet", "name": f"{service}-5d9", "controller": True}],
    }  # fmt: skip
    if leaving:
        meta["deletionTimestamp"] = f"{DAY}{leaving}Z"
    condition = {"type": "Ready", "status": str(ready), "lastTransitionTime": f"{DAY}{at}Z"}
    return {"kind": "Pod", "apiVersion": "v1", "metadata": meta,
            "spec": {"nodeName": node, "containers": [{"name": "c", "image": "shop/web:1"}]},
            "status": {"phase": "Running", "conditions": [condition]}}  # fmt: skip


def endpoints(count, at):
    meta = {"name": "web", "namespace": "shop", "creationTimestamp": f"{DAY}00:00Z",
            "annotations": {"endpoints.kubernetes.io/last-change-trigger-time": f"{DAY}{at}Z"}}  # fmt: skip
    subsets = [{"addresses": [{"ip": f"10.0.0.{n}"} for n in range(count)]}] if count else []
    return {"kind": "Endpoints", "apiVersion": "v1", "metadata": meta, "subsets": subsets}


def log(folder, *events, name="pods.json"):
    """Write *events* as kubectl does: one indented object after the other."""
    path = folder / name
    path.write_text("\n".join(json.dumps(one, indent=4) for one in events) + "\n")
    return path


def answer(folder, metric, samples, **labels):
    path = folder / f"{metric}.json"
    row = {"metric": {"__name__": metric, **labels}, "values": [[at, str(value)] for at, value in samples]}
    path.write_text(json.dumps({"status": "success", "data": {"resultType": "matrix", "result": [row]}}))
    return path


def seconds(text):
    from opsassay.evals.remediation.foreign.instants import instant_ns

    return instant_ns(f"{DAY}{text}Z") // 10**9


def phases(fault, start, end):
    named = zip(("triggered", "agent_started", "agent_ended"), (fault, start, end), strict=True)
    return [(name, seconds(at) * 10**9) for name, at in named]


def outage(folder, *, mended=True):
    """Return the watch of three pods of which two fail at 02:00 and one is replaced at 03:00, ready at 03:20."""
    first = [{"type": "ADDED", "object": pod(f"web-5d9-{n}", "00:30")} for n in "abc"]
    broken = [{"type": "MODIFIED", "object": pod(f"web-5d9-{n}", "02:00", ready=False)} for n in "bc"]
    gone = {"type": "DELETED", "object": pod("web-5d9-b", "02:00", ready=False, leaving="03:00")}
    new = {"type": "ADDED", "object": pod("web-5d9-d", "03:01", ready=False)}
    well = [{"type": "MODIFIED", "object": pod(n, "03:20")} for n in ("web-5d9-d", "web-5d9-c")] if mended else []
    return log(folder, *first, *broken, gone, new, *well)


def judged(folder, *, mended=True, ranges=(), **verification):
    committed = scenario(cadence_s=1, probe_every_s=None, no_regression={}, blast_radius={},
                         settings={}, cause={}, users={}, **verification)  # fmt: skip
    last = answer(folder, "up", [(seconds("01:30"), 1), (seconds("05:00"), 1)], job="apiserver")
    run = ForeignRun(committed, watches=[outage(folder, mended=mended)], ranges=[last, *ranges],
                     phases=phases("01:50", "02:10", "03:30"))  # fmt: skip
    return run, {one.predicate: one for one in run.judge_record().judgements}


def test_a_watch_is_judged_as_a_run_of_ours_and_what_it_lacks_is_named(tmp_path):
    run, found = judged(tmp_path)
    assert [found[name].passed for name in ("v_outcome", "v_temporal", "v_depth", "v_no_regression")] == [True] * 4
    assert found["v_temporal"].value == pytest.approx(1 / 3)  # the fault had left no more
    assert found["certificate"].passed
    lacking = {name: one.reason for name, one in found.items() if one.status == "not_applicable"}
    assert lacking.keys() == {"v_probe", "v_blast_radius", "v_settings", "v_cause", "v_users"}
    assert lacking["v_users"] == "the record lacks counts of users' requests"
    entities = {one.id: one for tick in run.recording.timeline.ticks for one in tick.entities}
    assert {one.service for one in entities.values()} == {"web"}, "the deployment is known by the pod's own label"
    assert [name for tick in run.recording.timeline.ticks for name in tick.gone] == ["web-5d9-b"]


def test_a_repair_that_did_not_come_fails_by_the_same_predicates(tmp_path):
    _, found = judged(tmp_path, mended=False)
    assert [found[name].failed for name in ("v_outcome", "v_depth", "certificate")] == [True] * 3


def test_depth_three_comes_from_prometheus(tmp_path):
    well = [(seconds("01:00") + 10 * n, 1) for n in range(25)]
    success = answer(tmp_path, "probe_success", [*well[:-1], (well[-1][0], 0)], service="web")
    took = answer(tmp_path, "probe_duration_seconds", [(at, 0.02) for at, _ in well], service="web")
    _, found = judged(tmp_path, ranges=[success, took], committed_depth="D3", protected_services=["web"])
    assert found["v_depth"].failed
    assert "no answer from web" in found["v_depth"].reason
    answer(tmp_path, "probe_success", well, service="web")
    run, found = judged(tmp_path, ranges=[success, took], committed_depth="D3", protected_services=["web"])
    assert found["v_depth"].passed
    assert {probe.latency_s for probe in run.recording.timeline.ticks[-1].probes} <= {0.02}


def test_alerts_of_prometheus_have_to_clear(tmp_path):
    fires = [(seconds("02:00") + 5 * n, 1) for n in range(15)]
    alerts = answer(tmp_path, "ALERTS", fires, alertname="replicas_missing", alertstate="firing", service="web")
    steady = answer(tmp_path, "probe_success", [(seconds("01:40") + 5 * n, 1) for n in range(40)], service="web")
    rule = {"triggering": [{"service": "web", "signal": "replicas_missing"}], "hold_s": 10}
    assert judged(tmp_path, ranges=[alerts, steady], alerts=rule)[1]["alerts_cleared"].passed
    answer(
        tmp_path,
        "ALERTS",
        [(seconds("02:00") + 5 * n, 1) for n in range(37)],
        alertname="replicas_missing",
        service="web",
    )
    assert judged(tmp_path, ranges=[alerts, steady], alerts=rule)[1]["alerts_cleared"].failed


def test_endpoints_are_depth_two(tmp_path):
    watches = [outage(tmp_path), log(tmp_path, endpoints(0, "02:00"), name="endpoints.json")]
    run = ForeignRun(scenario(committed_depth="D2", protected_services=["web"]), watches=watches)
    assert {one.predicate: one for one in run.judge_record().judgements}["v_depth"].failed
    watches[1] = log(tmp_path, endpoints(0, "02:00"), endpoints(2, "03:19"), name="endpoints.json")
    run = ForeignRun(scenario(committed_depth="D2", protected_services=["web"]), watches=watches)
    assert {one.predicate: one for one in run.judge_record().judgements}["v_depth"].passed


class Watched(ObjectServer):
    """An API server that ends a watch after what happened in it."""

    def answer(self, method, path, query):
        if query.get("watch") in ("1", "true"):
            return 200, [{"type": "MODIFIED", "object": pod("web-5d9-a", "02:00", ready=False)},
                         {"type": "DELETED", "object": pod("web-5d9-a", "02:00", ready=False)}]  # fmt: skip
        return super().answer(method, path, query)


@pytest.mark.parametrize("flags", [("-o", "json"), ("-o", "json", "--output-watch-events")])
def test_what_kubectl_really_writes_is_read(tmp_path, flags):
    with served(Watched()) as server:
        for name in "ab":
            server.keep(("Pod", "shop", f"web-5d9-{name}"), pod(f"web-5d9-{name}", "00:30"))
        config = write_kubeconfig(tmp_path / "config", server.url)
        command = [
            "kubectl",
            "--kubeconfig",
            str(config or tmp_path / "config"),
            "-n",
            "shop",
            "get",
            "pods",
            "-w",
            *flags,
        ]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    path = tmp_path / "watch.json"
    path.write_text(done.stdout)
    events = read_watch(path)
    assert [event.key[2] for event in events] == ["web-5d9-a", "web-5d9-b", "web-5d9-a", "web-5d9-a"], done.stderr
    assert [event.time_ns // 10**9 for event in events][1:3] == [seconds("00:30"), seconds("02:00")]
    assert (events[-1].found is None) == ("--output-watch-events" in flags)


@settings(max_examples=60, deadline=None)
@given(made=paper_timelines(), depth=st.sampled_from(["D1", "D2", "D3", "D4"]))
def test_records_of_the_paper_are_judged_as_its_listing_judges_them(made, depth, tmp_path_factory):
    told = listing.records(made)
    path = tmp_path_factory.mktemp("records") / "run.jsonl"
    path.write_text("".join(json.dumps(record) + "\n" for record in told))
    found = {one.predicate: one for one in ForeignRun(scenario(committed_depth=depth, profile="paper", cadence_s=5),
                                                      records=path).judge_record().judgements}  # fmt: skip
    assert found["v_outcome"].passed == listing.score_v_outcome(told[-1])
    assert found["v_temporal"].passed == listing.score_v_p1(told)
    ours = certify(recording(made), scenario(committed_depth=depth, profile="paper", cadence_s=5, probe_every_s=20))
    if depth != "D3" or made.ticks[-1].probes:
        assert found["v_depth"].passed == listing.score_v_p2(told[-1], depth) == ours.judgement("v_depth").passed


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('{"kind": "Pod"}\n', "pods.json:1: no object of Kubernetes (no 'metadata')"),
        ('{"kind": "Pod",\n "metadata": {"name": "a"}}\n\n{"kind": 3}\n', "pods.json:1: no object of Kubernetes"),
        ('\n\n{"a": }\n{"kind": "Pod"}\n', "pods.json:3: no JSON"),
        ('{"type": "ERROR", "object": {"kind": "Status", "message": "too old"}}', "the watch failed: too old"),
        ("[" * 100_000, "pods.json:1: no JSON"),
        ("", "holds no object"),
    ],
)
def test_a_bad_line_of_a_watch_is_named(tmp_path, text, says):
    path = tmp_path / "pods.json"
    path.write_text(text)
    with pytest.raises(DatapackError) as raised:
        read_watch(path)
    assert says in str(raised.value)


def test_a_torn_last_object_is_dropped(tmp_path):
    path = outage(tmp_path)
    path.write_text(path.read_text() + '{\n    "kind": "Po')
    assert len(read_watch(path)) == 9


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("{}", "has none of v1"),
        ('{"v1": {}}', "'availability' is missing"),
        ('{"v1": {"availability": 1.5}}', "no share from 0 to 1"),
        ("[1]", "no record of a tick"),
        ("{", "not a line of JSON"),
    ],
)
def test_a_bad_record_is_named_by_its_line(tmp_path, line, says):
    path = tmp_path / "run.jsonl"
    path.write_text('{"v1": {"availability": 1}, "v4": {"critical_failing": []}}\n' + line + "\n")
    with pytest.raises(DatapackError, match=r"run\.jsonl:2") as raised:
        ForeignRun(scenario(), records=path)
    assert says in str(raised.value)


def test_a_bad_series_is_named_by_its_number(tmp_path):
    path = answer(tmp_path, "up", [(1, "x")])
    with pytest.raises(DatapackError, match="series 1 is no series"):
        ForeignRun(scenario(), ranges=[path])
    path.write_text('{"data": {"resultType": "vector", "result": []}}')
    with pytest.raises(DatapackError, match="no answer of query_range"):
        ForeignRun(scenario(), ranges=[path])


def test_instants_that_make_no_run_are_refused(tmp_path):
    with pytest.raises(UserError, match="not in order"):
        ForeignRun(scenario(), watches=[outage(tmp_path)], phases=phases("03:00", "02:00", "03:30"))
    far = answer(tmp_path, "up", [(0, 1), (4e9, 1)], job="etcd")
    with pytest.raises(UserError, match="cut it to the run"):
        ForeignRun(scenario(), ranges=[Path(far)])
