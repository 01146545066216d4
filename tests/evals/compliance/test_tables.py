"""Table 5 of ITBench over made runs: pass@1 by class and overall, the time to process, standard errors as by hand."""

from __future__ import annotations

from math import sqrt
from statistics import stdev

import pytest

from opsassay.core.schema.run import Metric, MetricStatus, Run, RunStatus, Solver
from opsassay.evals.compliance.tables import compliance_tables
from opsassay.evals.compliance.tasks import CLASSES
from opsassay.evals.runner.results import ResultRow

FIRST, SECOND, *OTHERS = CLASSES


def row(task: str, passed: float | None, seconds: float | None) -> ResultRow:
    grade = Metric(value=passed, status=MetricStatus.SCORED if passed is not None else MetricStatus.NOT_APPLICABLE)
    ended = None if seconds is None else int(seconds * 1e9)
    solver = Solver(name="s")
    run = Run(
        cell="c", attempt=1, item=task, item_hash="h", system="s", solver=solver, solver_hash="h",
        status=RunStatus.DONE, ended_ns=ended,
    )  # fmt: skip
    return ResultRow("compliance", task, "s", "default", 1, run, None, {"passed": grade})


def test_table_5_has_overall_pass_at_1_time_and_standard_errors():
    rows = [row(f"{FIRST}-1", 1, 10), row(f"{FIRST}-1", 0, 20), row(f"{SECOND}-1", 1, 60), row(f"{SECOND}-2", 1, None)]
    (table,) = [one for one in compliance_tables(rows) if one.number == 5]
    cells = dict(zip(table.columns, table.rows[0], strict=True))
    error = 100 * stdev([1, 0, 1, 1]) / sqrt(4)
    assert cells[f"{FIRST} pass@1"] == f"50.0% ± {100 * stdev([1, 0]) / sqrt(2):.1f}"
    assert cells[f"{SECOND} pass@1"] == "100.0% ± 0.0"
    assert cells["overall pass@1"] == f"{100 * (0.5 + 1 + 1) / 3:.1f}% ± {error:.1f}"
    assert cells["time to process, s"] == f"30.0 ± {stdev([10, 20, 60]) / sqrt(3):.1f}"
    assert all(cells[f"{one} pass@1"] is None for one in OTHERS)


@pytest.mark.parametrize(("passed", "shown"), [(1, "100.0%"), (0, "0.0%"), (None, None)])
def test_one_run_has_no_standard_error(passed, shown):
    cells = compliance_tables([row(f"{FIRST}-1", passed, 5)])[0]
    assert (cells.rows[0][1], cells.rows[0][-1]) == (shown, "5.0")
