"""The domain of cost: questions over cost data, anomalies in it, and live systems that overspend."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from opsassay.core.schema.run import Metric, Run
from opsassay.core.schema.task import MetricDefinition, Task
from opsassay.evals.cost.grading import definitions, grade_answer
from opsassay.evals.cost.job import CostJob
from opsassay.evals.cost.live.job import LiveCostJob, evaluate_live, live_head, operator_of
from opsassay.evals.cost.live.setup import TASKS, live_task
from opsassay.evals.cost.plan import CostPlan
from opsassay.evals.cost.tasks import DOMAIN, kept_task, published
from opsassay.evals.remediation.grading import kept_scenario
from opsassay.evals.remediation.preflight import require_sound
from opsassay.evals.runner.answering import agents_for
from opsassay.evals.runner.mounts import require_apart
from opsassay.evals.runner.plan import part_as
from opsassay.evals.runner.run import Job
from opsassay.evals.runner.store import RunStore

if TYPE_CHECKING:
    from opsassay.evals.runner.grading import GradedRuns, GradeSettings, Stores


class FinopsDomain:
    """Tasks that ship; none are read from files."""

    name: str = DOMAIN

    def metrics(self) -> tuple[MetricDefinition, ...]:
        """Return whether an answer is right, then how near it is, then what it took."""
        return definitions()

    def succeeded(self, metrics: Mapping[str, Metric]) -> bool | None:
        """Return whether the run passed; one without an answer did not."""
        passed = metrics.get("passed")
        return None if passed is None else passed.value == 1.0

    def tasks(self, paths: Sequence[Path]) -> Iterator[Task]:
        """Yield the tasks with their published seeds."""
        del paths
        yield from (one.head for one in published())
        yield from map(live_head, TASKS)

    def jobs(self, part: Mapping[str, Any], folder: Path, where: str) -> Sequence[Job]:
        """Return the runs of one part of a plan, those on cost data first."""
        plan = part_as(CostPlan, part, where)
        tasks = plan.chosen(folder)
        jobs: list[Job] = [
            CostJob(task, agent, plan.seed + repeat, plan.settings)
            for repeat in range(plan.repeats)
            for task in tasks
            for given in plan.agents
            for agent in agents_for(given, task.body.oracles, folder)
        ]
        live = [
            LiveCostJob.of(name, operator, plan.seed + repeat, plan.cluster)
            for repeat in range(plan.repeats)
            for name in plan.live()
            for given in plan.agents
            for agent in agents_for(given, tuple(live_task(name).scenario.oracles), folder)
            if (operator := operator_of(agent, plan.settings.sealing)) is not None
        ]
        require_sound(live)
        if plan.held_out is not None:
            for command in {job.agent.name: job.command for job in jobs if isinstance(job, CostJob)}.values():
                if command is not None:
                    require_apart(command, [folder / plan.held_out.secret])
        return [*jobs, *live]

    def grade(self, stores: Stores, settings: GradeSettings) -> GradedRuns:
        """Grade the runs of *stores* by the tasks that they keep; there are no conventions to set."""
        from opsassay.evals.cost.tables import GradedCosts
        from opsassay.evals.runner.grading import grade_each

        del settings
        found = grade_each(self, stores, evaluate_stored)
        return GradedCosts(self, found.graded, found.problems)


def evaluate_stored(store: RunStore, run_dir: Path, run: Run) -> Mapping[str, Metric]:
    """Return the metrics of one stored run, of whatever class of cost task."""
    if run.item.partition("@")[0] in TASKS:
        return evaluate_live(run_dir, kept_scenario(store.root, run.item_hash))
    return grade_answer(run_dir, kept_task(store.root, run.item_hash))


FINOPS_DOMAIN = FinopsDomain()
