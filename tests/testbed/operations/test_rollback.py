"""`undo_last` takes an agent's changes back, the last one first, and says what nothing takes back."""

from __future__ import annotations

import json

import pytest

from opsassay.core.errors import RefusedError
from opsassay.evals.remediation.plan import TrialPlan, cells_of
from opsassay.testbed.operations.rollback import RollbackJournal
from opsassay.testbed.operations.tools import VerbToolSession


class Shop:
    """A system of one service with settings, replicas and a release."""

    def __init__(self):
        self.settings, self.replicas, self.release = {"POOL_SIZE": "4"}, 2, "v1"

    def operate(self, verb, given):
        if verb == "config get":
            return {"settings": dict(self.settings)}
        if verb == "describe":
            return {"replicas": [{"release": self.release}] * self.replicas}
        if verb == "config set":
            self.settings[given["key"]] = given["value"]
        elif verb == "config unset":
            del self.settings[given["key"]]
        elif verb == "scale":
            self.replicas = given["replicas"]
        elif verb == "release":
            self.release = given["version"]
        return {}

    def state(self):
        return dict(self.settings), self.replicas, self.release


CHANGES = {
    "config_set": {"target": "orders", "key": "POOL_SIZE", "value": "1"},
    "config_unset": {"target": "orders", "key": "POOL_SIZE"},
    "scale": {"service": "orders", "replicas": 5},
    "release": {"service": "orders", "version": "v2"},
}


def test_changes_are_taken_back_in_the_reverse_order_and_recorded_as_changes():
    shop, actions, states = Shop(), [], []
    session = VerbToolSession(shop, None, actions.append)
    session.allow_undo()
    session.call("config_set", {"target": "orders", "key": "NEW", "value": "1"})
    for tool, given in CHANGES.items():
        states.append(shop.state())
        assert session.call(tool, given).status == "ok"
    for state in reversed(states):
        undone = session.call("undo_last", {})
        assert undone.status == "ok"
        assert json.loads(undone.output)["undone by"]
        assert shop.state() == state
    session.call("undo_last", {})
    assert shop.state() == Shop().state()
    assert session.call("undo_last", {}).output == "Error: Nothing of yours is left that could be taken back."
    undoing = [action for action in actions if action.tool == "undo_last" and action.status == "ok"]
    assert all(action.mutating and action.touched == ("orders",) for action in undoing)


def test_what_nothing_takes_back_is_said_and_stays_the_last_change():
    shop = Shop()
    session = VerbToolSession(shop, None, lambda _: None)
    session.allow_undo()
    session.call("scale", {"service": "orders", "replicas": 5})
    session.call("restart", {"target": "orders"})
    for _ in range(2):
        assert "restart, which nothing takes back" in session.call("undo_last", {}).output
    assert shop.replicas == 5


def test_a_change_that_failed_is_not_taken_back():
    journal = RollbackJournal(Shop().operate)
    with pytest.raises(RefusedError):
        journal.undo()
    session = VerbToolSession(Shop(), None, lambda _: None)
    assert "there is no tool 'undo_last'" in session.call("undo_last", {}).output


def test_it_is_an_arm_of_this_machine_alone():
    plan = TrialPlan(
        scenarios=("bad-release", "replicas-scaled-to-zero"),
        agents=({"name": "sre", "model": "m"},),
        rollback=(False, True),
    )
    labels = {(cell.task_name, cell.cell.arm.knob("rollback")) for cell in cells_of(plan)}
    assert labels == {("bad-release", None), ("bad-release", "on"), ("replicas-scaled-to-zero", None)}
    assert {("undo_last" in cell.operator_tools()) == cell.rollback for cell in cells_of(plan)} == {True}
