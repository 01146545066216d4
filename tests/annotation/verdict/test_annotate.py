"""Known cascades through the public door: the true root is attributed along the true edges, every other root is not."""

from __future__ import annotations

import itertools
import json
from dataclasses import dataclass

import polars as pl
import pytest

from annotation import systems
from annotation.cascade import CALM, Call, Effect, fault, frames, incident, make_pack
from opsassay.annotation.verdict.annotate import annotate, annotate_opened, open_pack
from opsassay.core.schema.incident import Label
from opsassay.telemetry.content import write_datapack
from opsassay.telemetry.datapack import Datapack


@dataclass(frozen=True)
class Case:
    """A system, what is done to it, and the edges between services that this must and may leave."""

    system: dict[Call, float]
    type: str
    root: str
    effect: Effect
    edges: frozenset[tuple[str, str]]


def _edges(*chains: str) -> frozenset[tuple[str, str]]:
    return frozenset(tuple(chain.split(">")) for chain in chains)


UP = _edges("payment>orders", "orders>gateway")
ARMS = _edges("base>left", "base>right", "left>gateway", "right>gateway")

CASES = {
    "slow answers, deep": Case(systems.deep(), "HTTPResponseDelay", "payment", Effect(own_ms={"payment": 300}), UP),
    "aborted answers": Case(systems.deep(), "HTTPResponseAbort", "payment", Effect(fails={"payment": 0.5}), UP),
    "killed for three seconds": Case(
        systems.deep(),
        "PodKill",
        "payment",
        Effect(gone=frozenset({"payment"}), restarts=frozenset({"payment"}), from_s=5, to_s=8),
        UP,
    ),
    "slow network": Case(systems.deep(), "NetworkDelay", "payment", Effect(link_ms={"payment": 200}), UP),
    "slow network of a leaf": Case(
        systems.deep(), "NetworkDelay", "bank", Effect(link_ms={"bank": 200}), UP | _edges("bank>payment")
    ),
    "starved processor": Case(
        systems.deep(), "CPUStress", "payment", Effect(own_ms={"payment": 80}, cpu={"payment": 0.9}), UP
    ),
    "failing store calls": Case(
        systems.deep(), "JVMMySQLException", "payment", Effect(store_fails={"payment": 0.6}), UP
    ),
    "slow store calls": Case(systems.deep(), "JVMMySQLLatency", "payment", Effect(store_ms={"payment": 250}), UP),
    "diamond": Case(systems.diamond(), "HTTPResponseDelay", "base", Effect(own_ms={"base": 200}), ARMS),
    "diamond of errors": Case(systems.diamond(), "JVMException", "base", Effect(fails={"base": 0.4}), ARMS),
    "shared database": Case(
        systems.shared_database(),
        "NetworkDelay",
        "rows",
        Effect(link_ms={"rows": 200}),
        _edges("rows>stock", "rows>prices", "stock>gateway", "prices>gateway"),
    ),
    "parallel fan-out": Case(
        systems.fan_out(), "JVMLatency", "leaf2", Effect(own_ms={"leaf2": 200}), _edges("leaf2>gateway")
    ),
    "behind a queue": Case(
        systems.queue(), "HTTPResponseDelay", "carrier", Effect(own_ms={"carrier": 200}), _edges("carrier>shipping")
    ),
    "slow, with a little slowness of its own in a caller": Case(
        systems.deep(), "HTTPResponseDelay", "payment", Effect(own_ms={"payment": 300, "orders": 25}), UP
    ),
    "slow network, with a little slowness of its own in a caller": Case(
        systems.deep(), "NetworkDelay", "payment", Effect(link_ms={"payment": 200}, own_ms={"orders": 25}), UP
    ),
    "failing, with a few failures of its own in a caller": Case(
        systems.deep(), "HTTPResponseAbort", "payment", Effect(fails={"payment": 0.5, "orders": 0.06}), UP
    ),
    "starved, with a busier caller": Case(
        systems.deep(),
        "CPUStress",
        "payment",
        Effect(own_ms={"payment": 300, "orders": 25}, cpu={"payment": 0.5, "orders": 0.4}),
        UP,
    ),
    "consumer gone": Case(systems.queue(), "PodFailure", "shipping", Effect(gone=frozenset({"shipping"})), frozenset()),
    "consumer killed, messages wait for it": Case(
        systems.queue(),
        "PodKill",
        "shipping",
        Effect(gone=frozenset({"shipping"}), restarts=frozenset({"shipping"}), from_s=10, to_s=30, redelivered=True),
        frozenset(),
    ),
    "producer gone": Case(
        systems.queue(),
        "PodFailure",
        "orders",
        Effect(gone=frozenset({"orders"})),
        _edges("orders>gateway", "orders>shipping"),
    ),
}


@pytest.fixture(scope="module", params=list(CASES))
def broken(request, tmp_path_factory):
    case = CASES[request.param]
    return case, make_pack(tmp_path_factory.mktemp("packs") / "pack", case.system, case.effect)


@pytest.mark.sampled
def test_true_root_is_attributed_along_the_true_edges(broken):
    case, pack = broken
    found = annotate(pack, [fault(case.type, case.root, case.effect)])
    assert found.label is Label.ATTRIBUTED, (found.reason, found.rejected)
    assert found.graph.root_services() == {case.root}
    assert found.graph.service_edges() == case.edges
    assert found.alarms["explained"]


@pytest.mark.slow
def test_links_that_hardly_anyone_uses_do_not_speak_against_lost_packets(tmp_path):
    effect = Effect(link_ms={"hub": 400}, link_share=0.3)
    opened = open_pack(make_pack(tmp_path / "pack", systems.hub(), effect))
    faults = [fault("NetworkLoss", "hub", effect)]
    found = annotate_opened(opened, faults)
    busy, rare = ([f"{kind}{n}" for n in range(count)] for kind, count in (("busy", 3), ("rare", 5)))
    assert found.label is Label.ATTRIBUTED, found.reason
    assert found.graph.service_edges() >= _edges(*(f"hub>{s}" for s in busy), *(f"{s}>gateway" for s in busy))
    assert found.graph.service_edges() <= _edges(*(e for s in [*busy, *rare] for e in (f"hub>{s}", f"{s}>gateway")))
    for other in ("gateway", "catalogue", *busy, *rare):
        assert annotate_opened(opened, faults, root=other).label is not Label.ATTRIBUTED, other


@pytest.mark.sampled
def test_no_other_service_is_attributed(broken):
    case, pack = broken
    others = [s for s in pack.services() if s != case.root]
    opened = open_pack(pack)
    faults = [fault(case.type, case.root, case.effect)]
    wrong = {s: annotate_opened(opened, faults, root=s).label for s in others}
    assert others
    assert Label.ATTRIBUTED not in wrong.values(), wrong


@pytest.mark.slow
def test_nothing_was_broken(tmp_path):
    pack = make_pack(tmp_path / "pack", systems.deep())
    found = annotate(pack, [fault("NoFault", None)])
    assert (found.label, found.graph.nodes, found.graph.edges) == (Label.NO_EFFECT, (), ())
    assert found.false_alarm_rate is not None
    assert found.false_alarm_rate <= 0.02
    assert annotate(pack, []).label is Label.NO_EFFECT


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_sham_no_service_is_attributed_when_nothing_happened(tmp_path, seed):
    pack = make_pack(tmp_path / "pack", systems.deep(), CALM, seed=seed)
    opened = open_pack(pack)
    types = ("HTTPResponseDelay", "HTTPResponseAbort", "PodKill", "NetworkDelay", "CPUStress")
    for service, type_ in itertools.product(pack.services(), types):
        assert annotate_opened(opened, [fault(type_, service)]).label is Label.NO_EFFECT


def test_retry_that_hides_the_failure_is_absorbed(tmp_path):
    flaky = Call("flaky", "GET /price", own_ms=8)
    shop = Call("shop", "GET /offer", calls=(Call("flaky", "GET /price", own_ms=8, attempts=6),))
    effect = Effect(fails={"flaky": 0.4})
    pack = make_pack(tmp_path / "pack", {Call("gateway", "GET /", calls=(shop,)): 8.0}, effect)
    found = annotate(pack, [fault("HTTPResponseAbort", flaky.service, effect)])
    assert found.label is Label.ABSORBED, found.reason
    assert found.graph.nodes == ()


def test_coincidence_in_an_unrelated_service_is_no_part_of_the_cascade(tmp_path):
    effect = Effect(own_ms={"payment": 300, "weather": 200})
    pack = make_pack(tmp_path / "pack", systems.deep(), effect)
    found = annotate(pack, [fault("HTTPResponseDelay", "payment", effect)])
    assert found.label is Label.ATTRIBUTED
    assert "weather" not in found.graph.services()
    assert found.alarms["explained"] == ("span|gateway::POST /checkout",)
    assert found.alarms["unexplained"] == ("span|gateway::GET /noise",)


def test_a_fault_that_only_a_bystander_feels_is_not_explained_by_it(tmp_path):
    effect = Effect(own_ms={"payment": 300}, fails={"weather": 0.5})
    pack = make_pack(tmp_path / "pack", systems.deep(), effect)
    found = annotate(pack, [fault("HTTPResponseAbort", "catalogue", effect)])
    assert found.label is Label.UNEXPLAINED
    assert found.rejected[0].gate == "signature"


@pytest.mark.slow
def test_callers_that_give_up_waiting_fail_because_of_the_slow_callee(tmp_path):
    slow = Call("slow", "GET /slow", own_ms=10, timeout_ms=400)
    middle = Call("middle", "GET /middle", calls=(slow,))
    effect = Effect(own_ms={"slow": 900})
    pack = make_pack(tmp_path / "pack", {Call("gateway", "GET /", calls=(middle,)): 8.0}, effect)
    found = annotate(pack, [fault("HTTPResponseDelay", "slow", effect)])
    assert found.label is Label.ATTRIBUTED, found.rejected
    assert found.graph.service_edges() == {("slow", "middle"), ("middle", "gateway")}
    assert all(
        annotate(pack, [fault("HTTPResponseDelay", "slow", effect)], root=s).label is not Label.ATTRIBUTED
        for s in ("middle", "gateway")
    )


def test_same_inputs_same_bytes(tmp_path):
    case = CASES["diamond"]
    pack = make_pack(tmp_path / "pack", case.system, case.effect)
    texts = {
        json.dumps(
            annotate(pack, [fault(case.type, case.root, case.effect)]).model_dump(mode="json", exclude={"seconds"})
        )
        for _ in range(3)
    }
    assert len(texts) == 1


def test_an_entrance_that_is_gone_is_felt_by_the_load_generator_alone(tmp_path):
    effect = Effect(gone=frozenset({"gateway"}), restarts=frozenset({"gateway"}), from_s=5, to_s=8)
    pack = make_pack(tmp_path / "pack", systems.deep(), effect)
    found = annotate(pack, [fault("PodKill", "gateway", effect)])
    assert found.label is Label.ATTRIBUTED
    assert found.graph.service_edges() == set()
    assert len(found.alarms["explained"]) == 3


def test_span_links_carry_silence_into_another_trace(tmp_path):
    effect = Effect(gone=frozenset({"orders"}), from_s=1)
    tables = frames(systems.queue(), effect)
    behind = pl.col("service_name").is_in(["shipping", "carrier"])
    consumer = pl.col("attr.span_kind") == "Consumer"
    for period in ("normal", "abnormal"):
        tables[period, "traces"] = tables[period, "traces"].with_columns(
            pl.when(consumer).then(pl.lit("")).otherwise("parent_span_id").alias("parent_span_id"),
            pl.when(behind).then(pl.col("trace_id") + "-later").otherwise("trace_id").alias("trace_id"),
            pl.when(consumer).then(pl.col("trace_id") + ":" + pl.col("parent_span_id")).alias("attr.links"),
        )
    write_datapack(tmp_path / "pack", tables, incident(), {})
    found = annotate(Datapack.open(tmp_path / "pack"), [fault("PodFailure", "orders", effect)])
    assert found.graph.service_edges() == {("orders", "gateway"), ("orders", "shipping")}
    assert {e.rule for e in found.graph.edges if e.target.startswith("span|shipping")} == {"A-F1"}


@pytest.mark.slow
@pytest.mark.parametrize("counted", [True, False])
def test_who_kept_running_was_not_killed(tmp_path, counted):
    """Calls go unserved; where restarts are counted and there was none, a kill is not the reason."""
    effect = Effect(gone=frozenset({"payment"}), from_s=5, to_s=8)
    tables = frames(systems.deep(), effect)
    if not counted:
        for period in ("normal", "abnormal"):
            table = tables[period, "metrics"]
            tables[period, "metrics"] = table.filter(pl.col("metric") != "k8s.container.restarts")
    write_datapack(tmp_path / "pack", tables, incident(), {})
    found = annotate(Datapack.open(tmp_path / "pack"), [fault("PodKill", "payment", effect)])
    assert found.label is (Label.UNEXPLAINED if counted else Label.ATTRIBUTED)
    assert ("kept running" in found.reason) == counted
