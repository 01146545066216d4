"""Results of any domain: rows of named metrics, and tables of each solver's means."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from opsassay.core.errors import OpsAssayError
from opsassay.core.schema.run import Metric, MetricStatus, Run
from opsassay.core.schema.task import MetricDefinition
from opsassay.evals.runner.domain import Domain, domain_named
from opsassay.evals.runner.ranking import solver_names, why_not_ranked
from opsassay.evals.runner.run import RunEnd, score
from opsassay.evals.runner.tables import ResultTable
from opsassay.scoring.figures import percent
from opsassay.scoring.metrics import further_metrics
from opsassay.scoring.rates import estimate_of
from opsassay.scoring.repeats import mean_pass_at_k

SHOWN = 5
"""Number of a domain's metrics in a table, the first that it defines; metrics of plug-ins follow."""


@dataclass(frozen=True)
class ResultRow:
    """One run of one task with its metrics by name; *problem*: why it is missing or not graded."""

    domain: str
    task: str
    solver: str
    arm: str
    seed: int
    run: Run | None
    folder: Path | None
    metrics: Mapping[str, Metric]
    problem: str | None = None

    @property
    def not_ranked(self) -> tuple[str, ...]:
        """The reasons why the run is not ranked, () when it is."""
        return why_not_ranked(self.run) if self.run is not None else ()

    def as_item(self) -> dict[str, Any]:
        """Return the row as JSON-ready data."""
        run = self.run
        return {
            "domain": self.domain,
            "task": self.task,
            "solver": self.solver,
            "arm": self.arm,
            "seed": self.seed,
            "status": run.status.value if run else "not run",
            "error": self.problem or (run.error if run else None),
            "isolation": run.isolation if run else None,
            "limits_hit": list(run.limits_hit) if run else [],
            "not_ranked": list(self.not_ranked),
            "spent": dict(run.spent) if run else {},
            "notes": list(run.notes) if run else [],
            "metrics": {name: metric.model_dump(mode="json") for name, metric in self.metrics.items()},
            "run": str(self.folder) if self.folder else None,
        }


def row_of(end: RunEnd) -> ResultRow:
    """Grade the ended run *end*, write its verdict, and return its result row."""
    cell, metrics, problem = end.job.cell, dict[str, Metric](), end.error
    try:
        metrics = score(end)
    except OpsAssayError as error:
        problem = f"not graded: {error}"
    task, arm = cell.task, cell.arm.label
    return ResultRow(task.domain, task.id, cell.solver.label, arm, cell.seed, end.run, end.run_dir, metrics, problem)


def solver_tables(rows: Sequence[ResultRow]) -> list[ResultTable]:
    """Return a table per domain with a row per solver, rankable solvers first."""
    domains = dict.fromkeys(row.domain for row in rows)
    return [_table_of_domain(domain_named(name), [row for row in rows if row.domain == name]) for name in domains]


def by_solver(rows: Sequence[ResultRow]) -> dict[str, list[ResultRow]]:
    """Return solver name to its *rows*; solvers with different configurations have different names."""
    groups: dict[str, list[ResultRow]] = {}
    name = solver_names(row.run for row in rows if row.run)
    for row in rows:
        groups.setdefault(name(row.run) if row.run else row.solver, []).append(row)
    return groups


def _table_of_domain(domain: Domain, rows: Sequence[ResultRow]) -> ResultTable:
    """Return a table with a row per solver: the domain's first metrics, pass@k and whether it is ranked."""
    groups = by_solver(rows)
    added = [name for name in further_metrics() if any(name in row.metrics for row in rows)]
    defined = domain.metrics()[:SHOWN]
    shown = [*defined, *(MetricDefinition(name=name, unit="its own", direction="neither") for name in added)]
    most = max(Counter((row.solver, row.arm, row.task) for row in rows).values())
    ks = sorted({1, most})
    found = [(_make_row(domain, name, of, shown, ks), _reasons_not_ranked(of)) for name, of in groups.items()]
    ordered = sorted(found, key=lambda one: (bool(one[1]), one[0][0]))
    columns = (
        "solver",
        "runs",
        "ended",
        *(metric.title for metric in defined),
        *added,
        *(f"pass@{k}" for k in ks),
        "ranked",
    )
    return ResultTable(f"Solvers, {domain.name}", columns, tuple(figures for figures, _ in ordered))


def _make_row(
    domain: Domain, name: str, rows: Sequence[ResultRow], metrics: Iterable[MetricDefinition], ks: Iterable[int]
) -> tuple[Any, ...]:
    """Return the table cells of the solver *name*: means of *metrics*, pass@k for *ks*, and why it is not ranked."""
    ended = Counter(row.run.status.value if row.run else "not run" for row in rows)
    outcomes: dict[str, list[bool]] = {}
    for row in rows:
        if row.metrics and (succeeded := domain.succeeded(row.metrics)) is not None:
            outcomes.setdefault(row.task, []).append(succeeded)
    reasons = _reasons_not_ranked(rows)
    return (
        name,
        len(rows),
        ", ".join(f"{count} {status}" for status, count in ended.items()),
        *(_mean(rows, metric) for metric in metrics),
        *(_pass_at(outcomes, k) for k in ks),
        "no: " + "; ".join(reasons) if reasons else "yes",
    )


def _reasons_not_ranked(rows: Iterable[ResultRow]) -> list[str]:
    """Return the distinct reasons why *rows* are not ranked."""
    return list(dict.fromkeys(reason for row in rows for reason in row.not_ranked))


def _mean(rows: Iterable[ResultRow], metric: MetricDefinition) -> str | None:
    """Return the mean over tasks of the mean over repeats of *metric*, as text; None without values."""
    per_task: dict[str, list[float]] = {}
    for row in rows:
        grade = row.metrics.get(metric.name)
        if grade is None:
            continue
        lost = grade.status is MetricStatus.FAILED and metric.direction == "higher"
        if (value := 0.0 if lost else grade.value) is not None:
            per_task.setdefault(row.task, []).append(value)
    found = estimate_of([fmean(values) for values in per_task.values()], share=metric.is_share)
    return found.text_with_n if found else None


def _pass_at(outcomes: Mapping[str, Sequence[bool]], k: int) -> str | None:
    """Return pass@k over the tasks with at least *k* repeats as text, with their number; None without one.

    *outcomes*: task to whether each repeat succeeded.
    """
    enough = {task: tries for task, tries in outcomes.items() if len(tries) >= k}
    return f"{percent(mean_pass_at_k(enough, k))} ({len(enough)})" if enough else None
