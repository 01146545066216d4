"""Tables 5 and 24 of ITBench over a store of compliance runs.

A pass rate is the mean over tasks of the share of repeats that passed; a run that left no policies counts as 0.
Behind ± are standard errors over runs; the time to process is that of every run that ended.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

from opsassay.core.schema.run import MetricStatus, RunStatus
from opsassay.evals.compliance.score import RATES, STAGES
from opsassay.evals.compliance.tasks import CLASSES
from opsassay.evals.runner.grading import GradedRuns
from opsassay.evals.runner.results import ResultRow, by_solver
from opsassay.evals.runner.tables import ResultTable, percent


@dataclass(frozen=True)
class GradedPolicies(GradedRuns):
    """Graded runs of compliance tasks."""

    def results(self) -> list[ResultTable]:
        """Return the tables of pass rates (ITBench's Table 5), completion (Table 24) and stages."""
        return compliance_tables(self.rows())


def compliance_tables(rows: Sequence[ResultRow]) -> list[ResultTable]:
    """Return the tables of pass rates, completion and stages for the graded runs *rows*."""
    solvers = by_solver(rows)
    return [_table_by_class(solvers), _completion_table(solvers), _stages_table(solvers)]


def _share(rows: Sequence[ResultRow], metric: str) -> float | None:
    """Return the mean over tasks of the share of repeats in which *metric* is 1; None when it applies to no run."""
    per_task: dict[str, list[float]] = {}
    for row in rows:
        if (grade := row.metrics.get(metric)) is not None and grade.status is not MetricStatus.NOT_APPLICABLE:
            per_task.setdefault(row.task, []).append(float(grade.value == 1.0))
    return fmean(map(fmean, per_task.values())) if per_task else None


def _pass_rate(rows: Sequence[ResultRow]) -> str | None:
    """Return pass@1 as a text in percent with its standard error over runs, None without runs."""
    grades = [grade for row in rows if (grade := row.metrics.get("passed")) is not None]
    passed = [float(grade.value == 1.0) for grade in grades if grade.status is not MetricStatus.NOT_APPLICABLE]
    rate = percent(_share(rows, "passed"))
    return rate if rate is None else f"{rate}{_standard_error([100 * one for one in passed])}"


def _mean_seconds(rows: Sequence[ResultRow]) -> str | None:
    """Return the mean duration of runs as a text in seconds with its standard error, None without runs."""
    runs = [row.run for row in rows if row.run is not None]
    found = [(run.ended_ns - run.started_ns) / 1e9 for run in runs if run.ended_ns is not None]
    return f"{fmean(found):.1f}{_standard_error(found)}" if found else None


def _standard_error(values: Sequence[float]) -> str:
    """Return " ± " and the standard error of *values* (ddof 1), '' for fewer than two."""
    return f" ± {stdev(values) / len(values) ** 0.5:.1f}" if len(values) > 1 else ""


def _table_by_class(solvers: Mapping[str, Sequence[ResultRow]]) -> ResultTable:
    """Return a table with a row per solver: pass@1 by task class and overall, and the mean time (ITBench, Table 5)."""
    found = []
    for name, rows in sorted(solvers.items()):
        of_class = [[row for row in rows if row.task.startswith(one)] for one in CLASSES]
        found.append((name, *map(_pass_rate, of_class), _pass_rate(rows), _mean_seconds(rows)))
    columns = ("solver", *(f"{one} pass@1" for one in CLASSES), "overall pass@1", "time to process, s")
    return ResultTable("Solvers on compliance tasks", columns, tuple(found), __doc__ or "", number=5)


def _completion_table(solvers: Mapping[str, Sequence[ResultRow]]) -> ResultTable:
    """Return a table with a row per solver: percent of runs not aborted, and percent of these with an answer."""
    found = []
    for name, rows in sorted(solvers.items()):
        ended = [row.run for row in rows if row.run is not None and row.run.status is not RunStatus.ABORTED]
        submitted = sum(run.status is RunStatus.DONE for run in ended)
        tasks = len({row.task for row in rows})
        completed = percent(len(ended) / len(rows))
        found.append((name, tasks, len(rows), completed, percent(submitted / len(ended)) if ended else None))
    columns = ("solver", "tasks", "runs", "completed", "submitted")
    note = "completed: ended by the bench as they should; submitted: of those, the share that left policies."
    return ResultTable("Experiments", columns, tuple(found), note, number=24)


def _stages_table(solvers: Mapping[str, Sequence[ResultRow]]) -> ResultTable:
    """Return a table with a row per solver: percent of runs that passed each stage, and mean error rates."""
    found = []
    for name, rows in sorted(solvers.items()):
        rates = []
        for rate in RATES:
            values = [m.value for row in rows if (m := row.metrics.get(rate)) is not None and m.value is not None]
            rates.append(f"{100 * fmean(values):.1f}% (n={len(values)})" if values else None)
        found.append((name, *(percent(_share(rows, stage)) for stage in STAGES), *rates))
    note = "Rates are means over the runs whose policies could be judged."
    return ResultTable("Stages", ("solver", *STAGES, *RATES), tuple(found), note)
