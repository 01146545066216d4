"""The domain of alert storms: how they are listed, run and graded."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from opsassay.core.extras import require
from opsassay.core.schema.run import Metric, Run
from opsassay.core.schema.task import MetricDefinition, Task
from opsassay.evals.runner.mounts import kept_of, require_apart
from opsassay.evals.runner.plan import part_as
from opsassay.evals.runner.store import RunStore
from opsassay.evals.runner.tool_servers import tool_servers
from opsassay.evals.triage.plan import NOISE, TriagePlan
from opsassay.evals.triage.score import definitions, grade_answer
from opsassay.evals.triage.solve import StormRun
from opsassay.evals.triage.tasks import DOMAIN, ORACLES, Storm, make_storm, why_unfit
from opsassay.telemetry.tree import resolve

if TYPE_CHECKING:
    from opsassay.evals.runner.grading import GradedRuns, GradeSettings, Stores

_JUDGE = "sklearn"


class TriageDomain:
    """The domain whose tasks are alert storms, made of recorded incidents."""

    name: str = DOMAIN

    def metrics(self) -> tuple[MetricDefinition, ...]:
        """Return the metric definitions: passed, grouping, order, noise."""
        return definitions()

    def succeeded(self, metrics: Mapping[str, Metric]) -> bool | None:
        """Return whether the metric "passed" is 1, None when *metrics* lacks it."""
        passed = metrics.get("passed")
        return None if passed is None else passed.value == 1.0

    def tasks(self, paths: Sequence[Path]) -> Iterator[Task]:
        """Yield a task (an alert storm) for each annotated incident with alerts in the folders *paths*."""
        for path in paths:
            for case in resolve(path) if path.is_dir() else ():
                if why_unfit(case) is None:
                    yield make_storm([case], NOISE, 0).task_info

    def jobs(self, part: Mapping[str, Any], folder: Path, where: str) -> Sequence[StormRun]:
        """Return the runs of one section *part* of a plan file in *folder*; errors name the section by *where*."""
        require(_JUDGE)
        plan = part_as(TriagePlan, part, where)
        servers = tool_servers(plan.tools, folder)
        cases = [((storm, pack), ORACLES) for storm, pack in plan.chosen(folder)]
        jobs = [
            StormRun(storm, agent, seed, plan.settings, pack=pack, servers=servers)
            for (storm, pack), agent, seed in plan.each(cases, folder)
        ]
        kept = kept_of([folder / name for name in plan.incidents])
        for command in {one.path: one for job in jobs for one in job.commands}.values():
            require_apart(command, kept)
        return jobs

    def grade(self, stores: Stores, settings: GradeSettings) -> GradedRuns:
        """Grade the runs of *stores* by the alert storms stored with them; *settings* are ignored."""
        from opsassay.evals.runner.grading import grade_each
        from opsassay.evals.triage.report import GradedStorms

        del settings
        require(_JUDGE)
        found = grade_each(self, stores, evaluate_stored)
        return GradedStorms(self, found.graded, found.problems)


def evaluate_stored(store: RunStore, run_dir: Path, run: Run) -> Mapping[str, Metric]:
    """Return the metrics of *run*, stored in *run_dir*, by its alert storm in *store*."""
    return grade_answer(run_dir, Storm.read_kept(store.root, run.item_hash))


TRIAGE_DOMAIN = TriageDomain()
