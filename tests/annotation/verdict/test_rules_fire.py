"""Every rule of Table 7 leads to an accepted edge on some pack: a rule that nothing can fire is an error."""

from __future__ import annotations

import pytest

from annotation import systems
from annotation.cascade import Call, Effect, fault, frames, incident, make_pack
from annotation.search.test_rules import TABLE_7
from annotation.verdict.test_hosts import of_host, placed
from annotation.verdict.test_mechanisms import hollow, in_one_pod
from opsassay.annotation.evidence.slo import SurfaceSlo
from opsassay.annotation.verdict.annotate import annotate
from opsassay.annotation.verdict.settings import AnnotateSettings
from opsassay.core.schema.incident import Label
from opsassay.telemetry.content import write_datapack
from opsassay.telemetry.datapack import Datapack


def impatient():
    """gateway > orders > payment: orders gives up on payment after 300 ms."""
    payment = Call("payment", "POST /charge", timeout_ms=300)
    return {Call("gateway", "POST /checkout", calls=(Call("orders", "POST /orders", calls=(payment,)),)): 8.0}


def made(folder, type_, effect, service="payment", system=None):
    return make_pack(folder, system or systems.deep(), effect), fault(type_, service, effect)


def shared(folder):
    effect = Effect(own_ms={"payment": 80, "weather": 60}, cpu={"payment": 0.9})
    write_datapack(folder, in_one_pod(frames(systems.deep(), effect), "payment", "weather"), incident(), {})
    return Datapack.open(folder), fault("CPUStress", "payment", effect)


def strained_host(folder):
    effect = Effect(own_ms={"payment": 120, "weather": 90})
    return placed(folder, effect, {"host-b": 1.5}), of_host("CPUStress", effect)


STARVED = Effect(own_ms={"payment": 80}, cpu={"payment": 0.9})
KILLED = Effect(gone=frozenset({"payment"}), restarts=frozenset({"payment"}))
SLOW = Effect(own_ms={"payment": 300})
FAILING = Effect(fails={"payment": 0.7})
GIVEN_UP = Effect(fails={"payment": 0.5}, own_ms={"payment": 500})
DELAYED = Effect(directed_ms={("*", "payment"): 200})

CASES = {
    "C-01": lambda folder: made(folder, "CPUStress", STARVED),
    "C-02": lambda folder: made(folder, "PodKill", KILLED),
    "P-01": strained_host,
    "S-01": lambda folder: made(folder, "HTTPResponseDelay", SLOW),
    "S-02": lambda folder: made(folder, "HTTPResponseAbort", FAILING),
    "H-01": lambda folder: made(folder, "HTTPResponseDelay", SLOW),
    "H-02": lambda folder: made(folder, "HTTPResponseAbort", FAILING),
    "H-03": lambda folder: made(folder, "PodFailure", Effect(gone=frozenset({"payment"}))),
    "H-04": lambda folder: made(
        folder, "HTTPResponseAbort", Effect(fails={"price": 0.5}), "price", hollow(optional=True)
    ),
    "H-05": lambda folder: made(folder, "HTTPResponseAbort", GIVEN_UP, system=impatient()),
    "H-06": lambda folder: made(folder, "NetworkDelay", DELAYED),
    "H-07": lambda folder: made(
        folder, "HTTPResponseReplaceBody", Effect(changes={"price": 0.6}), "price", hollow(optional=False)
    ),
    "X-01": shared,
}


BESIDE = {"H-05": (frozenset({"H-02", "A-H1", "A-H3"}), SurfaceSlo(surface=("orders",)))}
"""Rules that name the same edge first, by another state of its ends, and where users feel it."""


@pytest.mark.sampled
@pytest.mark.parametrize("rule", TABLE_7)
def test_a_rule_leads_to_an_accepted_edge(tmp_path, rule):
    pack, true = CASES[rule](tmp_path / "pack")
    off, slo = BESIDE.get(rule, (frozenset(), SurfaceSlo()))
    found = annotate(pack, [true], settings=AnnotateSettings(rules_off=off, slo=slo))
    assert found.label is Label.ATTRIBUTED, (found.reason, found.rejected)
    assert rule in {edge.rule for edge in found.graph.edges}
    without = annotate(pack, [true], settings=AnnotateSettings(rules_off=off | {rule}, slo=slo))
    assert rule not in {edge.rule for edge in without.graph.edges}
