"""Means over many verdicts, with intervals and the numbers of verdicts that were not scored."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from opsassay.core.schema.metric_words import is_share
from opsassay.core.schema.run import MetricStatus, Verdict
from opsassay.scoring.figures import MeanFigure
from opsassay.scoring.metrics import ALL, ENTITIES, GRAPH, OUTCOME
from opsassay.scoring.rates import mean_of, share_of

COUNTED = frozenset(
    {*OUTCOME, *ENTITIES, *GRAPH, "path_reachability", "path_reachability_hit"} - {"fault_kind_accuracy"}
)
"""Metrics in which a run without an answer counts as 0."""

GROUNDED_SHARE = "path_reachability_per_any_service"
"""PR / AnySvc (OpenRCA 2.0, Table 2): among cases with a correct service, the share with a path to an alarm."""

SUMMARY_SCHEMA = {
    "solver": pl.String,
    "scope": pl.String,
    "group": pl.String,
    "metric": pl.String,
    "mean": pl.Float64,
    "low": pl.Float64,
    "high": pl.Float64,
    "interval": pl.String,
    "cases": pl.Int64,
    "scored": pl.Int64,
    "not_applicable": pl.Int64,
    "failed": pl.Int64,
}
"""Columns of a summary: `cases` counts incidents with a score, the last three count verdicts."""


def summarise(
    verdicts: Iterable[Verdict],
    groups: Mapping[str, Mapping[str, str]] | None = None,
    names: Iterable[str] | None = None,
) -> pl.DataFrame:
    """Return one row per solver, scope, group and metric of *names* (all when None), with the columns of SUMMARY_SCHEMA.

    Scopes: ``all`` weights every case alike, ``macro`` every system, ``system`` is one system. *groups* adds scopes of
    its own, such as ``kind``: each maps items to the group that they are in, and items that it leaves out are in none.
    Verdicts of the same solver on the same item are averaged first: cases, not repeats, are the unit of every interval.

    Intervals at 95 % are those of `rates`: ``wilson`` for a share, ``bootstrap`` for what has another unit, where cases
    differ. A ratio whose denominator is 0 is null as a whole. A run without an answer counts as 0 where more is better
    (COUNTED), or a solver that crashes on hard cases would be scored on easy ones; else means are over scored verdicts.
    """
    scopes = groups or {}
    long = _verdicts_as_long_table(verdicts, None if names is None else frozenset(names))
    rows: list[dict[str, Any]] = []
    for solver, of_solver in _split_by_column(long, "solver"):
        rows += _summary_rows(of_solver, solver=solver, scope="all", group="", macro=False)
        rows += _summary_rows(of_solver, solver=solver, scope="macro", group="", macro=True)
        for group, part in _split_by_column(of_solver, "system"):
            rows += _summary_rows(part, solver=solver, scope="system", group=group, macro=False)
        for scope, group_of in scopes.items():
            items = pl.col("item").replace_strict(dict(group_of), default=None, return_dtype=pl.String)
            inside = of_solver.with_columns(group=items).drop_nulls("group").sort("group", maintain_order=True)
            for group, part in _split_by_column(inside, "group"):
                rows += _summary_rows(part, solver=solver, scope=scope, group=group, macro=False)
    return pl.DataFrame(rows, schema=SUMMARY_SCHEMA)


def _verdicts_as_long_table(verdicts: Iterable[Verdict], names: frozenset[str] | None) -> pl.DataFrame:
    """Return one row per verdict and metric of *names* (None: all), sorted; unanswered COUNTED metrics are 0.0."""
    rows = [
        (v.solver, v.system, v.item, v.run, name, 0.0 if is_zero(v, name) else metric.value, metric.status.value)
        for v in verdicts
        for name, metric in v.metrics.items()
        if names is None or name in names
    ]
    columns = ("solver", "system", "item", "run", "metric", "value", "status")
    schema = {name: pl.Float64 if name == "value" else pl.String for name in columns}
    return pl.DataFrame(rows, schema=schema, orient="row").sort("solver", "system", "item", "run", "metric")


def is_zero(verdict: Verdict, metric: str) -> bool:
    """Return whether *metric* of *verdict* counts as 0: the run gave no answer, and more of the metric is better."""
    whole = verdict.metrics.keys() >= {"any_service", "exact_match"}
    unanswered = whole and not any(m.status is MetricStatus.SCORED for m in verdict.metrics.values())
    return unanswered and metric in COUNTED and verdict.metrics[metric].status is MetricStatus.FAILED


def _split_by_column(frame: pl.DataFrame, column: str) -> Iterator[tuple[str, pl.DataFrame]]:
    """Yield (value, rows) for each value of *column*, in the order of first appearance."""
    for key, part in frame.group_by(column, maintain_order=True):
        yield str(key[0]), part


def _summary_rows(frame: pl.DataFrame, *, solver: str, scope: str, group: str, macro: bool) -> Iterator[dict[str, Any]]:
    """Yield a row labelled *solver*, *scope*, *group* per metric in *frame*; *macro*: all systems weigh the same."""
    by_metric = dict(_split_by_column(frame, "metric"))
    names = [*(name for name in ALL if name in by_metric), *sorted(set(by_metric) - set(ALL))]
    about = {"solver": solver, "scope": scope, "group": group}
    for name in names:
        yield {**about, "metric": name, **_summarise_metric(name, by_metric[name], macro=macro)}
    if {"path_reachability", "any_service"} <= by_metric.keys():
        ratio = _summarise_ratio(by_metric["path_reachability"], by_metric["any_service"], macro=macro)
        yield {**about, "metric": GROUNDED_SHARE, **ratio}


def _summarise_metric(name: str, rows: pl.DataFrame, *, macro: bool) -> dict[str, Any]:
    """Return mean, interval and status counts of metric *name*; with *macro* every system weighs the same."""
    cases = _mean_per_case(rows)
    values = cases.get_column("value").to_numpy()
    if not is_share(name, ""):
        strata = [part.get_column("value").to_numpy() for part in _split_into_strata(cases, by_system=macro)]
        return {**_interval_as_row(mean_of(strata), "bootstrap"), "cases": len(values), **_count_statuses(rows)}
    return {
        **_interval_as_row(share_of(values, _case_weights(cases, macro=macro)), "wilson"),
        "cases": len(values),
        **_count_statuses(rows),
    }


def _summarise_ratio(reached: pl.DataFrame, named: pl.DataFrame, *, macro: bool) -> dict[str, Any]:
    """Return the summary of path_reachability / any_service, rows *reached* / *named*; *macro*: systems weigh alike."""
    both = (
        _mean_per_case(reached)
        .join(_mean_per_case(named), on=["system", "item"], suffix="_named")
        .sort("system", "item")
    )
    tops, bottoms = (both.get_column(name).to_numpy() for name in ("value", "value_named"))
    shares = np.divide(tops, bottoms, out=np.zeros(len(tops)), where=bottoms > 0)
    found = share_of(shares, bottoms * _case_weights(both, macro=macro))
    return {**_interval_as_row(found, "wilson"), "cases": both.height, **_count_statuses(reached)}


def _case_weights(cases: pl.DataFrame, *, macro: bool) -> NDArray[np.float64]:
    """Return a weight per row of *cases*: equal, or with *macro* such that every system weighs the same."""
    if not macro:
        return np.ones(cases.height)
    return cases.select(1 / pl.len().over("system")).to_series().to_numpy()


def _interval_as_row(figure: MeanFigure | None, interval: str) -> dict[str, Any]:
    """Return mean, low, high and *interval*, the method's name; all None when *figure* is None."""
    if figure is None:
        return {"mean": None, "low": None, "high": None, "interval": None}
    return {
        "mean": figure.value, "low": figure.low, "high": figure.high, "interval": None if figure.low is None else interval
    }  # fmt: skip


def estimate(row: Mapping[str, Any] | None) -> MeanFigure | None:
    """Return the mean and interval in a row of `summarise`; None when the row or its mean is None."""
    if row is None or row["mean"] is None:
        return None
    return MeanFigure(row["mean"], row["low"], row["high"], row["cases"], share=is_share(row["metric"], ""))


def _mean_per_case(rows: pl.DataFrame) -> pl.DataFrame:
    """Return one row per (system, item) with the mean value of its verdicts; nulls are left out."""
    scored = rows.filter(pl.col("value").is_not_null())
    return scored.group_by("system", "item").agg(pl.col("value").mean()).sort("system", "item")


def _split_into_strata(cases: pl.DataFrame, *, by_system: bool) -> list[pl.DataFrame]:
    """Return the rows of each system, or all rows as one part unless *by_system*; [] without rows."""
    if by_system:
        return [part for _, part in _split_by_column(cases, "system")]
    return [cases] if cases.height else []


def _count_statuses(rows: pl.DataFrame) -> dict[str, int]:
    """Return the number of rows by metric status, 0 included."""
    found = dict(rows.get_column("status").value_counts().iter_rows())
    return {status.value: int(found.get(status.value, 0)) for status in MetricStatus}
