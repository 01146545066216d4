"""Score tables: graded runs of any domain as the long table that `opsassay audit` reads."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

import polars as pl

from opsassay.errors import NotFoundError, UserError
from opsassay.model.run import SCORE_TABLE_COLUMNS, MetricStatus, Verdict
from opsassay.telemetry.content import whole_file

NATIVE = "opsassay"
"""The family of tasks that were made here; imported incidents are of the family of their format."""


def score_table(verdicts: Iterable[Verdict], metric: str, families: Mapping[str, str]) -> pl.DataFrame:
    """Return family, system, case, method, score of *metric*, one row per case and method: repeats are averaged.

    *families* maps items to families. A grade that is not applicable is no row; one that failed to be graded is a row
    without a score, so that a method that crashes on hard cases is not scored on easy ones alone. Raises NotFoundError
    for an unknown metric, UserError for one that is not in [0, 1].
    """
    rows, names = [], set[str]()
    for verdict in verdicts:
        names |= verdict.metrics.keys()
        grade = verdict.metrics.get(metric)
        if grade is not None and grade.status is not MetricStatus.NOT_APPLICABLE:
            rows.append((families.get(verdict.item, NATIVE), verdict.system, verdict.item, verdict.solver, grade.value))
    if metric not in names:
        raise NotFoundError("metric", metric, names)
    schema = {name: pl.Float64 if name == "score" else pl.String for name in SCORE_TABLE_COLUMNS}
    table = pl.DataFrame(rows, schema=schema, orient="row")
    if table.select(((pl.col("score") < 0) | (pl.col("score") > 1)).any()).item():
        raise UserError(f"{metric} is no share between 0 and 1, so it is no score; choose another metric.")
    keys = list(SCORE_TABLE_COLUMNS[:-1])
    return table.group_by(keys).agg(pl.col("score").mean()).sort(keys)


def write_scores(table: pl.DataFrame, path: Path) -> Path:
    """Write *table* as CSV, whole."""
    with whole_file(path) as partial:
        table.write_csv(partial)
    return path
