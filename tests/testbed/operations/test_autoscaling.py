"""The autoscaler: Kubernetes' formula, a tolerance, and nothing downwards that one reading alone asks for."""

from __future__ import annotations

from threading import Event
from types import SimpleNamespace

import pytest

from opsassay.core.errors import LostError
from opsassay.core.schema.cost import AutoscalerSettings
from opsassay.testbed.operations.costs import SCALE_EVERY_S, STABLE_S, Autoscaler, desired_replicas

SETTINGS = AutoscalerSettings(service="a", min_replicas=1, max_replicas=8, target_utilization=0.5)


@pytest.mark.parametrize(
    ("current", "utilization", "desired"),
    [
        (3, 0.5, 3),
        (3, 0.54, 3),
        (3, 0.56, 4),
        (3, 1.0, 6),
        (3, 5.0, 8),
        (3, 0.1, 1),
        (3, 0.0, 1),
        (0, 9.0, 0),
        (6, 0.25, 3),
    ],
)
def test_replicas_follow_usage(current, utilization, desired):
    assert desired_replicas(current, utilization, SETTINGS) == desired


def test_upwards_at_once_and_downwards_when_all_readings_agree():
    seen, scaled = {"a": (3, 0.5)}, []
    one = Autoscaler(SimpleNamespace(scale=lambda service, count: scaled.append((service, count))), seen.get)
    seen["a"] = (3, 1.0)
    one.decide("a", SETTINGS, 100.0)
    assert scaled == [("a", 6)]
    seen["a"] = (6, 0.2)
    for n in range(1, 10):
        before = len(scaled)
        one.decide("a", SETTINGS, 100.0 + n * SCALE_EVERY_S)
        if len(scaled) > before:
            assert n * SCALE_EVERY_S > STABLE_S
            break
    assert scaled[-1] == ("a", 3)


def test_on_a_slow_processor_the_same_work_asks_for_no_more_replicas():
    for slowdown, wanted in ((1.0, [("a", 6)]), (2.0, []), (1.5, [("a", 4)])):
        scaled = []
        system = SimpleNamespace(scale=lambda service, count, scaled=scaled: scaled.append((service, count)))
        Autoscaler(system, lambda _: (3, 1.0), slowdown).decide("a", SETTINGS, 1.0)
        assert scaled == wanted, slowdown


def test_a_service_that_nobody_can_read_is_left_alone():
    one = Autoscaler(SimpleNamespace(scale=lambda *_: pytest.fail("scaled")), lambda _: None)
    one.decide("a", SETTINGS, 1.0)


def test_the_thread_goes_by_what_the_system_says_now_and_forgives_one_that_does_not_answer(monkeypatch):
    monkeypatch.setattr("opsassay.testbed.operations.costs.EVERY_S", 0.005)
    asked, done = [], Event()

    def autoscalers():
        asked.append(1)
        if len(asked) == 1:
            raise LostError("it is away")
        return {"a": SETTINGS}

    with Autoscaler(SimpleNamespace(autoscalers=autoscalers, scale=lambda *_: done.set()), lambda _: (3, 1.0)):
        assert done.wait(10)
    assert len(asked) >= 2
