"""Performs a live cost task: a trial whose system also has prices, a budget, a cost alert and autoscalers."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from opsassay.core.errors import OperationError
from opsassay.core.schema.cost import CostBudget
from opsassay.core.schema.scenario import OpsCall, Scenario
from opsassay.evals.cost.live.tasks import CostBlock, live_task
from opsassay.evals.remediation.environment import TrialEnvironment
from opsassay.evals.remediation.trial.contract import PromptArm, TrialAgent
from opsassay.evals.remediation.trial.perform import perform_in
from opsassay.testbed.operations.cost_tools import COST_TOOLS, LiveCostToolSession
from opsassay.testbed.operations.costs import Autoscaler, CostAccount, CostWatch
from opsassay.testbed.operations.environment import LiveEnvironment, environment_for
from opsassay.testbed.operations.tool_session import OperatorToolSession
from opsassay.testbed.recording.pressure import processor_slowdown

USUAL_READINGS = 4
"""Readings before the trigger; their mean counts as the cost of the same hour last week."""
ALERT_TIMEOUT_S = 90.0
"""Seconds that a trial waits for its cost alert after the trigger."""
SETTLED_READINGS, SETTLED_TIMEOUT_S = 5, 60.0
"""Autoscalers count as settled after so many readings with equal replicas; the second is the time limit."""


def perform_cost(
    scenario: Scenario,
    agent: TrialAgent,
    arm: PromptArm,
    *,
    probes: bool,
    seed: int,
    run_dir: Path,
    cluster: Mapping[str, Any] | None = None,
) -> None:
    """Run a trial of a live cost task by *agent* and record it into *run_dir*; raises OpsAssayError.

    *arm* is the prompt variant, *cluster* the plan's block on a Kubernetes cluster; without *probes* only the last one
    is sent.
    """
    block = live_task(scenario.id).cost
    operations = scenario.trigger.operations
    changes = tuple(one for one in operations if tool_of(one) in COST_TOOLS)
    others = scenario.trigger.model_copy(update={"operations": tuple(one for one in operations if one not in changes)})
    place = scenario.cluster and scenario.cluster.model_copy(update={"requests": block.requests})
    deployed = scenario.model_copy(update={"trigger": others, "cluster": place})
    live = environment_for(deployed, seed, run_dir, cluster)
    environment = CostEnvironment(live, scenario, run_dir, block, changes, probes=probes)
    perform_in(environment, scenario, agent, arm, seed, run_dir)


def tool_of(call: OpsCall) -> str:
    """Return the name of the tool for *call*: its verb with underscores."""
    return call.verb.replace(" ", "_")


class CostEnvironment(TrialEnvironment):
    """A trial whose operator also has cost tools; *changes* are the operations of the trigger that concern cost."""

    def __init__(
        self, live: LiveEnvironment, scenario: Scenario, run_dir: Path, block: CostBlock, changes: Sequence[OpsCall], *,
        probes: bool,
    ) -> None:  # fmt: skip
        super().__init__(live, scenario, run_dir, probes=probes)
        self._block, self._changes, self._stack = block, changes, ExitStack()
        self._watch: CostWatch | None = None

    def open_tools(self) -> OperatorToolSession:
        """Start the cost watch and autoscaler, set the usual cost; return the agent's tools. Raises OperationError."""
        inner = self.live.session()
        if inner.view is None:
            raise OperationError("Live cost tasks need a system that sends telemetry.")
        system = self.live.costed(self._block.requests, self._block.autoscalers)
        account = CostAccount(self._block.prices)
        self._watch = self._stack.enter_context(CostWatch(account, system, inner.view.telemetry, self._run_dir))
        if not system.scales_itself:
            self._stack.enter_context(Autoscaler(system, self._watch.utilization, processor_slowdown()))
        self._await_settled()
        self._set_usual_cost(self._watch)
        return LiveCostToolSession(inner, self._watch, self._run_dir)

    def trigger(self) -> None:
        """Apply the trigger, then wait until the cost alert fires and replicas are stable. Raises OperationError."""
        assert self._watch is not None
        super().trigger()
        for change in self._changes:
            tool = self._session.tools[tool_of(change)]
            self._session.carry_out(tool, tool.arguments.model_validate(change.arguments))
        deadline = time.monotonic() + ALERT_TIMEOUT_S
        while not (self._watch.latest is not None and self._watch.latest.firing):
            if time.monotonic() > deadline:
                raise OperationError(f"The cost alert did not fire within {ALERT_TIMEOUT_S:g} s of the trigger.")
            time.sleep(0.2)
        self._await_settled()

    def remove(self) -> None:
        """Stop the cost watch and autoscaler, then remove the system."""
        try:
            self._stack.close()
        finally:
            super().remove()

    def _await_settled(self) -> None:
        """Wait until the last readings have equal replica counts, or until the timeout."""
        assert self._watch is not None
        deadline = time.monotonic() + SETTLED_TIMEOUT_S
        begun = len(self._watch.readings)
        while time.monotonic() < deadline:
            last = self._watch.readings[begun:][-SETTLED_READINGS:]
            counts = {tuple(cost.replicas for cost in one.services.values()) for one in last}
            if len(last) == SETTLED_READINGS and len(counts) == 1:
                return
            time.sleep(0.2)

    def _set_usual_cost(self, watch: CostWatch) -> None:
        """Set the mean of the last costs of *watch* as last week's cost, and the budget from that."""
        last = watch.readings[-USUAL_READINGS:]
        if not last:
            raise OperationError("No cost could be read before anything happened: does the system send metrics?")
        usual = sum(one.hourly_usd for one in last) / len(last)
        account, block = watch.account, self._block
        account.budget = CostBudget(hourly_usd=usual * block.budget_share, flexible_usd=usual * block.flexible_share)
        account.last_week_usd = usual
