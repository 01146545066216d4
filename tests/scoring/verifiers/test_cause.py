"""A repair is no repair while what was broken stands where it was broken."""

from __future__ import annotations

from dataclasses import replace

import pytest

from opsassay.core.schema.scenario import Scenario
from opsassay.core.schema.trajectory import Entity, SettingsReading
from opsassay.scoring.verifiers import gather, judge_run
from scoring.verifiers.made import at, recording, scenario, timeline

AGENT = {"deployed": 0, "triggered": 4, "started": 10, "ended": 20}
RESTART = {"verb": "restart", "arguments": {"target": "front"}}


def setting(value):
    return {"verb": "config set", "arguments": {"target": "front", "key": "PORT", "value": value}}


def made(trigger, *repairs, **rule):
    """Return a scenario that begins with *trigger*, and whose right repairs are *repairs*."""
    payload = scenario(cause=rule).model_dump(mode="json", by_alias=True)
    payload["trigger"]["operations"] = trigger
    payload["oracles"] = {f"right-{n}": {"expect": "certified", "steps": steps} for n, steps in enumerate(repairs)}
    return Scenario.model_validate(payload)


def judged(one, readings, *, fleet=None):
    """Judge by the settings at given seconds, and by the replicas (name, incarnation) at given ticks."""
    entities = {
        tick: [Entity(id=name, service=name.split("-")[0], ready=True, incarnation=life) for name, life in there]
        for tick, there in (fleet or {}).items()
    }
    run = recording(timeline([1.0] * 25, entities=entities), **AGENT)
    noted = tuple(SettingsReading(time_ns=at(second), settings={}, others=others) for second, others in readings)
    return {j.predicate: j for j in judge_run(gather(replace(run, settings=noted)), one)[0]}["v_cause"]


RIGHT, WRONG = {"front PORT": "8080"}, {"front PORT": "9090"}
PORT = made([setting("9090"), RESTART], [setting("8080"), RESTART])


@pytest.mark.parametrize(("end", "gone"), [(RIGHT, True), (WRONG, False), ({"front PORT": "8081"}, True), ({}, True)])
def test_a_setting_that_the_fault_changed_may_not_be_left_as_it_is(end, gone):
    found = judged(PORT, [(3, RIGHT), (9, WRONG), (20, end), (24, end)])
    assert (found.passed, found.failed) == (gone, not gone), found.reason
    assert gone or "front PORT is as the fault left it" in found.reason


def test_a_setting_that_one_right_repair_leaves_is_not_the_cause():
    either = made([setting("9090")], [setting("8080")], [RESTART])
    assert judged(either, [(3, RIGHT), (9, WRONG), (24, WRONG)]).status == "not_applicable"
    spared = made([setting("9090")], [setting("8080")], except_for=["front PORT"])
    assert judged(spared, [(3, RIGHT), (9, WRONG), (24, WRONG)]).status == "not_applicable"


@pytest.mark.parametrize(
    ("last", "survivors"),
    [
        ([("front-1", "pod-a/0"), ("front-2", "pod-b/0")], "front-1 is the process that was broken; front-2"),
        ([("front-1", "pod-c/0"), ("front-2", "pod-b/0")], "front-2 is the process that was broken"),
        ([("front-1", "pod-a/0"), ("front-2", "pod-b/0"), ("front-3", "pod-d/0")], "front-1 is the process"),
        ([("front-1", "pod-a/1"), ("front-2", "pod-d/0")], ""),
        ([("front-3", "pod-c/0"), ("front-4", "pod-d/0")], ""),
    ],
)
@pytest.mark.parametrize("verb", ["consumer stall", "pool leak"])
def test_a_process_that_was_broken_may_not_run_on_whatever_runs_beside_it(verb, last, survivors):
    mishap = made([{"verb": verb, "arguments": {"service": "front"}}], [RESTART])
    fleet = {0: [("front-1", "pod-a/0"), ("front-2", "pod-b/0"), ("back-1", "pod-x/0")], 18: last}
    gone = [one for one in fleet[0] if one[0] not in {name for name, _ in last} and one[0] != "back-1"]
    found = judged_without(mishap, fleet, [name for name, _ in gone])
    assert found.failed is bool(survivors), found.reason
    assert survivors in found.reason


def judged_without(one, fleet, gone):
    """Judge like `judged`, with *gone* replicas that are no longer there from tick 18 on."""
    entities = {
        tick: [Entity(id=name, service=name.split("-")[0], ready=True, incarnation=life) for name, life in there]
        for tick, there in fleet.items()
    }
    whole = timeline([1.0] * 25, entities=entities)
    ticks = [tick.model_copy(update={"gone": tuple(gone)}) if tick.index == 18 else tick for tick in whole.ticks]
    run = recording(whole.model_copy(update={"ticks": tuple(ticks)}), **AGENT)
    noted = tuple(SettingsReading(time_ns=at(second), settings={}) for second in (3, 9, 24))
    return {j.predicate: j for j in judge_run(gather(replace(run, settings=noted)), one)[0]}["v_cause"]


def test_settings_that_were_not_recorded_are_missing_evidence():
    found = judged(PORT, [(3, RIGHT), (9, WRONG)])
    assert found.failed
    assert "missing evidence" in found.reason
