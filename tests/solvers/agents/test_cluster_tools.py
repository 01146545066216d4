"""The tools over the events and objects of a cluster, on a made scenario of ITBench-Lite."""

from __future__ import annotations

import json

import pytest

from opsassay.solvers.agents.cluster_tools import ClusterToolbox, further_specs, toolbox_of
from opsassay.solvers.agents.tools import TOOLS, TelemetryToolbox
from opsassay.telemetry.importers import IMPORTERS
from opsassay.telemetry.sql import LockedSql
from opsassay.telemetry.tree import Tree
from telemetry.packs import make_tree
from telemetry.test_frozen_importers import POD, cart, scenario, tsv


@pytest.fixture(scope="module")
def tools(tmp_path_factory):
    folder = tmp_path_factory.mktemp("lite")
    made = scenario(folder / "in" / "Scenario-7")
    event = {"type": "Warning", "reason": "BackOff", "message": "back-off", "lastTimestamp": "2025-12-15T17:40:00Z"}
    event |= {"kind": "Event", "involvedObject": {"kind": "Pod", "name": POD, "namespace": "otel-demo"}}
    tsv(made / "k8s_events_raw.tsv", ["Timestamp", "Body"], [("2025-12-15 17:41:00", json.dumps({"object": event}))])
    other = {"kind": "ConfigMap", "metadata": {"name": "it's"}, "data": {"a": "1"}}
    seen = [("17:45:00", cart("cart:2", "3")), ("17:10:00", cart("cart:1")), ("17:20:00", other)]
    seen += [
        ("17:41:00", {**other, "data": {"a": "2"}}),
        ("17:46:00", cart("cart:3")),
        ("17:42:00", {**other, "data": {"a": "2"}}),
    ]
    rows = [(f"2025-12-15 {at}", json.dumps({"object": body})) for at, body in seen]
    tsv(made / "k8s_objects_raw.tsv", ["Timestamp", "Body"], rows)
    ((_, id_),) = IMPORTERS.load("itbench-lite")(folder / "in", folder / "out").imported
    pack = Tree(folder / "out").datapack(id_)
    with LockedSql(pack, timeout_s=30, max_rows=200) as sql:
        yield toolbox_of(sql, pack.incident)


def rows(text):
    return [json.loads(line) for line in text.splitlines() if line.startswith("[")][1:]


def test_changes_are_told_object_by_object_those_with_the_most_first(tools):
    call = tools.call("spec_changes", {})
    assert call.status == "ok", call.output
    path = "spec.template.spec.containers[app].image"
    assert [(row[0], *row[2:]) for row in rows(call.output)] == [
        ("abnormal", "Deployment/cart", f'{path} was "cart:1", is "cart:2"'),
        ("abnormal", "Deployment/cart", f'{path} was "cart:2", is "cart:3"'),
        ("abnormal", "ConfigMap/it's", 'data.a was "1", is "2"'),
    ]
    assert len(rows(tools.call("spec_changes", {"object": "deployment/CART"}).output)) == 2
    assert len(rows(tools.call("spec_changes", {"object": "ConfigMap/it's"}).output)) == 1
    assert tools.call("spec_changes", {"object": "Deployment/it's"}).output == "(none)"


def test_the_context_of_an_object_has_its_spec_events_alerts_calls_and_metrics(tools):
    found = tools.call("object_context", {"object": "Service/frontend"})
    assert found.status == "ok", found.output
    parts = {part.split("\n", 1)[0]: part.split("\n", 1)[1] for part in found.output.split("\n\n")}
    assert parts["spec"] == "(none)"
    assert f"event Pod/{POD}: BackOff: back-off" in parts["events"]
    assert "RequestLatency on frontend" in parts["alerts"]
    assert "container_memory_usage_bytes" in next(text for title, text in parts.items() if title.startswith("metrics"))
    spec = tools.call("object_context", {"object": "Deployment/cart"}).output
    assert 'image=\\"cart:1\\"' in spec
    beyond = tools.call("object_context", {"object": "Deployment/cart", "page": 9})
    assert (beyond.status, "has 1 page" in beyond.output) == ("error", True)


def test_names_are_quoted_and_wrong_arguments_are_an_observation(tools):
    for name in ("x'; DROP TABLE normal_logs; --", "Pod/'||(SELECT 1)||'", "%", "\\", "/"):
        assert tools.call("object_context", {"object": name}).status == "ok"
    assert tools.call("object_context", {"object": ""}).status == "error"
    assert tools.call("spec_changes", {"object": "x" * 301}).status == "error"


def test_the_context_has_calls_of_both_periods_and_pages_of_what_is_depended_on(tmp_path):
    tree = make_tree(tmp_path, count=1, traces=5)
    pack = tree.datapack(tree.ids()[0])
    with LockedSql(pack, timeout_s=30, max_rows=200) as sql:
        made = ClusterToolbox(sql, pack.incident)
        first, second, third = (
            made.call("object_context", {"object": "Service/frontend", "page": page}) for page in (1, 2, 3)
        )
    calls = first.output.split("calls, by period\n")[1].split("\n\n")[0]
    assert rows(calls) == [
        ["frontend", "cart", "normal", 5, 0.0, 20.0], ["frontend", "cart", "abnormal", 5, 100.0, 20.0],
        ["loadgenerator", "frontend", "normal", 5, 0.0, 30.0], ["loadgenerator", "frontend", "abnormal", 5, 100.0, 30.0],
    ]  # fmt: skip
    assert first.output.endswith("\ncart, store")
    assert [line for line in second.output.splitlines() if " of " in line] == [
        "changes of cart", "events of cart", "changes of store", "events of store",
    ]  # fmt: skip
    assert (third.status, "has 2 pages" in third.output) == ("error", True)


def test_an_agent_is_told_of_the_tools_where_the_incident_has_them_alone(tools, tmp_path):
    assert isinstance(tools, ClusterToolbox)
    assert [spec.name for spec in further_specs(tools)] == ["spec_changes", "object_context"]
    tree = make_tree(tmp_path, count=1, traces=5)
    pack = tree.datapack(tree.ids()[0])
    with LockedSql(pack, timeout_s=30, max_rows=200) as sql:
        plain = toolbox_of(sql, pack.incident)
        assert (type(plain), plain.tools, further_specs(plain)) == (TelemetryToolbox, TOOLS, ())
        assert "unknown tool" in plain.call("spec_changes", {}).output
