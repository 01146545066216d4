"""Means over many verdicts, with intervals and with what could not be scored beside them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from opsassay.grading.metrics import ALL, ENTITIES, GRAPH, OUTCOME
from opsassay.grading.rates import CONFIDENCE, wilson
from opsassay.model.run import MetricStatus, Verdict

ZERO_ONE = frozenset(
    {"exact_match", "any_service", "acc_at_1", "acc_at_3", "path_reachability", "path_reachability_hit", "ungrounded"}
)
"""Metrics that are 0 or 1 on a case, so that their mean is a proportion."""

COUNTED = frozenset(
    {*OUTCOME, *ENTITIES, *GRAPH, "path_reachability", "path_reachability_hit"} - {"fault_kind_accuracy"}
)
"""Metrics in which a run without an answer counts as 0."""

GROUNDED_SHARE = "path_reachability_per_any_service"
"""PR / AnySvc (OpenRCA 2.0, Table 2): of the cases with a correct service, the share with a path to an alarm."""

RESAMPLES, SEED = 5000, 42

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

Stratum = tuple[NDArray[np.float64], NDArray[np.float64]]
"""Numerators and denominators of the cases of one system; the denominators of a plain mean are 1."""


def summarise(verdicts: Iterable[Verdict], groups: Mapping[str, Mapping[str, str]] | None = None) -> pl.DataFrame:
    """Return one row per solver, scope, group and metric, with the columns of SUMMARY_SCHEMA.

    Scopes: ``all`` weights every case alike, ``macro`` every system, ``system`` is one system. *groups* adds scopes of
    its own, such as ``kind``: each maps items to the group that they are in, and items that it leaves out are in none.
    Verdicts of the same solver on the same item are averaged first: cases, not repeats, are the unit of every interval.

    Intervals at 95 %: ``wilson`` for a proportion of cases, else ``bootstrap`` (percentile, 5,000 resamples of the
    cases, for ``macro`` within each system, seed 42), which is null below two cases; a ratio whose denominator is 0 is
    null as a whole. A run without an answer counts as 0 where more is better (COUNTED), or a solver that crashes on
    hard cases would be scored on easy ones; else means are over scored verdicts alone.
    """
    scopes = groups or {}
    long = _long(verdicts)
    rows: list[dict[str, Any]] = []
    for solver, of_solver in _groups(long, "solver"):
        rows += _rows(of_solver, solver=solver, scope="all", group="", macro=False)
        rows += _rows(of_solver, solver=solver, scope="macro", group="", macro=True)
        for group, part in _groups(of_solver, "system"):
            rows += _rows(part, solver=solver, scope="system", group=group, macro=False)
        for scope, group_of in scopes.items():
            items = pl.col("item").replace_strict(dict(group_of), default=None, return_dtype=pl.String)
            inside = of_solver.with_columns(group=items).drop_nulls("group").sort("group", maintain_order=True)
            for group, part in _groups(inside, "group"):
                rows += _rows(part, solver=solver, scope=scope, group=group, macro=False)
    return pl.DataFrame(rows, schema=SUMMARY_SCHEMA)


def only(verdicts: Iterable[Verdict], names: Iterable[str]) -> list[Verdict]:
    """Return *verdicts* with those metrics of *names* that they have: intervals of all of them take their time."""
    kept = set(names)
    return [v.model_copy(update={"metrics": {n: m for n, m in v.metrics.items() if n in kept}}) for v in verdicts]


def _long(verdicts: Iterable[Verdict]) -> pl.DataFrame:
    rows = [
        (v.solver, v.system, v.item, v.run, name, 0.0 if is_zero(v, name) else metric.value, metric.status.value)
        for v in verdicts
        for name, metric in v.metrics.items()
    ]
    columns = ("solver", "system", "item", "run", "metric", "value", "status")
    schema = {name: pl.Float64 if name == "value" else pl.String for name in columns}
    return pl.DataFrame(rows, schema=schema, orient="row").sort("solver", "system", "item", "run", "metric")


def is_zero(verdict: Verdict, metric: str) -> bool:
    """Return whether *metric* counts as 0 because the run gave no answer, which was to be given."""
    whole = verdict.metrics.keys() >= set(ALL)
    unanswered = whole and not any(m.status is MetricStatus.SCORED for m in verdict.metrics.values())
    return unanswered and metric in COUNTED and verdict.metrics[metric].status is MetricStatus.FAILED


def _groups(frame: pl.DataFrame, column: str) -> Iterator[tuple[str, pl.DataFrame]]:
    for key, part in frame.group_by(column, maintain_order=True):
        yield str(key[0]), part


def _rows(frame: pl.DataFrame, *, solver: str, scope: str, group: str, macro: bool) -> Iterator[dict[str, Any]]:
    """Yield the rows of one group: every metric in the order of a verdict, then the ratio PR / AnySvc."""
    by_metric = dict(_groups(frame, "metric"))
    names = [*(name for name in ALL if name in by_metric), *sorted(set(by_metric) - set(ALL))]
    about = {"solver": solver, "scope": scope, "group": group}
    for name in names:
        yield {**about, "metric": name, **_of_metric(name, by_metric[name], macro=macro)}
    if {"path_reachability", "any_service"} <= by_metric.keys():
        ratio = _of_ratio(by_metric["path_reachability"], by_metric["any_service"], macro=macro)
        yield {**about, "metric": GROUNDED_SHARE, **ratio}


def _of_metric(name: str, rows: pl.DataFrame, *, macro: bool) -> dict[str, Any]:
    cases = _case_means(rows)
    value = cases.get_column("value").to_numpy()
    if name in ZERO_ONE and not macro and len(value) and np.isin(value, (0.0, 1.0)).all():
        low, high = wilson(float(value.sum()), len(value))
        estimate = {"mean": float(value.mean()), "low": low, "high": high}
        return {**estimate, "interval": "wilson", "cases": len(value), **_counts(rows)}
    strata = [(part.get_column("value").to_numpy(), np.ones(part.height)) for part in _strata(cases, by_system=macro)]
    return {**_bootstrap(strata), "cases": len(value), **_counts(rows)}


def _of_ratio(reached: pl.DataFrame, named: pl.DataFrame, *, macro: bool) -> dict[str, Any]:
    both = _case_means(reached).join(_case_means(named), on=["system", "item"], suffix="_named").sort("system", "item")
    strata = [
        (part.get_column("value").to_numpy(), part.get_column("value_named").to_numpy())
        for part in _strata(both, by_system=macro)
    ]
    return {**_bootstrap(strata), "cases": both.height, **_counts(reached)}


def _case_means(rows: pl.DataFrame) -> pl.DataFrame:
    scored = rows.filter(pl.col("value").is_not_null())
    return scored.group_by("system", "item").agg(pl.col("value").mean()).sort("system", "item")


def _strata(cases: pl.DataFrame, *, by_system: bool) -> list[pl.DataFrame]:
    if by_system:
        return [part for _, part in _groups(cases, "system")]
    return [cases] if cases.height else []


def _counts(rows: pl.DataFrame) -> dict[str, int]:
    found = dict(rows.get_column("status").value_counts().iter_rows())
    return {status.value: int(found.get(status.value, 0)) for status in MetricStatus}


def _bootstrap(strata: Sequence[Stratum]) -> dict[str, Any]:
    """Return the mean of the strata's means and its interval: numerator over denominator, both averaged by stratum."""
    empty = {"mean": None, "low": None, "high": None, "interval": None}
    if not strata:
        return empty
    top = float(np.mean([numerator.mean() for numerator, _ in strata]))
    bottom = float(np.mean([denominator.mean() for _, denominator in strata]))
    if bottom == 0:
        return empty
    if sum(len(numerator) for numerator, _ in strata) < 2:
        return {**empty, "mean": top / bottom}
    draws = [_draws(len(numerator), place) for place, (numerator, _) in enumerate(strata)]
    tops = np.mean([d @ numerator for d, (numerator, _) in zip(draws, strata, strict=True)], axis=0)
    bottoms = np.mean([d @ denominator for d, (_, denominator) in zip(draws, strata, strict=True)], axis=0)
    defined = bottoms > 0
    tail = (1 - CONFIDENCE) / 2
    low, high = np.quantile(tops[defined] / bottoms[defined], (tail, 1 - tail))
    return {"mean": top / bottom, "low": float(low), "high": float(high), "interval": "bootstrap"}


@lru_cache(maxsize=8)
def _draws(cases: int, stratum: int) -> NDArray[np.float64]:
    """Return RESAMPLES rows of weights, each of *cases* draws with replacement: how often each case was drawn, over n.

    The same draws serve every metric of a group, and each stratum has its own.
    """
    draw = np.random.default_rng((SEED, stratum))
    return draw.multinomial(cases, np.full(cases, 1 / cases), size=RESAMPLES) / cases
