"""Alert rules over the state that an observer writes: pods, workloads, nodes, the control plane; severity and ``for``."""

from __future__ import annotations

from typing import get_args

import pytest

from opsassay.core.schema.cost import AutoscalerSettings, CostBudget, PriceBook
from opsassay.core.schema.run_folder import COST
from opsassay.core.schema.scenario import GoldenSignal, StateSignal
from opsassay.core.schema.trajectory import CONTROL_PLANE_SUFFIX, ControlPlaneReading
from opsassay.testbed.operations.costs import Allocation, CostAccount
from opsassay.testbed.operations.state_alerts import DEFINITIONS, AlertRules, StateAlerts
from scoring.verifiers.made import S, at, entity, probe, scenario, timeline

FLEET = [entity("web-0"), entity("web-1", host="host-b"), entity("pay-0")]


@pytest.fixture
def rules(tmp_path, monkeypatch):
    """Return a function that writes a made timeline and asks at every given second which alerts fire."""

    def rules(made, seconds, *, health=(), settings=None, live=None):
        path = tmp_path / "timeline.jsonl"
        lines = [tick.model_dump_json(exclude_defaults=True) for tick in made.ticks]
        path.write_text('{"boot_id": "b", "cadence_s": 1.0, "schema_version": 2}\n' + "\n".join(lines) + "\n")
        if health:
            told = "\n".join(one.model_dump_json() for one in health)
            path.with_suffix(CONTROL_PLANE_SUFFIX).write_text(told + "\n")
        alerts = AlertRules(live, StateAlerts(path, scenario(**(settings or {})).verification, at(4)), 0.0)
        found = {}
        for second in seconds:
            monkeypatch.setattr(
                "opsassay.testbed.operations.state_alerts.time.time_ns", lambda s=second: at(s) + S // 2
            )
            found[second] = {(alert.service, alert.signal): alert for alert in alerts.firing()[1]}
        return found

    return rules


def test_every_signal_has_a_severity_and_a_time_to_hold():
    assert set(DEFINITIONS) == {*get_args(GoldenSignal), *get_args(StateSignal)}
    assert {one.severity for one in DEFINITIONS.values()} == {"critical", "warning"}
    kinds = {"request", "pod", "workload", "node", "control plane", "autoscaler", "budget"}
    assert {one.about for one in DEFINITIONS.values()} == kinds


def test_pods_and_workloads_fire_when_their_time_has_passed_and_clear_when_they_are_back(rules):
    made = timeline([1.0] * 60, entities={0: FLEET, 10: [entity("web-0", ready=False)], 40: [entity("web-0")]})
    found = rules(made, [5, 10, 14, 16, 24, 26, 39, 40])
    missing, pod = ("web", "replicas_missing"), ("web", "pod_not_ready")
    assert {second: set(alerts) for second, alerts in found.items()} == {
        5: set(), 10: set(), 14: set(), 16: {missing}, 24: {missing}, 26: {missing, pod}, 39: {missing, pod}, 40: set(),
    }  # fmt: skip
    assert (found[26][missing].severity, found[26][pod].severity) == ("critical", "warning")
    assert "1 of 2 replicas are ready" in found[26][missing].message


def test_a_workload_that_is_scaled_away_is_missing_and_not_silent(rules):
    made = timeline([1.0] * 40, entities={0: FLEET})
    ticks = [t.model_copy(update={"gone": ("web-0", "web-1") if t.index == 8 else ()}) for t in made.ticks]
    found = rules(made.model_copy(update={"ticks": tuple(ticks)}), [8, 20])
    assert set(found[20]) == {("web", "replicas_missing")}


def test_who_flaps_faster_than_the_time_to_hold_never_fires(rules):
    flaps = {0: FLEET} | {s: [entity("web-0", ready=bool(s % 4))] for s in range(6, 40, 2)}
    found = rules(timeline([1.0] * 40, entities=flaps), range(6, 40))
    assert not any(found.values())


def test_backends_parts_probes_and_places(rules):
    made = timeline(
        [1.0] * 40, d2=[1.0] * 10 + [0.0] * 30, d4=dict.fromkeys(range(10, 40), ("db",)),
        entities={0: FLEET, 10: [entity("web-1")]}, probes=[probe("a", 12, reachable=False, target="front")],
    )  # fmt: skip
    found = rules(made, [5, 20], settings={"placement": {"spread": [{"service": "web"}]}})
    assert found[5] == {}
    rules_of = {
        ("front", "backends_missing"),
        ("db", "control_plane_part"),
        ("front", "probe_failed"),
        ("web", "placement"),
    }
    rules(made, [12], settings={"placement": {"spread": [{"service": "web"}]}})
    later = rules(made, [12, 20], settings={"placement": {"spread": [{"service": "web"}]}})
    assert set(later[20]) == rules_of


def test_nodes_and_a_late_control_plane(rules):
    health = [
        ControlPlaneReading(time_ns=at(s), ready=True, latency_s=0.01 if s < 10 else 0.6,
                            nodes_not_ready=("worker2",) if 10 <= s < 20 else ())
        for s in range(30)
    ]  # fmt: skip
    made = timeline([1.0] * 30, entities={0: FLEET})
    found = rules(made, range(30), health=health, settings={"control_plane": {"api_latency_s": 0.4}})
    node, late = ("worker2", "node_not_ready"), ("control-plane", "control_plane_latency_s")
    assert [second for second in range(30) if node in found[second]] == [16, 17, 18, 19]
    assert [second for second in range(30) if late in found[second]] == list(range(17, 30))


def test_an_autoscaler_at_its_limit_and_a_spent_budget_fire_by_the_cost_that_is_read(rules, tmp_path):
    account = CostAccount(PriceBook(core_hour_usd=1.0, gb_hour_usd=1.0), CostBudget(hourly_usd=7.5, flexible_usd=1.0))
    with (tmp_path / COST).open("w") as lines:
        for second in range(60):
            account.budget = None if second >= 50 else account.budget
            replicas = 8 if 10 <= second < 45 else 3
            service = account.of_service(Allocation(replicas, float(replicas), 0.0), 0.0, 0.0, 1.0)
            print(
                account.read(
                    {"web": service},
                    at(second),
                    [AutoscalerSettings(service="web", max_replicas=8, target_utilization=0.5)],
                ).model_dump_json(),
                file=lines,
            )
    found = rules(timeline([1.0] * 60, entities={0: FLEET}), range(60))
    limit, budget = ("web", "autoscaler_at_limit"), ("budget", "budget_spent")
    assert [second for second in found if budget in found[second]] == list(range(10, 45))
    assert [second for second in found if limit in found[second]] == list(range(40, 45))
    assert found[12][budget].message == "budget: 8 of 7.5 USD an hour are spent"
