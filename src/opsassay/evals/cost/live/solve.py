"""Runs of live cost tasks: trials of their scenarios with cost tools, judged by certificate and cost."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from opsassay.core.errors import NotFoundError
from opsassay.core.schema.cost import CostReading, ReportedCause
from opsassay.core.schema.run import Metric
from opsassay.core.schema.run_folder import COST, COST_CAUSES, PHASES
from opsassay.core.schema.scenario import Scenario
from opsassay.core.schema.task import Task
from opsassay.core.schema.trajectory import Phase
from opsassay.evals.cost.live.score import judge_cost, read_lines, stored_optimum
from opsassay.evals.cost.live.tasks import CLASS, live_task
from opsassay.evals.cost.scripts.oracles import BASELINES
from opsassay.evals.remediation.score import grade_trial
from opsassay.evals.remediation.solve import TrialRun
from opsassay.evals.remediation.tasks import scenario_task
from opsassay.evals.remediation.trial.contract import TrialAgent
from opsassay.evals.runner.plan import PlannedAgent
from opsassay.evals.runner.run import RunSpec
from opsassay.testbed.operations.cost_tools import COST_TOOLS
from opsassay.testbed.operations.tool_session import Tool
from opsassay.testbed.substrates.kubernetes.settings import ClusterSettings

PERFORM = "opsassay.evals.cost.live.environment:perform_cost"


def live_head(name: str) -> Task:
    """Return the public task description of the live cost task *name*."""
    task = live_task(name)
    head = scenario_task(task.committed)
    return head.model_copy(update={"domain": "finops", "task_class": CLASS, "stratum": task.stratum})


@dataclass(frozen=True)
class LiveCostRun(TrialRun):
    """One planned trial of a live cost task."""

    performer: str = PERFORM

    @classmethod
    def for_task(cls, name: str, agent: TrialAgent, seed: int, cluster: ClusterSettings) -> LiveCostRun:
        """Return the trial of task *name* by *agent* on *cluster*; NotFoundError for an unknown task or oracle."""
        scenario = live_task(name).committed
        if agent.oracle is not None and agent.oracle not in scenario.oracles:
            raise NotFoundError(f"oracle of {name}", agent.oracle, scenario.oracles)
        return cls(scenario, agent, "baseline", probes=False, seed=seed, cluster=cluster)

    @cached_property
    def cell(self) -> RunSpec:
        """The task, agent and settings that identify the run, with the task described as one of this domain."""
        return replace(super().cell, task=live_head(self.scenario.id))

    def operator_tools(self) -> Mapping[str, Tool]:
        """Return the agent's tools by name: those of operations and those on cost."""
        return {**super().operator_tools(), **COST_TOOLS}

    def evaluate(self, run_dir: Path) -> Mapping[str, Metric]:
        """Return the metrics of the finished run in *run_dir*."""
        return evaluate_live(run_dir, self.scenario)


def operator_of(agent: PlannedAgent, sealing: str) -> TrialAgent | None:
    """Return *agent* for live systems, sandboxed by *sealing* (finops as sre), None for baselines but "constant"."""
    if agent.name == "finops":
        return TrialAgent(name="sre", model=agent.model)
    if agent.name in BASELINES:
        return TrialAgent(name="oracle:nothing") if agent.name == "constant" else None
    settings = {"sealing": sealing} if agent.is_file else {}
    return TrialAgent(name=agent.name, model=agent.model, settings=settings)


def evaluate_live(run_dir: Path, scenario: Scenario) -> dict[str, Metric]:
    """Return the metrics of the live run in *run_dir*, on cost and on the repair; raises OpsAssayError."""
    verdict = grade_trial(run_dir, scenario)
    return judge_cost(
        live_task(scenario.id).cost,
        stored_optimum(scenario.id),
        read_lines(run_dir / COST, CostReading),
        read_lines(run_dir / PHASES, Phase),
        read_lines(run_dir / COST_CAUSES, ReportedCause),
        verdict.metrics["certificate"],
    )
