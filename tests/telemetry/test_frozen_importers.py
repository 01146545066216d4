"""Importers of frozen incidents, ITBench-Lite and Cloud-OpsBench, on small files in their public layouts."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import polars as pl
import pytest

from opsassay.core.schema.incident import Label
from opsassay.telemetry.importers import IMPORTERS
from opsassay.telemetry.importers.cases import iso_ns
from opsassay.telemetry.importers.itbench import V1, ground_truth, read_spec
from opsassay.telemetry.importers.itbench_lite import _services
from opsassay.telemetry.tree import Tree


def ns(text):
    return pl.select(iso_ns(pl.lit(text))).item()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2026-05-18T16:38:49.723465773+08:00", 1779093529_723465773),
        ("2026-05-18 08:38:49.5", 1779093529_500000000),
        ("2026-05-18 08:38:49.723465773 +0000 UTC", 1779093529_723465773),  # as Go prints a time
        ("2026-05-18T04:08:49-04:30", 1779093529_000000000),
        ("2026-05-18T08:38:49Z", 1779093529_000000000),
        ("yesterday", None),
        ("", None),
    ],
)
def test_times_are_read_to_the_nanosecond_with_their_offset(text, expected):
    assert ns(text) == expected


# ITBench-Lite

GROUND_TRUTH = """
groups:
- {id: otel-demo-frontend-delay-1, kind: NetworkChaos, filter: [otel-demo-frontend-delay], root_cause: true}
- {id: frontend-pod-1, kind: Pod, namespace: otel-demo, filter: ['frontend-.*']}
- {id: proxy-service-1, kind: Service, namespace: otel-demo, filter: ['frontend-proxy\\b']}
aliases: [[frontend-pod-1]]
propagations:
- {source: otel-demo-frontend-delay-1, target: frontend-pod-1, condition: c, effect: e}
- {source: frontend-pod-1, target: proxy-service-1, condition: c, effect: e}
alerts: [{id: RequestLatency, group_id: frontend-pod-1}]
fault: [{entity: {name: frontend, kind: Pod}, category: Change, condition: slow, fault_mechanism: custom}]
"""
SPANS = ["Timestamp", "TraceId", "SpanId", "ParentSpanId", "TraceState", "SpanName", "SpanKind", "ServiceName",
         "ResourceAttributes", "ScopeName", "SpanAttributes", "Duration", "StatusCode", "StatusMessage"]  # fmt: skip
LOGS = ["Timestamp", "TimestampTime", "TraceId", "SpanId", "TraceFlags", "SeverityText", "SeverityNumber", "ServiceName",
        "Body", "ResourceAttributes", "LogAttributes"]  # fmt: skip
POD = "frontend-6d4cf56db6-x2x4z"
PYTHON = f"{{'k8s.pod.name': '{POD}', 'k8s.namespace.name': 'otel-demo', 'note': \"it's\"}}"
GO = f"map[k8s.namespace.name:otel-demo k8s.pod.name:{POD}]"


def tsv(path, header, rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, delimiter="\t")
        writer.writerows([header, *rows])


def alert(name, at, **labels):
    return {
        "activeAt": at,
        "state": "firing",
        "value": "1e+00",
        "labels": {"alertname": name, **labels},
        "annotations": {},
    }


def scenario(folder, truth=GROUND_TRUTH, attributes=PYTHON):
    folder.mkdir(parents=True)
    (folder / "ground_truth.yaml").write_text(truth)
    http = "{'http.request.method': 'GET', 'http.response.status_code': '503', 'url': 'http://x?a=b'}"
    made = (("Server", "frontend", "Unset"), ("SPAN_KIND_CLIENT", "frontend-proxy", "STATUS_CODE_ERROR"))
    spans = [
        (
            f"2025-12-15 17:{minute}:00.00000000{n}",
            "t",
            f"s{minute}{n}",
            "",
            "",
            "GET /",
            kind,
            service,
            attributes,
            "",
            http,
            "1500000",
            status,
            "",
        )
        for minute in (10, 20, 40)
        for n, (kind, service, status) in enumerate(made)
    ]  # fmt: skip
    tsv(folder / "otel_traces_raw.tsv", SPANS, spans)
    body = 'GET "/cart"\tfailed\nsecond line'
    logs = [
        ("2025-12-15 17:12:00.5", "", "t", "s", "0", "WARN", "13", "frontend", body, attributes, "{}"),
        ("2025-12-15 17:41:00", "", "", "", "0", "", "0", "frontend-proxy", "x", "{}", "{}"),
    ]
    tsv(folder / "otel_logs_raw.tsv", LOGS, logs)
    pod = ["metric_name", "timestamp", "value", "pod_name", "namespace", "tags"]
    tags = "{'container': 'app', 'pod': 'x'}"
    rows = [("container_memory_usage_bytes", f"2025-12-15 17:{m}:30", str(m), POD, "otel-demo", tags) for m in (15, 45)]
    rows.append(("container_cpu_cfs_periods_total", "2025-12-15 17:16:00", "9", POD, "otel-demo", tags))
    tsv(folder / "metrics" / f"pod_{POD}_raw.tsv", pod, rows)
    service = [
        "metric_name",
        "timestamp",
        "value",
        "service_name",
        "namespace",
        "bucket_le",
        "tags",
        "metric_type",
        "status_code",
    ]
    rows = [
        (
            "traces_span_metrics_duration_milliseconds_bucket",
            "2025-12-15 17:16:00",
            "9",
            "frontend",
            "otel-demo",
            "5",
            "{}",
            "",
            "",
        ),
        (
            "traces_span_metrics_calls_total",
            "2025-12-15 17:46:00",
            "3",
            "frontend",
            "otel-demo",
            "",
            "{}",
            "",
            "STATUS_CODE_ERROR",
        ),
    ]
    tsv(folder / "metrics" / "service_frontend_raw.tsv", service, rows)
    alerts = [
        alert("Watchdog", "2025-12-09T02:00:00Z", severity="none"),
        alert("RequestLatency", "2025-12-14T17:25:19Z", service_name="frontend", severity="critical"),  # before it all
        alert("RequestErrorRate", "2025-12-15T17:35:19Z", service_name="frontend-proxy", severity="warning"),
        alert("RequestLatency", "2025-12-15T17:30:19.5Z", service_name="frontend", severity="warning"),
        alert("TargetDown", "2025-12-15T17:11:00Z", severity="none", service_name="otel-collector"),
    ]
    (folder / "alerts").mkdir()
    for number in (1, 2):
        answer = {"status": "success", "data": {"alerts": alerts}}
        (folder / "alerts" / f"alerts_at_2025-12-15T17-3{number}-49.526451.json").write_text(json.dumps(answer))
    return folder


@pytest.mark.parametrize(
    "attributes", [PYTHON, GO, json.dumps({"k8s.pod.name": POD, "k8s.namespace.name": "otel-demo"})]
)
def test_itbench_lite_brings_telemetry_and_roots_that_are_named_in_it(tmp_path, attributes):
    scenario(tmp_path / "in" / "snapshots" / "sre" / "v0.2" / "Scenario-7", attributes=attributes)
    report = IMPORTERS.load("itbench-lite")(tmp_path / "in", tmp_path / "out")
    ((name, id_),) = report.imported
    assert (name, report.failed) == ("Scenario-7", ())
    tree = Tree(tmp_path / "out")
    pack, truth = tree.datapack(id_), tree.truth(id_)
    assert pack.incident.normal.end_ns == pack.incident.abnormal.start_ns == ns("2025-12-15T17:30:19.5Z")
    assert pack.incident.normal.start_ns == ns("2025-12-15 17:10:00")
    assert pack.incident.description == "Alerts: RequestLatency on frontend, RequestErrorRate on frontend-proxy"
    spans = pl.concat([pack.scan(period, "traces").collect() for period in ("normal", "abnormal")])
    assert spans.height == 6
    first, second = spans.filter(pl.col("span_id").str.starts_with("s10")).sort("span_id").to_dicts()
    assert (first["duration"], first["attr.span_kind"], first["attr.status_code"]) == (1_500_000, "Server", "Unset")
    assert (first["attr.http.response.status_code"], first["attr.http.request.method"]) == (503, "GET")
    assert (first["attr.k8s.pod.name"], first["attr.k8s.namespace.name"]) == (POD, "otel-demo")
    assert (second["attr.span_kind"], second["attr.status_code"], second["service_name"]) == (
        "Client",
        "Error",
        "frontend-proxy",
    )
    (log,) = pack.scan("normal", "logs").collect().to_dicts()
    assert (log["message"], log["level"], log["trace_id"]) == ('GET "/cart"\tfailed\nsecond line', "WARN", "t")
    assert pack.scan("abnormal", "logs").collect()["level"].to_list() == ["INFO"]
    (reading,) = pack.scan("normal", "metrics").collect().to_dicts()
    assert (reading["metric"], reading["value"], reading["service_name"]) == (
        "container_memory_usage_bytes",
        15.0,
        "frontend",
    )
    assert (reading["attr.k8s.pod.name"], reading["attr.k8s.container.name"]) == (POD, "app")
    assert pack.scan("abnormal", "metrics_sum").collect()["metric"].to_list() == ["traces_span_metrics_calls_total"]
    assert (truth.faults, [root.service for root in truth.roots]) == ((), [("frontend",)])
    assert truth.notes[:2] == ("itbench-lite: Scenario-7", "itbench-lite: custom, Change, frontend, slow")
    assert truth.notes[2:] == ("source: Scenario-7",)
    annotation = tree.annotation(id_)
    assert annotation.label is Label.ATTRIBUTED
    assert ("frontend-pod-1", "proxy-service-1") in {(e.source, e.target) for e in annotation.graph.edges}
    notes = {note for _, note in report.notes}
    assert (
        "the root 'otel-demo-frontend-delay-1' has no telemetry of its own: it is named by what it reaches first"
        in notes
    )
    assert "1 samples of histogram buckets are left out" in notes
    again = IMPORTERS.load("itbench-lite")(tmp_path / "in", tmp_path / "out")
    assert again.skipped == (("Scenario-7", id_),)


def cart(image, at="x", replicas=1):
    containers = [{"name": "app", "image": image}, {"name": "proxy", "image": "envoy:1"}]
    return {
        "kind": "Deployment",
        "metadata": {"name": "cart", "namespace": "otel-demo", "resourceVersion": at},
        "spec": {"replicas": replicas, "template": {"spec": {"containers": containers}}},
        "status": {"readyReplicas": at},
    }


def test_itbench_lite_brings_events_and_the_history_of_objects_as_logs(tmp_path):
    folder = scenario(tmp_path / "in" / "Scenario-7")
    event = {"type": "Warning", "reason": "BackOff", "message": "back-off", "lastTimestamp": "2025-12-15T17:40:00Z"}
    event |= {"kind": "Event", "involvedObject": {"kind": "Pod", "name": POD, "namespace": "otel-demo"}}
    rows = [
        ("2025-12-15 17:41:00", "s", json.dumps({"type": "ADDED", "object": event})),
        ("2025-12-15 17:41:00", "s", "{"),
    ]
    tsv(folder / "k8s_events_raw.tsv", ["Timestamp", "ServiceName", "Body"], rows)
    seen = [("17:45:00", cart("cart:2", "3")), ("17:10:00", cart("cart:1")), ("17:20:00", cart("cart:1", "2"))]
    rows = [(f"2025-12-15 {at}", json.dumps({"object": body})) for at, body in seen]
    tsv(folder / "k8s_objects_raw.tsv", ["Timestamp", "Body"], rows)
    ((_, id_),) = IMPORTERS.load("itbench-lite")(tmp_path / "in", tmp_path / "out").imported
    pack = Tree(tmp_path / "out").datapack(id_)
    logs = pl.concat([pack.scan(period, "logs").collect() for period in ("normal", "abnormal")])
    told = logs.filter(pl.col("message").str.contains("^(event|object|change) ")).sort("time").to_dicts()
    assert [(one["service_name"], one["level"]) for one in told] == [
        ("cart", "INFO"),
        ("frontend", "WARN"),
        ("cart", "INFO"),
    ]
    first, happened, changed = told
    assert 'spec.template.spec.containers[app].image="cart:1"' in first["message"]
    assert "status" not in first["message"]
    assert happened["message"] == f"event Pod/{POD}: BackOff: back-off"
    assert (happened["attr.k8s.pod.name"], happened["attr.k8s.namespace.name"]) == (POD, "otel-demo")
    assert happened["time"].isoformat().startswith("2025-12-15T17:40:00")
    path = "spec.template.spec.containers[app].image"
    assert changed["message"] == f'change Deployment/cart: {path} was "cart:1", is "cart:2"'


def test_itbench_lite_reads_the_processed_form_of_events(tmp_path):
    folder = scenario(tmp_path / "in" / "Scenario-7")
    header = ["object_kind", "object_name", "namespace", "reason", "message", "event_time", "event_kind"]
    tsv(
        folder / "k8s_events_raw.tsv",
        header,
        [("Pod", POD, "otel-demo", "Killing", "stop", "2025-12-15T17:40:00Z", "Normal")],
    )
    ((_, id_),) = IMPORTERS.load("itbench-lite")(tmp_path / "in", tmp_path / "out").imported
    logs = Tree(tmp_path / "out").datapack(id_).scan("abnormal", "logs").collect()
    assert f"event Pod/{POD}: Killing: stop" in logs["message"].to_list()
    other = scenario(tmp_path / "other" / "Scenario-8")
    tsv(other / "k8s_events_raw.tsv", ["a"], [("b",)])
    report = IMPORTERS.load("itbench-lite")(tmp_path / "other", tmp_path / "out2")
    assert "neither a column Body nor object_name" in dict(report.failed)["Scenario-8"]


def test_itbench_lite_says_what_is_missing_and_keeps_the_truth(tmp_path):
    quiet = scenario(tmp_path / "in" / "Scenario-1")
    for path in quiet.glob("alerts/*"):
        path.unlink()
    bare = tmp_path / "in" / "Scenario-2"
    bare.mkdir()
    (bare / "ground_truth.yaml").write_text(f"spec:\n{GROUND_TRUTH}".replace("\n", "\n  "))
    rootless = scenario(tmp_path / "in" / "Scenario-3", GROUND_TRUTH.replace(", root_cause: true", ""))
    (rootless / "otel_logs_raw.tsv").unlink()
    torn = scenario(tmp_path / "in" / "Scenario-4")
    tsv(torn / "otel_traces_raw.tsv", ["Timestamp", "TraceId"], [("2025-12-15 17:10:00", "t")])
    report = IMPORTERS.load("itbench-lite")(tmp_path / "in", tmp_path / "out")
    assert [name for name, _ in report.imported] == ["Scenario-1", "Scenario-2"]
    failed = dict(report.failed)
    assert "names no root cause" in failed["Scenario-3"]
    assert "lacks the column 'servicename'" in failed["Scenario-4"]
    tree = Tree(tmp_path / "out")
    assert tree.ids() == []  # truths alone
    ids = dict(report.imported)
    assert tree.truth(ids["Scenario-1"]).roots[0].service == ("frontend",)
    assert tree.truth(ids["Scenario-2"]).roots[0].service == ("otel-demo-frontend-delay-1",)
    notes = {(name, note) for name, note in report.notes}
    assert any("no alert became active within the telemetry" in note for name, note in notes if name == "Scenario-1")
    assert ("Scenario-2", "there is no telemetry: the truth is imported alone") in notes


def test_roots_of_the_public_ground_truths_are_named_by_services_of_the_shop(real_data):
    shop = (  # noqa: SIM905
        "accounting ad cart checkout currency email flagd fraud-detection frontend frontend-proxy image-provider kafka "
        "load-generator payment postgresql product-catalog quote recommendation shipping valkey-cart details productpage"
    ).split()
    named = {}
    for folder in sorted((real_data / "itbench-groundtruth").glob("scenario_*")):
        spec = read_spec(folder / V1, [])
        if spec:
            found = ground_truth(folder.name, spec, V1, [])
            named[folder.name] = [_services(found, root, shop, []) for root in found.roots]
    assert sum(set(root) <= set(shop) for roots in named.values() for root in roots) >= 39
    assert named["scenario_43"] == [("frontend",)]  # frontend-.* is not frontend-proxy
    assert named["scenario_17"] == [("product-catalog",)]
    assert named["scenario_12"] == [("flagd",)]


# Cloud-OpsBench


def cloud_case(root, category="codedefect", number="10", fault="app/checkoutservice", **without):
    folder = root / "benchmark" / "boutique" / category / number
    (folder / "raw_data").mkdir(parents=True)
    result = {"fault_taxonomy": "Application_Code_Defect", "fault_object": fault, "root_cause": "code_artificial_delay"}
    about = {"namespace": "boutique", "query": "Service Performance Degradation.", "result": result}
    (folder / "metadata.json").write_text(json.dumps(about))
    (folder / "tool_cache.json").write_text(
        json.dumps({"collection_timestamp": "2026", "GetAlerts:{}": f"{category}{number}"})
    )
    if "metrics" not in without:
        header = (
            "time,frontend-cpu,frontend-network_receive,redis-cart-p50latency,worker-01-cpu,worker-01-tcp_retans,odd"
        )
        rows = [f"2026-05-18 16:40:{second:02},0.1,{number},3.5,4.0,0.1,1" for second in (2, 7, 12, 17)]
        (folder / "raw_data" / "metrics.csv").write_text("\n".join([header, *rows]))
    if "logs" not in without:
        lines = {
            "frontend": [
                '2026-05-18T16:40:03.5+08:00 {"severity":"error","message":"request failed"}',
                "2026-05-18T16:39:00.5+08:00 before the metrics",
                "without a time",
            ],
            "redis-cart": {"redis": ["2026-05-18T16:40:16.123456789+08:00 ready"]},
        }
        (folder / "raw_data" / "logs.json").write_text(json.dumps(lines))
    alerts = [
        {"type": "Service", "name": "frontend", "time_range": f"2026-05-18 16:40:{second} ~ 2026-05-18 16:40:17"}
        for second in (15, 12)
    ]
    (folder / "raw_data" / "alert.json").write_text(json.dumps({"status": "has_anomalies", "alerts": alerts}))
    if "milestones" not in without:
        beside = root / "process-label" / "boutique" / category / number
        beside.mkdir(parents=True)
        (beside / "milestone.json").write_text('{"milestones": [{"id": "M1"}], "dependency_edges": []}')
    return folder


def test_cloud_opsbench_brings_metrics_logs_the_root_and_the_milestones(tmp_path):
    cloud_case(tmp_path / "in")
    golden = tmp_path / "in" / "golden-trajectory" / "boutique" / "codedefect" / "10"
    golden.mkdir(parents=True)
    (golden / "path2.json").write_text('[{"action": "GetAlerts"}]')
    report = IMPORTERS.load("cloud-opsbench")(tmp_path / "in", tmp_path / "out")
    ((name, id_),) = report.imported
    assert (name, report.failed) == ("boutique/codedefect/10", ())
    assert (
        Tree(tmp_path / "out").truth_path(id_) / "golden-trajectory-path2.json"
    ).read_text() == '[{"action": "GetAlerts"}]'
    tree = Tree(tmp_path / "out")
    pack, truth = tree.datapack(id_), tree.truth(id_)
    assert (pack.incident.system, pack.incident.description) == (
        "cloud-opsbench-boutique",
        "Service Performance Degradation.",
    )
    assert pack.incident.normal.start_ns == ns("2026-05-18T16:40:02+08:00")
    assert pack.incident.abnormal.start_ns == ns("2026-05-18T16:40:12+08:00")  # the earlier of two alerts
    metrics = pack.scan("normal", "metrics").collect()
    assert metrics.height == 2 * 5  # a column that names no component is left out
    node = metrics.filter(pl.col("attr.k8s.node.name") == "worker-01")
    assert sorted(set(node["metric"])) == ["cpu", "tcp_retans"]
    assert set(node["service_name"]) == {""}
    assert set(metrics["service_name"]) == {"", "frontend", "redis-cart"}
    assert "network_receive" in set(metrics["metric"])
    (log,) = pack.scan("normal", "logs").collect().to_dicts()
    assert (log["level"], log["service_name"]) == ("ERROR", "frontend")
    assert log["message"].startswith('{"severity"')
    assert pack.scan("abnormal", "logs").collect()["message"].to_list() == ["ready"]
    assert (truth.faults, truth.roots[0].service) == ((), ("checkoutservice",))
    assert "code_artificial_delay" in truth.notes[0]
    assert truth.public["result"]["fault_object"] == "app/checkoutservice"
    kept = tree.truth_path(id_) / "milestone.json"
    assert kept.read_text() == '{"milestones": [{"id": "M1"}], "dependency_edges": []}'
    folder = tree.incident_path(id_)
    assert not any(b"code_artificial_delay" in path.read_bytes() for path in folder.iterdir())
    notes = {note for _, note in report.notes}
    assert "metrics.csv: the column 'odd' names no component and is left out" in notes
    assert "logs.json: 1 lines have no time and are left out" in notes


def test_cloud_opsbench_without_metrics_is_a_truth_and_what_is_broken_is_failed(tmp_path):
    cloud_case(tmp_path / "in", "admission", "1", "namespace/boutique", metrics=False)
    cloud_case(tmp_path / "in", "infrastructure", "2", "node/worker-01", logs=False, milestones=False)
    (cloud_case(tmp_path / "in", "startup", "3") / "metadata.json").write_text('{"result": {}}')
    (cloud_case(tmp_path / "in", "startup", "4") / "metadata.json").write_text("{")
    (cloud_case(tmp_path / "in", "startup", "5") / "raw_data" / "alert.json").write_text('{"alerts": []}')
    report = IMPORTERS.load("cloud-opsbench")(tmp_path / "in", tmp_path / "out")
    ids, failed, tree = dict(report.imported), dict(report.failed), Tree(tmp_path / "out")
    assert ids.keys() == {"boutique/admission/1", "boutique/infrastructure/2", "boutique/startup/5"}
    assert "names no fault_object" in failed["boutique/startup/3"]
    assert "is not JSON" in failed["boutique/startup/4"]
    notes = {(name.rpartition("/")[2], note) for name, note in report.notes}
    assert ("1", "there is no metrics.csv: the truth is imported alone") in notes
    assert ("1", "the root is no service but 'namespace/boutique'") in notes
    assert ("2", "no log line says its offset from UTC: all times are taken as UTC") in notes
    assert ("2", "there is no milestone.json in process-label") in notes
    assert any(number == "5" and "no alert begins within the metrics" in note for number, note in notes)
    assert tree.truth(ids["boutique/infrastructure/2"]).roots[0].service == ("worker-01",)
    assert tree.ids() == [ids["boutique/infrastructure/2"]]
    assert (tree.truth_path(ids["boutique/admission/1"]) / "milestone.json").exists()


def test_ids_of_frozen_cases_do_not_follow_from_where_they_lie(tmp_path):
    first = IMPORTERS.load("cloud-opsbench")(cloud_case(tmp_path / "a", "startup", "1"), tmp_path / "x")
    moved = cloud_case(tmp_path / "b", "runtime", "1")
    second = IMPORTERS.load("cloud-opsbench")(moved, tmp_path / "y")
    assert first.imported[0][1] == second.imported[0][1]
    assert Path(tmp_path / "x").exists()
