"""Nothing that a recording draws says what was broken: every scalar of the view is held against the fault.

The attacks draw as former code did, from the plan and its seed; the control is the code as it is. Both record played
systems, whose telemetry is the same whatever is broken (`played.py`), through the campaign and the recorder themselves.
"""

from __future__ import annotations

import hashlib
import random

import pytest

from opsassay.core.schema.incident import FaultPlan
from opsassay.telemetry.content import opaque_id
from opsassay.telemetry.tree import Tree
from opsassay.testbed.campaign import load_plan, run_campaign
from opsassay.testbed.recording.record import Schedule, record

from .played import PLAN, Clock, Played, put_on, tiny
from .view import most_telling, scalars

CLASS = "25 draws of a view"
CHANCE = 0.05


@pytest.fixture
def stage(monkeypatch):
    """Return the substrate of played systems; the secrets of campaigns follow from a seed, so that each run is the same."""
    drawn = random.Random(20261130)
    monkeypatch.setattr("opsassay.testbed.campaign.new_secret", lambda: drawn.randbytes(16).hex())
    return put_on(monkeypatch, Clock())


def recorded(stage, folder, campaigns):
    """Return (what was broken, view) of *campaigns* recordings of each of the ten plans of one file."""
    (folder / "plan.yaml").write_text(PLAN)
    planned, found = load_plan(folder / "plan.yaml"), []
    for number in range(campaigns):
        tree, stage.seen = Tree(folder / str(number)), number % 3 > 0
        assert not [one.error for one in run_campaign(planned, tree, 1) if one.error]
        views = {id_: scalars(tree.incident_path(id_)) for id_ in tree.ids()}
        for place, id_ in enumerate(sorted(views, key=lambda one: views[one]["incident.normal.start_ns"])):
            views[id_]["place in the campaign"] = place
        found += [(tree.truth(id_).faults[0], view) for id_, view in views.items()]
    assert len(found) == 10 * campaigns
    return found


def told(found):
    """Return by what is asked for (the type, the service, the plan) which scalar says most of it, and how likely by chance."""
    views = [view for _, view in found]
    asked = {
        "type": [fault.type for fault, _ in found],
        "service": [str(fault.service) for fault, _ in found],
        "plan": [f"{fault.type} {fault.service}" for fault, _ in found],
    }
    return {what: most_telling(labels, views) for what, labels in asked.items()}


@pytest.mark.slow
def test_no_scalar_of_two_hundred_views_says_what_was_broken(stage, tmp_path):
    most = told(recorded(stage, tmp_path, 20))
    assert {what: found for what, found in most.items() if found.p <= CHANCE} == {}


def windows_of_the_plan(monkeypatch, stage):
    drawn = lambda _secret, _purpose: random.Random(f"0:{stage.plan.model_dump_json()}")  # noqa: E731
    monkeypatch.setattr("opsassay.testbed.recording.record.derived_random", drawn)


def secrets_of_the_seed(monkeypatch, _stage):
    drawn = lambda _secret, text: hashlib.sha256(text.encode()).hexdigest()[:32]  # noqa: E731
    monkeypatch.setattr("opsassay.testbed.campaign.derived_secret", drawn)


def order_of_the_plan(monkeypatch, _stage):
    class Unshuffled(random.Random):
        def shuffle(self, x):
            pass

    monkeypatch.setattr("opsassay.testbed.campaign.derived_random", lambda _secret, _purpose: Unshuffled())


def ids_of_the_plan(monkeypatch, _stage):
    monkeypatch.setattr("opsassay.testbed.campaign.opaque_id", lambda text: opaque_id(text.partition(" ")[2]))


FORMER = {
    "windows of the plan": windows_of_the_plan,
    "all of its seed and number": secrets_of_the_seed,
    "order of the plan": order_of_the_plan,
    "ids of the plan": ids_of_the_plan,
}


@pytest.mark.sampled
@pytest.mark.parametrize("what", FORMER)
def test_what_is_drawn_from_the_plan_again_is_found(stage, tmp_path, monkeypatch, what):
    FORMER[what](monkeypatch, stage)
    most = told(recorded(stage, tmp_path, 4))
    assert most["plan"].p <= CHANCE / 3, most


def test_under_one_secret_views_of_two_plans_differ_in_nothing_and_of_one_plan_under_two_in_all(monkeypatch, tmp_path):
    views = {}
    for name, fault, secret in (
        ("a", "NoFault", "0" * 32),
        ("b", "NetworkDelay", "0" * 32),
        ("c", "NoFault", "1" * 32),
    ):
        stage = put_on(monkeypatch, Clock())
        target = None if fault == "NoFault" else {"service": "back"}
        plan, seed = FaultPlan.model_validate({"fault": fault, "target": target}), int(secret, 16)
        played, tree = Played(stage, tiny(), "played", seed, "plain"), Tree(tmp_path / name)
        id_ = record(played, tiny(), plan, tree, Schedule(), secret=secret)
        views[name] = scalars(tree.incident_path(id_))
    assert views["a"] == views["b"]
    drawn = ["folder", "abnormal length", "pre-roll"]
    drawn += ["normal_logs.parquet message first", "normal_traces.parquet attr.k8s.pod.name first"]
    assert [name for name in drawn if views["a"][name] == views["c"][name]] == []
