"""The domain of cost: questions over cost data, anomalies in it, and live systems that overspend."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from opsassay.bench.core.answering import agents_for
from opsassay.bench.core.mounts import require_apart
from opsassay.bench.core.plan import part_as
from opsassay.bench.core.run import Job
from opsassay.bench.core.store import RunStore
from opsassay.bench.domains.finops.grading import definitions, grade_answer
from opsassay.bench.domains.finops.job import CostJob
from opsassay.bench.domains.finops.live.job import LiveCostJob, evaluate_live, live_head, operator_of
from opsassay.bench.domains.finops.live.setup import TASKS, live_task
from opsassay.bench.domains.finops.plan import CostPlan
from opsassay.bench.domains.finops.tasks import DOMAIN, kept_task, published
from opsassay.bench.domains.sre.grading import kept_scenario
from opsassay.bench.domains.sre.preflight import require_sound
from opsassay.model.run import Metric, Run
from opsassay.model.task import MetricDefinition, Task

if TYPE_CHECKING:
    from opsassay.bench.core.grading import GradedRuns, GradeSettings, Stores


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
        from opsassay.bench.core.grading import grade_each
        from opsassay.bench.domains.finops.tables import GradedCosts

        del settings
        found = grade_each(self, stores, evaluate_stored)
        return GradedCosts(self, found.graded, found.problems)


def evaluate_stored(store: RunStore, run_dir: Path, run: Run) -> Mapping[str, Metric]:
    """Return the metrics of one stored run, of whatever class of cost task."""
    if run.item.partition("@")[0] in TASKS:
        return evaluate_live(run_dir, kept_scenario(store.root, run.item_hash))
    return grade_answer(run_dir, kept_task(store.root, run.item_hash))


FINOPS_DOMAIN = FinopsDomain()
