"""Effect checks on counters made by hand: noise is no effect, and a link that is not touched does not count."""

from __future__ import annotations

import random
from pathlib import Path
from types import SimpleNamespace

import pytest

from opsassay.core.schema.incident import PlannedFault
from opsassay.testbed.apps import load_system
from opsassay.testbed.catalogue.network import links_resend, links_slow
from opsassay.testbed.catalogue.stress import allocated_bytes, burner_count
from opsassay.testbed.core.fleet import Fleet
from opsassay.testbed.core.injection import Injection
from opsassay.testbed.core.links import affected

CORNER = load_system(str(Path(__file__).parents[1] / "faults.yaml"))
BEFORE_S, AFTER_S, STEP_S, CALLS = 10.0, 5.0, 0.5, 5


def counted(history, activity, before_ms, after_ms):
    """Fill *history* with readings twice a second; *before_ms* and *after_ms* draw the time of one call."""
    count = total_ns = 0
    steps = int((BEFORE_S + AFTER_S) / STEP_S)
    for step in range(steps + 1):
        at = step * STEP_S
        merged = dict(history[step][1]) if len(history) > step else {}
        merged[activity] = [count, 0, total_ns]
        if len(history) > step:
            history[step] = (at, merged)
        else:
            history.append((at, merged))
        draw = before_ms if at < BEFORE_S else after_ms
        count += CALLS
        total_ns += int(sum(draw() for _ in range(CALLS)) * 1e6)


def reading(signature, fault, parameters, **times):
    """Return (before, after, threshold) of *fault* on stock, whose calls take what *times* draws."""
    fleet = Fleet(CORNER, 0)
    plan = PlannedFault.model_validate({"fault": fault, "target": {"service": "stock"}, "parameters": parameters})
    stock, front = fleet.replicas_of("stock")[0], fleet.replicas_of("front")[0]
    for history, activity, name in [
        (front.history, "call:stock", "front"),
        (stock.history, "call:rate", "rate"),
        (stock.history, "sql:db", "db"),
    ]:
        usual, now = times.get(name, (lambda: 5.0, lambda: 5.0))
        counted(history, activity, usual, now)
    injection = Injection("i", plan, affected(fleet, plan), (), SimpleNamespace(fleet=fleet))
    return signature(injection, (0.0, BEFORE_S))


def noisy(seed, spread=30.0):
    """Return a draw of times that scatter around 5 ms as those of a busy machine do."""
    chance = random.Random(seed)
    return lambda: 5.0 + chance.expovariate(1 / spread)


@pytest.mark.parametrize("delay_ms", [1, 5, 10])
def test_noise_does_not_pass_for_a_small_delay(delay_ms):
    passed = 0
    for seed in range(100):
        draw = noisy(seed)
        _, after, threshold = reading(
            links_slow, "NetworkDelay", {"delay_ms": delay_ms}, front=(draw, draw), rate=(draw, draw), db=(draw, draw)
        )
        passed += after >= threshold
    assert passed <= 3, "without the spread in the threshold half of them pass"


def test_a_delay_far_above_the_noise_is_seen_on_a_busy_machine():
    for seed in range(20):
        draw = noisy(seed)
        _, after, threshold = reading(
            links_slow, "NetworkDelay", {"delay_ms": 100}, front=(draw, lambda draw=draw: draw() + 100)
        )
        assert after >= threshold


def test_one_stall_before_does_not_hide_a_delay():
    times = iter([1500.0])
    stalled = lambda: next(times, 5.0)  # noqa: E731
    before, after, threshold = reading(links_slow, "NetworkDelay", {"delay_ms": 100}, front=(stalled, lambda: 105.0))
    assert before > 15
    assert after >= threshold


def test_a_link_that_the_fault_does_not_touch_does_not_count():
    slower = {"front": (lambda: 5.0, lambda: 400.0)}
    _, after, threshold = reading(links_slow, "NetworkDelay", {"delay_ms": 100, "peer": "db"}, **slower)
    assert after < threshold
    _, after, threshold = reading(links_slow, "NetworkDelay", {"delay_ms": 100, "peer": "front"}, **slower)
    assert after >= threshold
    _, after, threshold = reading(links_resend, "NetworkLoss", {"loss_percent": 20, "peer": "rate"}, **slower)
    assert after < threshold


@pytest.mark.parametrize(("limit_mb", "cpu_limit"), [(256, 0.5), (2048, 1.0), (8192, 4.0)])
def test_pressure_without_parameters_exhausts_any_limit_and_with_them_does_what_they_say(limit_mb, cpu_limit):
    assert allocated_bytes({}, limit_mb) == limit_mb * 2**20
    assert burner_count({"load_percent": 95.0}, cpu_limit) > cpu_limit
    assert (allocated_bytes({"size_mb": 100}, limit_mb), burner_count({"cores": 3}, cpu_limit)) == (100 * 2**20, 3)
