"""What a trial knows of its alerts while it lasts: what has fired, for how long it is quiet, whether somebody looks."""

from __future__ import annotations

import time

import pytest

from opsassay.core.errors import LostError, OperationError
from opsassay.core.schema.scenario import AlertRule
from opsassay.evals.remediation import environment
from opsassay.testbed.operations import alert_watch
from opsassay.testbed.operations.alert_watch import AlertWatch
from opsassay.testbed.operations.live import TICK_S
from scoring.verifiers.made import firing, scenario

ERRORS, SLOW = ("front", "error_rate"), ("cart", "latency_p99_ms")
RULES = [AlertRule(service="front", signal="error_rate")]


class Said:
    """Alert rules that say one thing after the other, and the last for ever; an exception is raised."""

    def __init__(self, *said):
        self.left = list(said)

    def firing(self):
        found = self.left.pop(0) if len(self.left) > 1 else self.left[0]
        if isinstance(found, Exception):
            raise found
        return time.time_ns(), list(firing(1, *found).firing)


@pytest.fixture(autouse=True)
def _quick(monkeypatch):
    monkeypatch.setattr(alert_watch, "TICK_S", 0.02)
    monkeypatch.setattr(environment, "ALERTS_TIMEOUT_S", 0.3)
    assert TICK_S == 2.0


def await_true(condition):
    ends = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < ends
        time.sleep(0.01)


def await_quiet(watch):
    """Wait until RULES have fired, and then until they do not."""
    await_true(lambda: not watch.silent(RULES))
    await_true(lambda: watch.quiet_s(RULES) > 0)


def test_what_never_fired_is_quiet_since_the_watch_began(tmp_path):
    before = time.monotonic()
    with AlertWatch(Said([]), tmp_path) as watch:
        began = time.monotonic()
        await_true((tmp_path / "alerts.jsonl").exists)
        least = time.monotonic() - began
        assert least <= watch.quiet_s(RULES) <= time.monotonic() - before


def test_what_has_fired_is_known_and_quiet_counts_from_the_last_evaluation_that_had_it(tmp_path):
    before = time.monotonic()
    with AlertWatch(Said([], [ERRORS], [ERRORS], []), tmp_path) as watch:
        assert watch.silent(RULES) in ([], ["front error_rate"])
        await_quiet(watch)
        early = watch.quiet_s(RULES)
        await_true(lambda: watch.quiet_s(RULES) > early)
        assert watch.quiet_s(RULES) < time.monotonic() - before
        assert watch.silent([AlertRule(service="cart", signal="error_rate")]) == ["cart error_rate"]
    assert (tmp_path / "alerts.jsonl").read_text().count("\n") >= 4


def test_what_fired_before_the_trigger_is_no_alert_of_the_trigger(tmp_path):
    with AlertWatch(Said([ERRORS], []), tmp_path) as watch:
        await_quiet(watch)
        assert watch.silent(RULES, time.time_ns()) == ["front error_rate"]
        assert watch.silent([], time.time_ns()) == ["any alert"]


def test_one_that_fires_is_not_quiet_whatever_the_others_do(tmp_path):
    with AlertWatch(Said([ERRORS, SLOW], [SLOW]), tmp_path) as watch:
        await_quiet(watch)
        assert watch.quiet_s([]) == 0.0
        assert watch.silent([]) == []


@pytest.mark.parametrize("failure", [LostError("The system is gone."), RuntimeError("a table is torn")])
def test_a_watch_that_ends_is_heard_of(tmp_path, failure):
    with AlertWatch(Said([ERRORS], failure), tmp_path) as watch:
        await_true(lambda: watch.failure is not None)
    assert isinstance(watch.failure, LostError)
    assert str(failure).rstrip(".") in str(watch.failure)


class Standing:
    """A stage whose system is there."""

    def require_alive(self):
        """It is."""


def test_readings_that_are_missing_for_a_while_are_missing_and_no_more(tmp_path):
    away = LostError("The API server cannot be reached.")
    with AlertWatch(Said([ERRORS], away, away, away, []), tmp_path, patience_s=30.0) as watch:
        await_quiet(watch)
        assert watch.failure is None
        environment.require_alive(Standing(), watch)
    with AlertWatch(Said([ERRORS], away), tmp_path, patience_s=30.0) as watch:
        await_true(lambda: watch.unread is away)
        assert watch.failure is None
        with pytest.raises(LostError, match="cannot be reached"):
            environment.require_alive(Standing(), watch)
    began = time.monotonic()
    with AlertWatch(Said([ERRORS], away), tmp_path, patience_s=0.3) as watch:
        await_true(lambda: watch.failure is away)
        assert time.monotonic() - began >= 0.3
        assert watch.quiet_s(RULES) == 0.0


def made(*rules):
    committed = scenario(alerts={"triggering": [{"service": s, "signal": g} for s, g in rules], "hold_s": 0})
    environment = committed.environment.model_copy(update={"settle_s": 0.0})
    return committed.model_copy(update={"environment": environment})


def test_nobody_is_let_in_before_the_alerts_have_fired(tmp_path):
    with AlertWatch(Said([], [], [ERRORS], []), tmp_path) as watch:
        environment._await_alerts(made(ERRORS), watch, tmp_path, 0)
        assert not watch.silent(RULES)
    with AlertWatch(Said([SLOW]), tmp_path) as watch:
        with pytest.raises(OperationError, match=r"front error_rate did not fire within 0\.3 s of the trigger"):
            environment._await_alerts(made(ERRORS), watch, tmp_path, 0)
        environment._await_alerts(made(), watch, tmp_path, 0)  # without a list whatever fires
    with AlertWatch(Said([]), tmp_path) as watch, pytest.raises(OperationError, match="any alert did not fire"):
        environment._await_alerts(made(), watch, tmp_path, 0)
    with (
        AlertWatch(Said(LostError("The system is gone.")), tmp_path) as watch,
        pytest.raises(LostError, match="is gone"),
    ):
        environment._await_alerts(made(ERRORS), watch, tmp_path, 0)
