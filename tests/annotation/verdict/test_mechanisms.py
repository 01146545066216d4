"""Ways of a failure that need more than one plain rule: each known cascade is found, and only it."""

from __future__ import annotations

import polars as pl
import pytest

from annotation import systems
from annotation.cascade import EPOCH, NANO, SECONDS, Call, Effect, fault, frames, incident, make_pack
from opsassay.annotation.evidence.slo import SurfaceSlo
from opsassay.annotation.search.paths import SearchLimits
from opsassay.annotation.verdict.annotate import annotate, annotate_opened, open_pack
from opsassay.annotation.verdict.settings import AnnotateSettings, load_settings
from opsassay.core.errors import ConfigError
from opsassay.core.schema.incident import Label
from opsassay.telemetry.content import write_datapack
from opsassay.telemetry.datapack import Datapack


def only_root(pack, faults, root):
    """Check that no other service of *pack* is attributed in place of *root*."""
    opened = open_pack(pack)
    wrong = {s: annotate_opened(opened, faults, root=s).label for s in pack.services() if s != root}
    assert Label.ATTRIBUTED not in wrong.values(), wrong


def hollow(*, optional):
    """shop > offer > price: an offer without price is hollow, and a shop that reads it fails by itself."""
    price = Call("price", "GET /price", own_ms=8, optional=optional)
    offer = Call("offer", "GET /offer", calls=(price,), demanding=True)
    shop = Call("shop", "GET /", calls=(offer,))
    return {shop: 8.0, Call("shop", "GET /about", calls=(Call("pages", "GET /about"),)): 4.0}


def test_errors_pass_a_healthy_node_by_h04(tmp_path):
    effect = Effect(fails={"price": 0.5})
    pack = make_pack(tmp_path / "pack", hollow(optional=True), effect)
    faults = [fault("HTTPResponseAbort", "price", effect)]
    found = annotate(pack, faults)
    assert found.label is Label.ATTRIBUTED, found.reason
    assert found.graph.service_edges() == {("price", "offer"), ("offer", "shop")}
    assert {e.rule for e in found.graph.edges if e.target == "span|shop::GET /"} == {"H-04"}
    assert {n.component: (n.state, n.healthy_bypass) for n in found.graph.nodes if n.healthy_bypass} == {
        "span|offer::GET /offer": (("healthy",), True)
    }
    only_root(pack, faults, "price")


def test_without_the_association_nothing_passes_a_healthy_node(tmp_path):
    """The shop fails by itself, over something else, as often where the price failed as where it did not."""
    effect = Effect(fails={"price": 0.7}, changes={"banner": 0.5})
    price = Call("price", "GET /price", own_ms=8, optional=True)
    calls = (Call("offer", "GET /offer", calls=(price,)), Call("banner", "GET /banner", demanding=True))
    pack = make_pack(tmp_path / "pack", {Call("shop", "GET /", calls=calls): 8.0}, effect)
    found = annotate(pack, [fault("HTTPResponseAbort", "price", effect)])
    assert found.label is Label.UNEXPLAINED


def test_a_changed_answer_fails_its_reader(tmp_path):
    effect = Effect(changes={"price": 0.9})
    price = Call("price", "GET /price", own_ms=8, demanding=True)
    system = {Call("shop", "GET /", calls=(price,)): 8.0}
    pack = make_pack(tmp_path / "pack", system, effect)
    found = annotate(pack, [fault("HTTPResponseReplaceBody", "price", effect)])
    assert found.label is Label.ATTRIBUTED, (found.reason, found.rejected)
    assert {(e.source, e.target, e.rule) for e in found.graph.edges} == {
        ("service|price", "span|price::GET /price", "A-S2"),
        ("span|price::GET /price", "span|shop::GET /", "A-H4"),
    }


def test_a_changed_answer_passes_a_healthy_node_by_h07(tmp_path):
    effect = Effect(changes={"price": 0.6})
    system = hollow(optional=False)
    pack = make_pack(tmp_path / "pack", system, effect)
    found = annotate(pack, [fault("HTTPResponseReplaceBody", "price", effect)])
    assert found.label is Label.ATTRIBUTED, (found.reason, found.rejected)
    assert found.graph.service_edges() == {("price", "offer"), ("offer", "shop")}
    assert {e.rule for e in found.graph.edges if e.target == "span|shop::GET /"} == {"H-07"}


def in_one_pod(tables, *services):
    shared = pl.when(pl.col("service_name").is_in(services)).then(pl.lit("shared-0")).otherwise("attr.k8s.pod.name")
    return {key: table.with_columns(shared.alias("attr.k8s.pod.name")) for key, table in tables.items()}


@pytest.mark.slow
@pytest.mark.parametrize("shared", [True, False])
def test_pressure_reaches_who_shares_the_pod_by_x01(tmp_path, shared):
    effect = Effect(own_ms={"payment": 80, "weather": 60}, cpu={"payment": 0.9})
    tables = frames(systems.deep(), effect)
    tables = in_one_pod(tables, "payment", "weather") if shared else tables
    write_datapack(tmp_path / "pack", tables, incident(), {})
    found = annotate(Datapack.open(tmp_path / "pack"), [fault("CPUStress", "payment", effect)])
    up = {("payment", "orders"), ("orders", "gateway")}
    beside = {("payment", "weather"), ("weather", "gateway")}
    assert found.graph.service_edges() == (up | beside if shared else up)
    assert ("X-01" in {e.rule for e in found.graph.edges}) == shared


def test_services_that_call_each_other(tmp_path):
    """travel > seat on one way, seat > travel on another: the cycle of services is no cycle of causes."""
    seat = Call("seat", "GET /left")
    info = Call("travel", "GET /info")
    system = {
        Call("gateway", "GET /trips", calls=(Call("travel", "GET /query", calls=(seat,)),)): 6.0,
        Call("gateway", "GET /seats", calls=(Call("seat", "GET /seats", calls=(info,)),)): 6.0,
    }
    effect = Effect(own_ms={"seat": 200})
    pack = make_pack(tmp_path / "pack", system, effect)
    faults = [fault("JVMLatency", "seat", effect)]
    found = annotate(pack, faults)
    assert found.graph.service_edges() == {("seat", "travel"), ("travel", "gateway"), ("seat", "gateway")}
    only_root(pack, faults, "seat")


def test_of_parallel_calls_the_caller_waits_for_the_last(tmp_path):
    """Both legs became slower, the short one even more; only the longer one is on the critical path."""
    legs = (Call("long", "GET /long", own_ms=400), Call("short", "GET /short", own_ms=20))
    system = {Call("gateway", "GET /", calls=legs, parallel=True): 8.0}
    effect = Effect(own_ms={"long": 300, "short": 350})
    pack = make_pack(tmp_path / "pack", system, effect)
    assert annotate(pack, [fault("JVMLatency", "long", effect)]).label is Label.ATTRIBUTED
    hidden = annotate(pack, [fault("JVMLatency", "short", effect)])
    assert hidden.label is Label.UNEXPLAINED
    assert [r.gate for r in hidden.rejected] == ["carried", "surface"]


@pytest.mark.slow
def test_an_effect_before_its_cause_is_rejected_by_time(tmp_path):
    """The caller was slow from the start of the window; the fault began half a minute later."""
    early = Effect(own_ms={"orders": 400}, from_s=0)
    late = Effect(own_ms={"payment": 300}, from_s=35)
    tables = frames(systems.deep(), early)
    second = frames(systems.deep(), late)["abnormal", "traces"]
    middle = EPOCH + (SECONDS + 35) * NANO
    at = pl.col("time").dt.epoch("ns")
    first = tables["abnormal", "traces"]
    orders_slow = first.filter(at < middle)
    tables["abnormal", "traces"] = pl.concat([orders_slow, second.filter(at >= middle)])
    write_datapack(tmp_path / "pack", tables, incident(), {})
    found = annotate(Datapack.open(tmp_path / "pack"), [fault("HTTPResponseDelay", "payment", late)])
    # Only what happened since the fault began is looked at, so the earlier slowness is not held against it ...
    assert found.label is Label.ATTRIBUTED
    # ... and a fault that is said to have begun with the window does not explain what came 35 s before it showed.
    wrong = annotate(Datapack.open(tmp_path / "pack"), [fault("HTTPResponseDelay", "payment", Effect(from_s=0))])
    assert any(r.gate == "temporal" for r in wrong.rejected), [(r.gate, r.path) for r in wrong.rejected]


def test_requests_that_failed_early_do_not_hide_how_long_the_others_take(tmp_path):
    """Most orders fail at once, by another fault; those that reach the bank wait for it."""
    effect = Effect(own_ms={"bank": 80}, fails={"orders": 0.6})
    found = annotate(make_pack(tmp_path / "pack", systems.deep(), effect), [fault("HTTPResponseDelay", "bank", effect)])
    assert found.label is Label.ATTRIBUTED, found.reason
    assert found.graph.service_edges() == {("bank", "payment"), ("payment", "orders"), ("orders", "gateway")}


@pytest.mark.slow
def test_the_surface_is_an_input(tmp_path):
    effect = Effect(own_ms={"payment": 300})
    pack = make_pack(tmp_path / "pack", systems.deep(), effect)
    at_orders = annotate(pack, [fault("HTTPResponseDelay", "payment", effect)], slo=SurfaceSlo(surface=("orders",)))
    assert at_orders.graph.alarm_services() == {"orders"}
    assert at_orders.graph.service_edges() == {("payment", "orders")}
    elsewhere = annotate(pack, [fault("HTTPResponseDelay", "payment", effect)], slo=SurfaceSlo(surface=("weather",)))
    assert elsewhere.label is Label.ABSORBED


@pytest.mark.slow
def test_the_hop_limit_is_told(tmp_path):
    effect = Effect(own_ms={"bank": 300})
    pack = make_pack(tmp_path / "pack", systems.deep(), effect)
    faults = [fault("HTTPResponseDelay", "bank", effect)]
    assert annotate(pack, faults).label is Label.ATTRIBUTED
    short = annotate(pack, faults, settings=AnnotateSettings(limits=SearchLimits(hops=2)))
    assert (short.label, {r.gate for r in short.rejected}) == (Label.UNEXPLAINED, {"hops"})


@pytest.mark.slow
def test_roots_at_every_level(tmp_path):
    effect = Effect(own_ms={"payment": 80}, cpu={"payment": 0.9})
    pack = make_pack(tmp_path / "pack", systems.deep(), effect)
    (root,) = annotate(pack, [fault("CPUStress", "payment", effect)]).roots
    assert (root.service, root.pod, root.container) == (("payment",), ("payment-0",), ("payment",))
    assert (root.function, root.span, root.metric) == ((), (), ("container.cpu.usage",))
    effect = Effect(own_ms={"payment": 300})
    pack = make_pack(tmp_path / "slow", systems.deep(), effect)
    (root,) = annotate(pack, [fault("HTTPResponseDelay", "payment", effect)]).roots
    assert (root.service, root.pod, root.span) == (("payment",), (), ("payment::POST /charge",))
    (root,) = annotate(
        pack, [fault("JVMLatency", "payment", effect, parameters={"class": "Pay", "method": "charge"})]
    ).roots
    assert root.function == ("Pay.charge",)


def test_rules_can_be_switched_off(tmp_path):
    effect = Effect(own_ms={"payment": 300})
    pack = make_pack(tmp_path / "pack", systems.deep(), effect)
    without = AnnotateSettings(rules_off=frozenset({"H-01"}))
    found = annotate(pack, [fault("HTTPResponseDelay", "payment", effect)], settings=without)
    assert (found.label, {r.gate for r in found.rejected}) == (Label.UNEXPLAINED, {"rule", "surface"})


def test_settings_of_a_file(tmp_path):
    file = tmp_path / "settings.yaml"
    file.write_text("slo: {surface: [cart], latency_factor: 2}\nlimits: {hops: 7}\nrules_off: [A-H3]\n")
    settings = load_settings(file)
    assert (settings.slo.surface, settings.slo.latency_factor, settings.limits.hops) == (("cart",), 2.0, 7)
    assert settings.rules_off == {"A-H3"}
    for text, said in (
        ("slo: {latency: 2}", r"settings\.yaml:1"),
        ("limits: {hops: 0}", r"settings\.yaml:1"),
        ("rules_off: [H-99]", "There is no rule 'H-99'"),
    ):
        file.write_text(text)
        with pytest.raises(ConfigError, match=said):
            load_settings(file)
