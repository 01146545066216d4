"""The domain of recorded incidents: root causes, propagation and evidence, found from telemetry alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from opsassay.core.schema.run import Metric
from opsassay.core.schema.task import MetricDefinition, Task
from opsassay.evals.diagnosis.plan import IncidentPlan, plan, with_servers
from opsassay.evals.diagnosis.solve import IncidentRun
from opsassay.evals.diagnosis.tasks import NAMES, IncidentItem, open_suite
from opsassay.evals.runner.plan import part_as
from opsassay.evals.runner.tool_servers import tool_servers
from opsassay.scoring import metrics as known
from opsassay.telemetry.tree import resolve

if TYPE_CHECKING:
    from opsassay.evals.runner.grading import GradedRuns, GradeSettings, Stores

LESS = frozenset({"ungrounded", "evidence_vacuous"})
"""Metrics of which lower values are better."""


class DiagnosisDomain:
    """The domain whose tasks are recorded incidents, in suites and folders."""

    name: str = "diagnosis"

    def metrics(self) -> tuple[MetricDefinition, ...]:
        """Return the definitions of all metrics of a verdict: those on root causes first, times last."""
        shares = (name for name in known.ALL if name not in known.TIME)
        found = (MetricDefinition(name=n, direction="lower" if n in LESS else "higher") for n in shares)
        return (*found, *(MetricDefinition(name=n, unit="s", direction="lower") for n in known.TIME))

    def succeeded(self, metrics: Mapping[str, Metric]) -> bool | None:
        """Return whether exact_match is 1, else any_service where that is undefined; None if neither was graded."""
        from opsassay.evals.diagnosis.results.repeats import success

        return success(metrics) if metrics else None

    def tasks(self, paths: Sequence[Path]) -> Iterator[Task]:
        """Yield one task per incident below the folders *paths*; it lists oracles if the truth is available."""
        for path in paths:
            if path.is_dir():
                for case in resolve(path):
                    known = NAMES if case.truth is not None else ()
                    yield IncidentItem.from_datapack(case.datapack).task.model_copy(update={"oracles": known})

    def jobs(self, part: Mapping[str, Any], folder: Path, where: str) -> Sequence[IncidentRun]:
        """Return the runs of one section *part* of a plan file in *folder*; errors name the section by *where*."""
        planned = part_as(IncidentPlan, part, where)
        settings = planned.settings
        opened = [one for name in planned.incidents for one in open_suite(folder / name)]
        servers = tool_servers(planned.tools, folder)
        solvers = [with_servers(solver, servers) for one in planned.agents for solver in one.solvers(folder, settings)]
        return plan(opened, solvers, planned.repeats, settings)

    def grade(self, stores: Stores, settings: GradeSettings) -> GradedRuns:
        """Grade the runs of *stores* against their incidents' truth by *settings*; raises as `grade_incidents`."""
        from opsassay.evals.diagnosis.report import grade_incidents

        return grade_incidents(self, stores, settings)


DIAGNOSIS = DiagnosisDomain()
