"""Failures that no failed call of the same trace tells of: open circuits, answers spoilt on their way, wrong doors."""

from __future__ import annotations

import re

import polars as pl
import pytest

from annotation import systems
from annotation.cascade import EPOCH, NANO, SECONDS, Call, Effect, fault, frames, incident, make_pack
from opsassay.annotation.verdict.annotate import annotate, annotate_opened, open_pack
from opsassay.core.schema.incident import Label, Window
from opsassay.telemetry.content import write_datapack
from opsassay.telemetry.datapack import Datapack

from .test_mechanisms import only_root

UP = {("payment", "orders"), ("orders", "gateway")}


def with_breaker():
    """gateway > orders > payment, which orders gives up for three seconds after four failures in a row."""
    payment = Call("payment", "POST /charge", breaker=4)
    orders = Call("orders", "POST /orders", calls=(systems.DATABASE, payment))
    return {
        Call("gateway", "POST /checkout", calls=(orders,)): 8.0,
        Call("gateway", "GET /browse", calls=(Call("catalogue", "GET /products"),)): 8.0,
    }


@pytest.mark.slow
def test_who_gave_a_callee_up_failed_because_of_it(tmp_path):
    effect = Effect(fails={"payment": 1.0})
    pack = make_pack(tmp_path / "pack", with_breaker(), effect)
    for type_ in ("HTTPResponseAbort", "JVMException", "HTTPResponseReplaceBody"):
        faults = [fault(type_, "payment", effect)]
        found = annotate(pack, faults)
        assert found.label is Label.ATTRIBUTED, (type_, found.reason)
        assert found.graph.service_edges() == UP
        only_root(pack, faults, "payment")


def test_who_fails_by_itself_before_its_calls_gave_nobody_up(tmp_path):
    """Half of what orders does fails before it calls; payment is well, and was when it was called last."""
    effect = Effect(fails={"orders": 0.5})
    pack = make_pack(tmp_path / "pack", with_breaker(), effect)
    faults = [fault("JVMException", "orders", effect)]
    found = annotate(pack, faults)
    assert found.label is Label.ATTRIBUTED
    assert found.graph.service_edges() == {("orders", "gateway")}
    only_root(pack, faults, "orders")


def test_good_answers_that_arrive_as_failures(tmp_path):
    effect = Effect(spoils={"payment": 0.6})
    pack = make_pack(tmp_path / "pack", systems.deep(), effect)
    faults = [fault("HTTPResponseReplaceCode", "payment", effect)]
    found = annotate(pack, faults)
    assert found.label is Label.ATTRIBUTED, (found.reason, found.rejected)
    assert found.graph.service_edges() == UP
    assert "A-S3" in {edge.rule for edge in found.graph.edges}
    only_root(pack, faults, "payment")


def test_failed_answers_of_another_size_are_no_changed_payload(tmp_path):
    """An error page is smaller than the page; that does not make its sender the one whose answers were changed."""
    effect = Effect(fails={"payment": 0.9})
    tables = frames(systems.deep(), effect)
    for period in ("normal", "abnormal"):
        table = tables[period, "traces"]
        small = pl.when(pl.col("attr.status_code") == "Error").then(40)
        size = small.otherwise("attr.http.response.content_length").alias("attr.http.response.content_length")
        tables[period, "traces"] = table.with_columns(size)
    write_datapack(tmp_path / "pack", tables, incident(), {})
    only_root(Datapack.open(tmp_path / "pack"), [fault("HTTPResponsePatchBody", "payment", effect)], "payment")


def test_calls_that_end_at_the_wrong_door(tmp_path):
    effect = Effect(misleads={"orders": "weather"})
    pack = make_pack(tmp_path / "pack", systems.deep(), effect)
    faults = [fault("DNSRandom", "orders", effect)]
    found = annotate(pack, faults)
    assert found.label is Label.ATTRIBUTED, (found.reason, found.rejected)
    assert ("orders", "gateway") in found.graph.service_edges()
    only_root(pack, faults, "orders")


def test_one_of_several_consumers_is_gone(tmp_path):
    """A message has two consumers: the one that goes on does not hide that the other takes nothing."""
    effect = Effect(gone=frozenset({"shipping"}))
    tables = frames(systems.queue(), effect)
    for period in ("normal", "abnormal"):
        table = tables[period, "traces"]
        sent = table.filter(pl.col("attr.span_kind") == "Producer")
        taken = sent.with_columns(
            time=(pl.col("time") + pl.duration(milliseconds=5)).dt.cast_time_unit("ns"),
            parent_span_id="span_id",
            span_id=pl.lit("b") + pl.col("span_id"),
            span_name=pl.lit("process orders"),
            service_name=pl.lit("billing"),
            **{"attr.span_kind": pl.lit("Consumer"), "attr.k8s.pod.name": pl.lit("billing-0")},
        )
        tables[period, "traces"] = pl.concat([table, taken])
    write_datapack(tmp_path / "pack", tables, incident(), {})
    pack = Datapack.open(tmp_path / "pack")
    found = annotate(pack, [fault("PodFailure", "shipping", effect)])
    assert found.label is Label.ATTRIBUTED, (found.reason, found.rejected)
    assert found.alarms["explained"] == ("span|shipping::process orders",)
    opened = open_pack(pack)
    for other in ("billing", "orders", "gateway"):
        assert annotate_opened(opened, [fault("PodFailure", other, effect)]).label is not Label.ATTRIBUTED


@pytest.mark.slow
def test_more_work_is_no_stress(tmp_path):
    """Three times the traffic takes three times the processor, and somewhat longer."""
    effect = Effect(own_ms={"gateway": 60}, cpu={"gateway": 0.15})
    tables = frames(systems.deep(), effect)
    surge = frames({call: 3.2 * rate for call, rate in systems.deep().items()}, effect)
    tables["abnormal", "traces"] = surge["abnormal", "traces"]
    write_datapack(tmp_path / "surge", tables, incident(), {})
    found = annotate(Datapack.open(tmp_path / "surge"), [fault("CPUStress", "gateway", effect)])
    assert found.label is not Label.ATTRIBUTED
    calm = make_pack(tmp_path / "calm", systems.deep(), effect)
    assert annotate(calm, [fault("CPUStress", "gateway", effect)]).label is Label.ATTRIBUTED


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["HTTPResponseDelay", "NetworkDelay"])
def test_more_work_is_no_delay(tmp_path, kind):
    """Three times the traffic makes a service late; it is a fault where the service is late without that traffic too."""
    place = {"gateway": 60.0}
    effect = Effect(link_ms=place) if kind == "NetworkDelay" else Effect(own_ms=place)
    calm = frames(systems.deep(), effect)
    surge = frames({call: 3.2 * rate for call, rate in systems.deep().items()}, effect)["abnormal", "traces"]
    half = pl.col("time").dt.epoch("ns") < EPOCH + (SECONDS + SECONDS // 2) * NANO
    usual = calm["abnormal", "traces"]
    met = usual.filter(half).select("trace_id").unique()
    later = surge.with_columns(trace_id="later" + pl.col("trace_id"), span_id="later" + pl.col("span_id"))
    later = later.with_columns(
        parent_span_id=pl.when(pl.col("parent_span_id") == "")
        .then(pl.lit(""))
        .otherwise("later" + pl.col("parent_span_id"))
    )
    begun = later.filter(half).select("trace_id").unique()
    mixed = pl.concat([usual.join(met, on="trace_id", how="semi"), later.join(begun, on="trace_id", how="anti")])
    labels = {}
    for name, table in (("calm", usual), ("surge", surge), ("half", mixed)):
        write_datapack(tmp_path / name, {**calm, ("abnormal", "traces"): table}, incident(), {})
        found = annotate(Datapack.open(tmp_path / name), [fault(kind, "gateway", effect)])
        labels[name] = found.label
        if name == "surge":
            assert re.search(r"3\.\d times as many requests as before reach gateway", found.reason), found.reason
    assert labels["calm"] is labels["half"] is Label.ATTRIBUTED
    assert labels["surge"] is not Label.ATTRIBUTED


def test_a_line_drawn_after_the_fault_began(tmp_path):
    """A recorder without an alert hides the moment: ten seconds of the fault are in the normal window."""
    effect = Effect(own_ms={"payment": 300}, from_s=-0.0)
    tables = frames(systems.deep(), effect)
    line = EPOCH + (SECONDS + 10) * NANO
    for modality in ("traces", "metrics"):
        early = pl.col("time").dt.epoch("ns") < line
        late = tables["abnormal", modality]
        tables["normal", modality] = pl.concat([tables["normal", modality], late.filter(early)])
        tables["abnormal", modality] = late.filter(~early)
    whole = incident()
    described = whole.model_copy(
        update={
            "normal": Window(start_ns=whole.normal.start_ns, end_ns=line),
            "abnormal": Window(start_ns=line, end_ns=whole.abnormal.end_ns),
        }
    )
    write_datapack(tmp_path / "pack", tables, described, {})
    found = annotate(Datapack.open(tmp_path / "pack"), [fault("HTTPResponseDelay", "payment", effect)])
    assert found.label is Label.ATTRIBUTED, found.reason
    assert found.graph.service_edges() == UP
    assert found.false_alarm_rate == 0.0
