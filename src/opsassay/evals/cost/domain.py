"""The domain of cost: questions over cost data, anomalies in it, and live systems that overspend."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from opsassay.core.schema.run import Metric, Run
from opsassay.core.schema.task import Arm, MetricDefinition, Task
from opsassay.evals.cost.live.solve import LiveCostRun, evaluate_live, live_head, operator_of
from opsassay.evals.cost.live.tasks import TASKS, live_task
from opsassay.evals.cost.plan import CostPlan
from opsassay.evals.cost.score import definitions, grade_answer
from opsassay.evals.cost.solve import CostRun
from opsassay.evals.cost.tasks import DOMAIN, kept_task, published
from opsassay.evals.remediation.plan import require_sound, with_tools
from opsassay.evals.remediation.tasks import kept_scenario
from opsassay.evals.runner.generated_run import require_apart_from_secret
from opsassay.evals.runner.plan import part_as
from opsassay.evals.runner.run import PlannedRun
from opsassay.evals.runner.store import RunStore
from opsassay.evals.runner.tool_servers import tool_servers

if TYPE_CHECKING:
    from opsassay.evals.runner.grading import GradedRuns, GradeSettings, Stores


class FinopsDomain:
    """The domain whose tasks are packaged cost tasks; none are read from files."""

    name: str = DOMAIN
    generated: bool = True

    def metrics(self) -> tuple[MetricDefinition, ...]:
        """Return the metric definitions: passed, closeness to the right answer, usage of tokens and names."""
        return definitions()

    def succeeded(self, metrics: Mapping[str, Metric]) -> bool | None:
        """Return whether the metric "passed" is 1, None when *metrics* lacks it."""
        passed = metrics.get("passed")
        return None if passed is None else passed.value == 1.0

    def tasks(self, paths: Sequence[Path]) -> Iterator[Task]:
        """Yield every cost task with its published seed; *paths* are ignored."""
        del paths
        yield from (one.task_info for one in published())
        yield from map(live_head, TASKS)

    def jobs(self, part: Mapping[str, Any], folder: Path, where: str) -> Sequence[PlannedRun]:
        """Return the runs of the plan section *part*, on cost data first; errors name the section by *where*."""
        plan = part_as(CostPlan, part, where)
        servers = tool_servers(plan.tools, folder)
        cases = [((task, Arm.of(asked)), task.body.oracles) for task in plan.chosen(folder) for asked in plan.knobs()]
        jobs = [
            CostRun(task, agent, seed, plan.settings, arm, servers=servers)
            for (task, arm), agent, seed in plan.each(cases, folder)
        ]
        files = [str(folder / one.mcp) for one in plan.tools]
        scenarios = [(name, tuple(live_task(name).scenario.oracles)) for name in plan.live()]
        live = [
            LiveCostRun.for_task(name, with_tools(operator, files), seed, plan.cluster)
            for name, agent, seed in plan.each(scenarios, folder)
            if (operator := operator_of(agent, plan.settings.sealing)) is not None
        ]
        require_sound(live)
        require_apart_from_secret(jobs, plan, folder)
        return [*jobs, *live]

    def grade(self, stores: Stores, settings: GradeSettings) -> GradedRuns:
        """Grade the runs of *stores* by the tasks stored with them; *settings* are ignored."""
        from opsassay.evals.cost.tables import GradedCosts
        from opsassay.evals.runner.grading import grade_each

        del settings
        found = grade_each(self, stores, evaluate_stored)
        return GradedCosts(self, found.graded, found.problems)


def evaluate_stored(store: RunStore, run_dir: Path, run: Run) -> Mapping[str, Metric]:
    """Return the metrics of *run*, stored in *run_dir*, on cost data or on a live system, by its task in *store*."""
    if run.item.partition("@")[0] in TASKS:
        return evaluate_live(run_dir, kept_scenario(store.root, run.item_hash))
    return grade_answer(run_dir, kept_task(store.root, run.item_hash))


FINOPS_DOMAIN = FinopsDomain()
