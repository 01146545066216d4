"""A fault that acts in a process is handed on to the successor of its pod, unless it ends with the pod: as in trials."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest
from pydantic import ValidationError

from opsassay.core.schema.plan import FaultPlan, Target
from opsassay.testbed.apps import load_system
from opsassay.testbed.core.fleet import Fleet
from opsassay.testbed.injection.under_test import hook
from opsassay.testbed.operations.held_faults import hold_faults
from opsassay.testbed.substrates.kubernetes.actuators.pod_faults import PodLookups, PodPressure
from opsassay.testbed.substrates.kubernetes.actuators.under_test import ClusterUnderTest

PLAN = FaultPlan(fault="JVMReturn", target=Target(service="catalog"))


def hooked(plan):
    """Return a replica whose process was hooked by *plan*, which is not started yet."""
    (replica, *_) = Fleet(load_system("shop"), 0).replicas_of("catalog")
    injection = SimpleNamespace(id="one", plan=plan.parts[0], replicas=[replica], system=None)
    asyncio.run(hook(injection, on=True))
    return replica


@pytest.mark.parametrize(("plan", "follows"), [(PLAN, True), (PLAN.ending_with_pods(), False)])
def test_a_successor_has_the_fault_unless_it_ends_with_its_pod(plan, follows):
    replica = hooked(plan)
    assert [one["type"] for one in replica.hooks_now] == ["replace_result"]
    replica.pod = "another"
    assert bool(replica.hooks_now) is follows


@pytest.mark.parametrize(("made", "parameters"), [("DNSError", {}), ("CPUStress", {"cores": 1.0})])
@pytest.mark.parametrize("ends", [False, True])
def test_so_does_what_the_pod_of_a_cluster_is_ordered_and_two_orders_do_not_meet(tmp_path, made, parameters, ends):
    system = load_system("shop")
    api = SimpleNamespace(get=lambda *_: {"data": {"key": "a2V5"}})
    under_test = ClusterUnderTest(api, "shop", system, tmp_path, None, None, limit_s=60.0, image="")
    (replica, *_) = under_test.fleet.replicas_of("frontend")
    replica.pod, pushed = "first", []

    async def push(replica):
        pushed.append(under_test.desired_state(replica))

    under_test.push_hooks = push
    plan = FaultPlan(fault=made, target=Target(service="frontend"), parameters=parameters)
    part = (plan.ending_with_pods() if ends else plan).parts[0]

    def injected(name):
        injection = SimpleNamespace(id=name, plan=part, replica=replica, replicas=[], system=under_test)
        return (PodLookups if made == "DNSError" else PodPressure)(injection)

    one, other = injected("one"), injected("other")
    asyncio.run(one.apply())
    asyncio.run(other.apply())
    state = pushed[-1]
    assert state.names if made == "DNSError" else len(state.pressure) == 2
    asyncio.run(one.undo())
    assert pushed[-1].names or len(pushed[-1].pressure) == 1  # the other's
    replica.pod = "second"
    state = under_test.desired_state(replica)
    assert bool(state.names or state.pressure) is not ends
    asyncio.run(other.undo())
    replica.pod = "first"
    state = under_test.desired_state(replica)
    assert not state.names
    assert not state.pressure


def test_a_scenario_holds_every_fault_so_that_it_ends_with_its_pod():
    seen = []

    def inject(plan, over):
        seen.append(plan)
        yield "applied"
        over.wait()

    several = FaultPlan.model_validate({"faults": [part.model_dump() for part in (PLAN.parts[0], PLAN.parts[0])]})
    for plan in (PLAN, several):
        with hold_faults(SimpleNamespace(inject=inject), plan, 5.0):
            pass
    assert [part.ends_with_pod for plan in seen for part in plan.parts] == [True] * 3
    assert not any(part.ends_with_pod for plan in (PLAN, several) for part in plan.parts)


def test_it_is_written_only_where_it_is_said_and_for_each_fault_by_itself():
    assert "ends_with_pod" not in PLAN.model_dump_json()
    assert FaultPlan.model_validate_json(PLAN.ending_with_pods().model_dump_json()).ends_with_pod
    with pytest.raises(ValidationError, match="for itself"):
        FaultPlan.model_validate({"faults": [PLAN.parts[0].model_dump()], "ends_with_pod": True})
