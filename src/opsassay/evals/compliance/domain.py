"""The domain of compliance: policies that refuse what violates a control, or judge collected evidence."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from opsassay.core.extras import require
from opsassay.core.schema.run import Metric, Run
from opsassay.core.schema.task import Arm, MetricDefinition, Task
from opsassay.evals.compliance.clusters.kept import admissions_of, graded_task
from opsassay.evals.compliance.plan import CompliancePlan
from opsassay.evals.compliance.score import definitions, grade_run
from opsassay.evals.compliance.solve import ComplianceRun
from opsassay.evals.compliance.tasks import DOMAIN, published
from opsassay.evals.runner.generated_run import require_apart_from_secret
from opsassay.evals.runner.plan import part_as
from opsassay.evals.runner.run import PlannedRun
from opsassay.evals.runner.store import RunStore
from opsassay.evals.runner.tool_servers import tool_servers

if TYPE_CHECKING:
    from opsassay.evals.runner.grading import GradedRuns, GradeSettings, Stores

_JUDGE = "jmespath"
"""A package of the extra that every grading needs; tasks are listed without it."""


class ComplianceDomain:
    """The domain whose tasks are packaged compliance tasks; none are read from files."""

    name: str = DOMAIN
    generated: bool = True

    def metrics(self) -> tuple[MetricDefinition, ...]:
        """Return the metric definitions: passed, each stage, error rates over hidden clusters or hosts, usage."""
        return definitions()

    def succeeded(self, metrics: Mapping[str, Metric]) -> bool | None:
        """Return whether the metric "passed" is 1, None when *metrics* lacks it."""
        passed = metrics.get("passed")
        return None if passed is None else passed.value == 1.0

    def tasks(self, paths: Sequence[Path]) -> Iterator[Task]:
        """Yield every compliance task with its published seed; *paths* are ignored."""
        del paths
        yield from (one.task_info for one in published())

    def jobs(self, part: Mapping[str, Any], folder: Path, where: str) -> Sequence[PlannedRun]:
        """Return the runs of one section *part* of a plan file in *folder*; errors name the section by *where*."""
        require(_JUDGE)
        plan = part_as(CompliancePlan, part, where)
        servers = tool_servers(plan.tools, folder)
        cases = [
            ((task, Arm.of(shown)), task.task_info.oracles) for task in plan.chosen(folder) for shown in plan.knobs()
        ]
        jobs = [
            ComplianceRun(task, agent, seed, plan.settings, arm, servers=servers)
            for (task, arm), agent, seed in plan.each(cases, folder)
        ]
        require_apart_from_secret(jobs, plan, folder)
        return jobs

    def grade(self, stores: Stores, settings: GradeSettings) -> GradedRuns:
        """Grade the runs of *stores* by the tasks stored with them; *settings* are ignored."""
        from opsassay.evals.compliance.tables import GradedPolicies
        from opsassay.evals.runner.grading import grade_each

        del settings
        require(_JUDGE)
        found = grade_each(self, stores, evaluate_stored)
        return GradedPolicies(self, found.graded, found.problems)


def evaluate_stored(store: RunStore, run_dir: Path, run: Run) -> Mapping[str, Metric]:
    """Return the metrics of *run*, stored in *run_dir*; older runs on a real cluster use its recorded decisions."""
    task = graded_task(store.root, run)
    return grade_run(run_dir, task, admissions_of(run, run_dir))


CISO_DOMAIN = ComplianceDomain()
