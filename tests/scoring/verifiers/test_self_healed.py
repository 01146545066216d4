"""A fault that ends by itself before the agent changes anything certifies nobody."""

from __future__ import annotations

import pytest

from opsassay.scoring.verifiers import certify
from scoring.verifiers.made import change, entity, firing, probe, recording, scenario, timeline

AGENT = {"deployed": 0, "triggered": 4, "started": 10, "ended": 60}
ERRORS = ("front", "error_rate")


def certificate(*, d1=None, probes=(), alerts=(), actions=(), no_fault=False, **committed):
    made = timeline(d1 or [1.0] * 100, probes=[*probes, probe("late", 96)], entities={0: [entity("front-0")]})
    one = scenario(
        no_fault=no_fault, settling={"hold_s": 30}, **({"blast_radius": {}} if no_fault else {}), **committed
    )
    return certify(recording(made, **AGENT, actions=actions, alerts=alerts), one).judgement("certificate")


def test_who_changed_nothing_repaired_nothing():
    found = certificate()
    assert found.status == "not_applicable"
    assert "the agent changed nothing" in found.reason
    assert certificate(actions=[change(12, mutating=False)]).status == "not_applicable"
    assert certificate(actions=[change(12)]).passed
    assert certificate(no_fault=True).passed


HEALED = [0.8 if 5 <= second < 20 else 1.0 for second in range(100)]


@pytest.mark.parametrize(
    ("signs", "last"),
    [
        ({"d1": HEALED}, 20),
        ({"probes": [probe("a", 6, reachable=False), probe("b", 19, reachable=False), probe("c", 25)]}, 19),
        ({"alerts": [firing(s, *([ERRORS] if 5 < s < 20 else [])) for s in range(4, 100, 2)]}, 18),
    ],
)
def test_what_was_gone_for_ten_seconds_before_the_first_change_ended_by_itself(signs, last):
    assert certificate(**signs, actions=[change(last + 4)]).passed
    late = certificate(**signs, actions=[change(last + 12)])
    assert late.status == "not_applicable"
    assert "no sign of the fault was left for" in late.reason


def test_as_long_as_one_of_the_signs_is_there_the_fault_is():
    alerts = [firing(s, *([ERRORS] if 5 < s < 48 else [])) for s in range(4, 100, 2)]
    assert certificate(d1=HEALED, alerts=alerts, actions=[change(45)]).passed


def test_a_fault_without_a_sign_when_the_agent_comes_is_not_taken_for_one_that_ended():
    assert certificate(d1=[0.8 if second == 6 else 1.0 for second in range(100)], actions=[change(40)]).passed
