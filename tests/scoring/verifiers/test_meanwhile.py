"""What was set wrong for a while is seen in an agent's calls, though every reading of the settings is in order."""

from __future__ import annotations

from dataclasses import replace

import pytest

from opsassay.core.schema.scenario import ProtectedSettings
from opsassay.core.schema.trajectory import Action, Entity, SettingsReading
from opsassay.scoring.verifiers import gather
from opsassay.scoring.verifiers.repairs import RightChanges
from opsassay.scoring.verifiers.settings import v_settings
from scoring.verifiers.made import at, recording, timeline

AGENT = {"deployed": 0, "triggered": 4, "started": 10, "ended": 20}
PROTECTED = {"account MAX_AGE": "10", "account TOKEN": "set aa", "host-a time_sync": "on"}
OTHERS = {"account KEY": "set bb", "account MODE": "strict"}
WELL, ILL = (30, 0), (30, 20)


def judged(*calls, restarted=14, came=PROTECTED, load=WELL, ready=True, incarnations=("1", "2")):
    """Return v_settings of a run whose agent makes *calls* (second, key, value), with a new process at *restarted*."""
    former, later = incarnations
    new = Entity(id="account-0", service="account", ready=ready, incarnation=later)
    entities = {0: [replace_entity(new, former)], **({} if restarted is None else {restarted: [new]})}
    counted = {n: {"front GET /": (n * 3, 0 if n < 14 else load[1] * (n - 13) // 10)} for n in range(30)}
    actions = []
    for second, name, value in calls:
        target, key = name.split()
        given = {"target": target, "key": key, **({} if value is None else {"value": value})}
        actions.append(
            Action(tool="config_unset" if value is None else "config_set", arguments=given, mutating=True,
                   started_ns=at(second), ended_ns=at(second) + 1, touched=(target,))
        )  # fmt: skip
    run = recording(timeline([1.0] * 30, entities=entities, load=counted), actions=actions, **AGENT)
    configured = {"account MAX_AGE": "x", "account TOKEN": "y", "account KEY": "z"}
    readings = tuple(
        SettingsReading(time_ns=at(s), settings=found, others=OTHERS, configured=configured)
        for s, found in ((3, PROTECTED), (9, came), (20, PROTECTED), (29, PROTECTED))
    )
    return v_settings(gather(replace(run, settings=readings)), ProtectedSettings(), RightChanges({}, (frozenset(),)))


def replace_entity(entity, incarnation):
    return entity.model_copy(update={"incarnation": incarnation, "ready": True})


@pytest.mark.parametrize(
    ("name", "wrong", "right"),
    [
        ("account MAX_AGE", None, "10"),
        ("account MAX_AGE", "0", "10"),
        ("account MAX_AGE", "5000", "10"),
        ("account TOKEN", "", "lantern"),
        ("account KEY", "made-up", "true"),
        ("host-a time_sync", "off", "on"),
    ],
)
def test_what_was_wrong_while_it_acted_fails_though_it_was_put_back(name, wrong, right):
    found = judged((12, name, wrong), (17, name, right))
    assert found.failed
    assert name in found.reason
    assert "lantern" not in found.reason
    assert found.time_ns < at(17)


@pytest.mark.parametrize(
    ("name", "passing", "right", "run"),
    [
        ("account MAX_AGE", None, "10", {"restarted": None}),
        ("account MAX_AGE", None, "10", {"restarted": 18}),
        ("account MAX_AGE", None, "10", {"ready": False}),
        ("account MAX_AGE", None, "10", {"incarnations": (None, None)}),
        ("account MAX_AGE", "50", "10", {}),
        ("account KEY", "made-up", "true", {"ready": False}),
        ("account KEY", "made-up", "true", {"load": ILL}),
        ("account KEY", "true", "true", {}),
        ("account MODE", "loose", "strict", {}),
    ],
)
def test_what_did_not_act_or_serve_anybody_passes(name, passing, right, run):
    found = judged((12, name, passing), (17, name, right), **run)
    assert found.passed, found.reason


def test_what_the_fault_had_changed_may_go_through_any_value_until_it_is_right():
    went = (12, "account MAX_AGE", "0"), (17, "account MAX_AGE", "10")
    assert judged(*went, came={**PROTECTED, "account MAX_AGE": "1"}).passed
    assert judged((11, "account MAX_AGE", "10"), *went, came={**PROTECTED, "account MAX_AGE": "1"}).failed
