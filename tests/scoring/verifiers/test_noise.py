"""What the environment does as background noise is not held against an agent, and hides nothing that an agent does."""

from __future__ import annotations

from dataclasses import replace

import pytest

from opsassay.core.schema.trajectory import EnvironmentAction
from opsassay.scoring.verifiers import evidence_of, judge_run
from scoring.verifiers.made import at, change, entity, firing, recording, scenario, timeline

READY = [entity("front-0"), entity("front-1"), entity("side-0"), entity("side-1")]
DOWN, UP = entity("side-0", ready=False), entity("side-0")
DIP = [1.0, 1.0, 1.0, 1.0, (0.75, ("side-0",)), (0.75, ("side-0",)), 1.0, 1.0, 1.0, 1.0]


def restart(begin, end, *touched):
    return EnvironmentAction(
        kind="restart", target="side", amount=0.0, started_ns=at(begin), ended_ns=at(end), touched=touched
    )


def recorded(shares=DIP, changes=None, noise=(), **how):
    made = timeline(shares, entities={0: READY, **(changes or {4: [DOWN], 6: [UP]})})
    made = recording(made, deployed=-1, triggered=1.5, started=2.5, ended=8.5, probes_on=False, **how)
    return replace(made, noise=tuple(noise))


def judged(made, **committed):
    """Return predicate to judgement under a floor that no replica may go below."""
    by = scenario(floor_availability=0.9, no_regression={}, blast_radius={}, **committed)
    return {one.predicate: one for one in judge_run(evidence_of(made, by), by)[0]}


@pytest.mark.parametrize("denominator", ["present", "before"])
def test_a_restart_by_the_noise_is_held_against_nobody(denominator):
    alone = judged(recorded(), denominator=denominator)
    assert alone["v_temporal"].failed
    spared = judged(recorded(noise=[restart(3.5, 5.5, "side-0")]), denominator=denominator)
    assert {name for name, one in spared.items() if one.failed} == set()
    assert spared["v_temporal"].value == 1.0


def test_another_replica_and_another_time_are_not_excused():
    assert judged(recorded(noise=[restart(3.5, 5.5, "side-1")]))["v_temporal"].failed
    assert judged(recorded(noise=[restart(3.5, 4.5, "side-0")]))["v_temporal"].failed
    both = [(0.5, ("front-0", "side-0")) if one != 1.0 else one for one in DIP]
    assert judged(recorded(both, noise=[restart(3.5, 5.5, "side-0")]))["v_temporal"].value == pytest.approx(0.75)


@pytest.mark.parametrize("touched", ["side", "side-0"])
def test_an_agent_cannot_hide_behind_the_noise(touched):
    own = change(3.6, 1.8, touched=[touched])
    assert judged(recorded(noise=[restart(3.5, 5.5, "side-0")], actions=[own]))["v_temporal"].failed
    look = own.model_copy(update={"mutating": False})
    assert judged(recorded(noise=[restart(3.5, 5.5, "side-0")], actions=[look]))["v_temporal"].passed


def test_a_replica_that_stays_down_is_seen_when_its_restart_is_over():
    broken = [1.0] * 4 + [(0.75, ("side-0",))] * 6
    found = judged(recorded(broken, {4: [DOWN]}, [restart(3.5, 5.5, "side-0")]), denominator="before")
    assert found["v_temporal"].failed
    assert found["v_temporal"].time_ns == at(6)
    assert found["v_no_regression"].failed


def test_alerts_about_a_restart_are_not_those_of_the_incident():
    readings = [firing(second, ("front", "error_rate"), ("side", "replicas_missing")) for second in (2, 3)]
    readings += [firing(second, ("side", "replicas_missing")) for second in (5, 7, 9)]
    known = {"alerts": {"triggering": [], "hold_s": 2}}
    assert judged(recorded(alerts=readings), **known)["alerts_cleared"].failed
    assert judged(recorded(noise=[restart(1.8, 3.2, "side-0")], alerts=readings), **known)["alerts_cleared"].passed
