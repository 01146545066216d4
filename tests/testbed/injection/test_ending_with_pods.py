"""A fault that acts in a process is handed on to the successor of its pod, unless it ends with the pod: as in trials."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest
from pydantic import ValidationError

from opsassay.model.plan import FaultPlan, Target
from opsassay.testbed.apps import load_system
from opsassay.testbed.core.fleet import Fleet
from opsassay.testbed.injection.under_test import hook
from opsassay.testbed.operations.held_faults import held

PLAN = FaultPlan(fault="JVMReturn", target=Target(service="catalog"))


def hooked(plan):
    """Return a replica whose process was hooked by *plan*, which is not started yet."""
    (replica, *_) = Fleet(load_system("shop"), 0).of("catalog")
    injection = SimpleNamespace(id="one", plan=plan.parts[0], replicas=[replica], system=None)
    asyncio.run(hook(injection, on=True))
    return replica


@pytest.mark.parametrize(("plan", "follows"), [(PLAN, True), (PLAN.ending_with_pods(), False)])
def test_a_successor_has_the_fault_unless_it_ends_with_its_pod(plan, follows):
    replica = hooked(plan)
    assert [one["type"] for one in replica.hooks_now] == ["replace_result"]
    replica.pod = "another"
    assert bool(replica.hooks_now) is follows


def test_a_scenario_holds_every_fault_so_that_it_ends_with_its_pod():
    seen = []

    def inject(plan, over):
        seen.append(plan)
        yield "applied"
        over.wait()

    several = FaultPlan.model_validate({"faults": [part.model_dump() for part in (PLAN.parts[0], PLAN.parts[0])]})
    for plan in (PLAN, several):
        with held(SimpleNamespace(inject=inject), plan, 5.0):
            pass
    assert [part.ends_with_pod for plan in seen for part in plan.parts] == [True] * 3
    assert not any(part.ends_with_pod for plan in (PLAN, several) for part in plan.parts)


def test_it_is_written_only_where_it_is_said_and_for_each_fault_by_itself():
    assert "ends_with_pod" not in PLAN.model_dump_json()
    assert FaultPlan.model_validate_json(PLAN.ending_with_pods().model_dump_json()).ends_with_pod
    with pytest.raises(ValidationError, match="for itself"):
        FaultPlan.model_validate({"faults": [PLAN.parts[0].model_dump()], "ends_with_pod": True})
