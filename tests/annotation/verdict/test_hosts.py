"""A fault on a host is one root: its services carry it together, and no other host or single service is believed."""

from __future__ import annotations

from itertools import pairwise

import polars as pl
import pytest

from annotation import systems
from annotation.cascade import EPOCH, NANO, SECONDS, Effect, fault, frames, incident
from opsassay.annotation.verdict.annotate import annotate, annotate_opened, open_pack
from opsassay.annotation.verdict.settings import AnnotateSettings
from opsassay.core.schema.incident import Label
from opsassay.telemetry.content import write_datapack
from opsassay.telemetry.datapack import Datapack

HOSTS = {"payment": "host-b", "weather": "host-b", "gateway": "host-a", "orders": "host-a", "catalogue": "host-c"}
EDGES = {("payment", "orders"), ("orders", "gateway"), ("weather", "gateway")}


def placed(folder, effect, usage=None):
    """Write a pack whose metrics say where pods run, and (*usage*) what processor time hosts take."""
    tables = frames(systems.deep(), effect)
    for period, start in (("normal", EPOCH), ("abnormal", EPOCH + SECONDS * NANO)):
        pods = tables[period, "metrics"]
        where = pl.col("service_name").replace_strict(HOSTS, default="host-d").alias("attr.k8s.node.name")
        rows = [
            {
                "time": start + second * NANO,
                "metric": "k8s.node.cpu.usage",
                "value": 0.3 + 0.01 * (second % 3) + ((usage or {}).get(host, 0.0) if period == "abnormal" else 0.0),
                "service_name": "",
                "attr.k8s.node.name": host,
            }
            for second in range(0, SECONDS, 5)
            for host in ("host-a", "host-b", "host-c", "host-d")
        ]
        of_hosts = pl.DataFrame(rows).with_columns(pl.col("time").cast(pl.Datetime("ns", "UTC")))
        tables[period, "metrics"] = pl.concat([pods.with_columns(where), of_hosts], how="diagonal")
    write_datapack(folder, tables, incident(), {})
    return Datapack.open(folder)


def of_host(type_, effect, host="host-b"):
    return fault(type_, None, effect, host=host)


CASES = {
    "starved": ("CPUStress", Effect(own_ms={"payment": 120, "weather": 90}), {"host-b": 1.5}, ("cpu", "pod")),
    "slow network": ("NetworkDelay", Effect(link_ms={"payment": 200, "weather": 200}), {}, ("inj_affected", "service")),
    "gone": ("PodFailure", Effect(gone=frozenset({"payment", "weather"})), {}, ("unavail", "service")),
}


@pytest.mark.sampled
@pytest.mark.parametrize("name", CASES)
def test_a_host_is_one_root(tmp_path, name):
    type_, effect, usage, (state, kind) = CASES[name]
    opened = open_pack(placed(tmp_path / "pack", effect, usage))
    found = annotate_opened(opened, [of_host(type_, effect)])
    assert found.label is Label.ATTRIBUTED, (found.reason, found.rejected)
    assert [(n.component, n.state) for n in found.graph.root_causes] == [("node|host-b", (state,))]
    assert found.graph.root_services() == {"payment", "weather"}
    assert found.graph.service_edges() == EDGES
    assert found.graph.services() == {"payment", "weather", "orders", "gateway"}
    below = {(e.source, e.target) for e in found.graph.edges if e.source == "node|host-b"}
    names = {"pod": ("payment-0", "weather-0")}.get(kind, ("payment", "weather"))
    assert below == {("node|host-b", f"{kind}|{name}") for name in names}
    assert [root.service for root in found.roots] == [("payment", "weather")]
    assert [(f.type, f.place, f.label) for f in found.faults] == [(type_, "host-b", Label.ATTRIBUTED)]
    for other in ("host-a", "host-c", "host-d"):
        assert annotate_opened(opened, [of_host(type_, effect, other)]).label is not Label.ATTRIBUTED, other
    for service in ("gateway", "orders", "catalogue", "bank"):
        assert annotate_opened(opened, [of_host(type_, effect)], root=service).label is not Label.ATTRIBUTED, service


@pytest.mark.slow
def test_a_host_told_once_per_service_is_the_same(tmp_path):
    type_, effect, usage, _ = CASES["starved"]
    pack = placed(tmp_path / "pack", effect, usage)
    once = annotate(pack, [of_host(type_, effect)])
    each = [of_host(type_, effect).model_copy(update={"service": s}) for s in ("weather", "payment")]
    assert annotate(pack, each) == once


def test_a_host_that_nothing_is_known_to_run_on(tmp_path):
    type_, effect, usage, _ = CASES["starved"]
    found = annotate(placed(tmp_path / "pack", effect, usage), [of_host(type_, effect, "host-z")])
    assert found.label is Label.UNEXPLAINED
    assert "the target host-z is nowhere in the traces" in found.reason


@pytest.mark.slow
@pytest.mark.parametrize("strained", [True, False])
def test_pressure_reaches_who_shares_a_strained_host(tmp_path, strained):
    """Weather's own time grew beside payment's: it is payment's fault where their host has no processor time left."""
    effect = Effect(own_ms={"payment": 120, "weather": 90}, cpu={"payment": 1.5})
    pack = placed(tmp_path / "pack", effect, {"host-b": 1.5} if strained else {})
    found = annotate(pack, [fault("CPUStress", "payment", effect)])
    assert found.label is Label.ATTRIBUTED, found.reason
    crowded = [(e.source, e.target) for e in found.graph.edges if e.rule == "A-X1"]
    way = ["pod|payment-0", "node|host-b", "pod|weather-0", "service|weather"]
    assert crowded == (sorted(pairwise([*way, "span|weather::GET /weather"])) if strained else [])
    assert ("weather" in found.graph.services()) == strained
    assert "node|host-b" not in found.graph.component_to_service
    assert annotate(pack, [fault("CPUStress", "weather", effect)]).label is not Label.ATTRIBUTED
    off = annotate(pack, [fault("CPUStress", "payment", effect)], settings=AnnotateSettings(rules_off={"A-X1"}))
    assert "weather" not in off.graph.services()


def test_pods_of_a_strained_host_have_the_onset_of_their_metrics(tmp_path):
    effect = Effect(own_ms={"payment": 120, "weather": 90}, cpu={"payment": 0.9, "weather": 0.9})
    graph = annotate(placed(tmp_path / "pack", effect, {"host-b": 1.5}), [of_host("CPUStress", effect)]).graph
    onsets = {n.component: n.timestamp for n in graph.nodes if n.component.startswith("pod|")}
    assert onsets == dict.fromkeys(["pod|payment-0", "pod|weather-0"], EPOCH + (SECONDS + 2) * NANO)
