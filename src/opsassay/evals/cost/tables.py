"""Table 6 and Tables 30 to 32 of ITBench over a store of cost runs.

A pass rate is the mean over tasks of the share of repeats that passed; a run without an answer counts as 0 everywhere.
Means with a standard deviation are over all runs of a solver, as in the paper.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

from opsassay.core.schema.run import MetricStatus
from opsassay.evals.cost.anomaly.task import ANOMALY_TASKS
from opsassay.evals.cost.insight.keys import QUESTIONS
from opsassay.evals.cost.live.score import PROXIMITIES
from opsassay.evals.cost.live.tasks import TASKS
from opsassay.evals.runner.grading import GradedRuns
from opsassay.evals.runner.results import ResultRow, by_solver
from opsassay.evals.runner.tables import ResultTable
from opsassay.scoring.repeats import mean_pass_at_k


@dataclass(frozen=True)
class GradedCosts(GradedRuns):
    """Graded runs of cost tasks."""

    def results(self) -> list[ResultTable]:
        """Return the result tables: ITBench's Table 6 and Tables 30 to 32."""
        return cost_tables(self.rows())


def cost_tables(rows: Sequence[ResultRow]) -> list[ResultTable]:
    """Return the tables of all tasks, questions, anomaly tasks and live tasks, each with a row per solver."""
    solvers = by_solver(rows)
    return [_overview_table(solvers), _table_per_question(solvers), _table_per_anomaly(solvers), _live_table(solvers)]


def _rows_of_tasks(rows: Iterable[ResultRow], task_names: Iterable[str]) -> list[ResultRow]:
    """Return the rows whose task has one of *task_names*, of any seed."""
    names = frozenset(task_names)
    return [row for row in rows if row.task.partition("@")[0] in names]


def _outcomes_by_task(rows: Sequence[ResultRow], metric: str) -> dict[str, list[bool]]:
    """Return by task, for each repeat in which *metric* applies, whether its value is 1."""
    per_task: dict[str, list[bool]] = {}
    for row in rows:
        if (grade := row.metrics.get(metric)) is not None and grade.status is not MetricStatus.NOT_APPLICABLE:
            per_task.setdefault(row.task, []).append(grade.value == 1.0)
    return per_task


def _pass_rate(rows: Sequence[ResultRow], metric: str = "passed") -> str | None:
    """Return the percentage of runs in which *metric* is 1 as text, mean over tasks; None without runs."""
    return _pass_at(1, rows, metric)


def _pass_at(k: int, rows: Sequence[ResultRow], metric: str = "passed") -> str | None:
    """Return the chance that *metric* is 1 in any of *k* runs, as text in percent, mean over tasks; None if no run."""
    outcomes = _outcomes_by_task(rows, metric)
    return f"{100 * mean_pass_at_k(outcomes, k):.1f}" if outcomes else None


def _format_mean(rows: Sequence[ResultRow], metric: str) -> str | None:
    """Return mean ± SD of *metric* as text, None without values; a failed grade counts as 0."""
    grades = (row.metrics.get(metric) for row in rows)
    values = [g.value or 0.0 for g in grades if g is not None and g.status is not MetricStatus.NOT_APPLICABLE]
    return f"{fmean(values):.2f} ± {stdev(values) if len(values) > 1 else 0.0:.2f}" if values else None


def _mean_tokens(rows: Sequence[ResultRow]) -> str | None:
    """Return the mean number of tokens of the runs that called a model, as text; None when none did."""
    grades = (row.metrics.get("tokens") for row in rows)
    values = [grade.value for grade in grades if grade is not None and grade.value is not None]
    return f"{fmean(values):.0f}" if values else None


def _overview_table(solvers: Mapping[str, Sequence[ResultRow]]) -> ResultTable:
    """Return a table with a row per solver: its rates on each class of tasks (ITBench, Table 6)."""
    found = tuple(
        (
            name,
            _pass_rate(_rows_of_tasks(rows, QUESTIONS)),
            _format_mean(_rows_of_tasks(rows, ANOMALY_TASKS), "anomaly_f1"),
            _format_mean(_rows_of_tasks(rows, ANOMALY_TASKS), "rank_importance"),
            _pass_rate(_rows_of_tasks(rows, TASKS), "diagnosis_right"),
            _pass_rate(_rows_of_tasks(rows, TASKS)),
        )
        for name, rows in sorted(solvers.items())
    )
    columns = ("solver", "data insights pass@1 %", "anomaly F1", "ranking", "diagnosis pass@1 %", "mitigation pass@1 %")
    return ResultTable("Solvers on cost tasks", columns, found, __doc__ or "", number=6)


def _table_per_question(solvers: Mapping[str, Sequence[ResultRow]]) -> ResultTable:
    """Return a table with a row per solver: pass rate and tokens of each question (Table 30)."""
    found = tuple(
        (
            name,
            *(
                cell
                for task in QUESTIONS
                for cell in (_pass_rate(_rows_of_tasks(rows, [task])), _mean_tokens(_rows_of_tasks(rows, [task])))
            ),
        )
        for name, rows in sorted(solvers.items())
    )
    columns = ("solver", *(title for task in QUESTIONS for title in (f"{task} pass@1 %", f"{task} tokens")))
    return ResultTable("Questions, by solver", columns, found, number=30)


def _table_per_anomaly(solvers: Mapping[str, Sequence[ResultRow]]) -> ResultTable:
    """Return a table with a row per solver with anomaly tasks: the mean of each metric (Table 31)."""
    names = ("anomaly_f1", "rank_importance", "rank_relative", "detector_f1")
    found = tuple(
        (name, _pass_rate(of), *(_format_mean(of, metric) for metric in names), _mean_tokens(of))
        for name, rows in sorted(solvers.items())
        if (of := _rows_of_tasks(rows, ANOMALY_TASKS))
    )
    note = "F1 is against what was planted, detector_f1 the agreement with the declared detector, the paper's truth."
    return ResultTable("Anomaly tasks, by solver", ("solver", "pass@1 %", *names, "tokens"), found, note, number=31)


def _live_table(solvers: Mapping[str, Sequence[ResultRow]]) -> ResultTable:
    """Return a table with a row per solver with live tasks: pass rates, nearness to the optimum (Table 32)."""
    titles = [f"proximity_{name}{end}" for name in PROXIMITIES for end in ("", "_clamped")]
    found = tuple(
        (name, *_live_rates(of), *(_format_mean(of, title) for title in titles))
        for name, rows in sorted(solvers.items())
        if (of := _rows_of_tasks(rows, TASKS))
    )
    note = (
        "k is the fewest repeats of a task. A proximity is 1 - |observed - optimum| / optimum; raw it may be negative, "
        "clamped it lies between 0 and 1."
    )
    passing = ("diagnosis pass@1 %", "mitigation pass@1 %", "k", "diagnosis pass@k %", "mitigation pass@k %")
    columns = ("solver", *passing, *titles)
    return ResultTable("Alert-driven tasks, by solver", columns, found, note, number=32)


def _live_rates(rows: Sequence[ResultRow]) -> tuple[str | int | None, ...]:
    """Return pass@1 of diagnosis and mitigation, k (the fewest repeats of a task), and pass@k of both, in percent."""
    names = ("diagnosis_right", "passed")
    k = min(map(len, _outcomes_by_task(rows, "passed").values()), default=1)
    return (*(_pass_rate(rows, name) for name in names), k, *(_pass_at(k, rows, name) for name in names))
