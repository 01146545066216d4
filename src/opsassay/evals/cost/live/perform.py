"""Performs one live cost task: a trial as any other, whose system has prices, a budget, an alert and autoscalers."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from opsassay.core.errors import OperationError
from opsassay.core.schema.cost import CostBudget
from opsassay.core.schema.incident import Window
from opsassay.core.schema.scenario import OpsCall, Scenario
from opsassay.core.schema.trajectory import SettingsReading
from opsassay.evals.cost.live.setup import CostBlock, live_task
from opsassay.evals.remediation.contract import PromptArm, TrialAgent
from opsassay.evals.remediation.perform import perform_on
from opsassay.testbed.operations.autoscaling import Autoscaler
from opsassay.testbed.operations.cost_tools import COST_TOOLS, LiveCostToolbox
from opsassay.testbed.operations.costs import CostAccount, CostWatch
from opsassay.testbed.operations.stage import CostedStage, OperatorToolSession, Stage, staged
from opsassay.testbed.recording.observer import ObserverProcess

USUAL_READINGS = 4
"""Readings before the trigger whose mean is what the same hour of last week cost."""
ALERT_TIMEOUT_S = 90.0
"""How long a trial waits for the cost alert that it begins with."""
SETTLED_READINGS, SETTLED_TIMEOUT_S = 5, 60.0
"""Readings in a row with the same replicas, before which autoscalers are not settled."""


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
    """Perform one trial of a live cost task into *run_dir*. Raises OpsAssayError."""
    block = live_task(scenario.id).cost
    setup = _cost_staged(scenario, block, seed, run_dir, cluster)
    perform_on(setup, scenario, agent, arm, probes=probes, seed=seed, run_dir=run_dir)


@contextmanager
def _cost_staged(
    scenario: Scenario, block: CostBlock, seed: int, run_dir: Path, cluster: Mapping[str, Any] | None
) -> Iterator[Stage]:
    """Set up the stage of *scenario* without what breaks its cost, which the stage around it does."""
    operations = scenario.trigger.operations
    cost = tuple(one for one in operations if tool_of(one) in COST_TOOLS)
    others = scenario.trigger.model_copy(update={"operations": tuple(one for one in operations if one not in cost)})
    place = scenario.cluster and scenario.cluster.model_copy(update={"requests": block.requests})
    deployed = scenario.model_copy(update={"trigger": others, "cluster": place})
    with staged(deployed, seed, run_dir, cluster) as stage:
        yield CostStage(stage, block, cost, run_dir)


def tool_of(call: OpsCall) -> str:
    """Return the tool that carries out the verb of *call*."""
    return call.verb.replace(" ", "_")


@dataclass
class CostStage:
    """The stage *inner*, whose operator has the tools of cost too; *changes* are what of the trigger concerns cost."""

    inner: Stage
    block: CostBlock
    changes: tuple[OpsCall, ...]
    run_dir: Path
    watch: CostWatch | None = None
    toolbox: LiveCostToolbox | None = None

    def observed(self, run_dir: Path, *, probes: bool) -> AbstractContextManager[ObserverProcess]:
        """Have the observer write the timeline."""
        return self.inner.observed(run_dir, probes=probes)

    def health_problem(self) -> str | None:
        """Return why it is not healthy."""
        return self.inner.health_problem()

    @contextmanager
    def operated(self, usual: Window, run_dir: Path) -> Iterator[OperatorToolSession]:
        """Provide the tools of the system and of its cost, once the usual cost is known.

        Raises OperationError where a cost cannot be known.
        """
        with ExitStack() as stack:
            desk = stack.enter_context(self.inner.operated(usual, run_dir))
            sight = desk.toolbox.sight
            if not isinstance(self.inner, CostedStage) or sight is None:
                raise OperationError("Live cost tasks need a substrate that tells what its systems request and use.")
            system = self.inner.costed(self.block.requests, self.block.autoscalers)
            account = CostAccount(self.block.prices)
            self.watch = stack.enter_context(CostWatch(account, system, sight.telemetry, run_dir))
            if not system.scales_itself:
                stack.enter_context(Autoscaler(system, self.watch.utilization))
            self._await_settled()
            self._fix_usual(self.watch)
            self.toolbox = LiveCostToolbox(desk.toolbox, self.watch, run_dir)
            yield replace(desk, toolbox=self.toolbox)

    @contextmanager
    def broken(self) -> Iterator[None]:
        """Apply the trigger, and wait until the cost alert fires and nothing is scaled any more.

        Raises OperationError when it does not fire.
        """
        assert self.watch is not None
        assert self.toolbox is not None
        with self.inner.broken():
            for change in self.changes:
                tool = self.toolbox.tools[tool_of(change)]
                self.toolbox.carry_out(tool, tool.arguments.model_validate(change.arguments))
            deadline = time.monotonic() + ALERT_TIMEOUT_S
            while not (self.watch.latest is not None and self.watch.latest.firing):
                if time.monotonic() > deadline:
                    raise OperationError(f"The cost alert did not fire within {ALERT_TIMEOUT_S:g} s of the trigger.")
                time.sleep(0.2)
            self._await_settled()
            yield

    def start_agent(self) -> None:
        """Note that from now on whoever changes something is the agent."""
        self.inner.start_agent()

    def stop_agent(self) -> None:
        """Note that the agent's time is over."""
        self.inner.stop_agent()

    def read_settings(self) -> SettingsReading:
        """Return what no repair may switch off, and what waits for a restart."""
        return self.inner.read_settings()

    def require_alive(self) -> None:
        """Raise LostError when the system ended while it was watched."""
        self.inner.require_alive()

    def leftovers(self) -> list[str]:
        """Return what is still there of the system when it should be gone."""
        return self.inner.leftovers()

    def _await_settled(self) -> None:
        """Wait until the last readings agree in the number of replicas, or too long."""
        assert self.watch is not None
        deadline = time.monotonic() + SETTLED_TIMEOUT_S
        begun = len(self.watch.readings)
        while time.monotonic() < deadline:
            last = self.watch.readings[begun:][-SETTLED_READINGS:]
            counts = {tuple(cost.replicas for cost in one.services.values()) for one in last}
            if len(last) == SETTLED_READINGS and len(counts) == 1:
                return
            time.sleep(0.2)

    def _fix_usual(self, watch: CostWatch) -> None:
        """Take the mean of the last readings as what this hour cost last week, and grant the budget by it."""
        last = watch.readings[-USUAL_READINGS:]
        if not last:
            raise OperationError("No cost could be read before anything happened: does the system send metrics?")
        usual = sum(one.hourly_usd for one in last) / len(last)
        account, block = watch.account, self.block
        account.budget = CostBudget(hourly_usd=usual * block.budget_share, flexible_usd=usual * block.flexible_share)
        account.last_week_usd = usual
