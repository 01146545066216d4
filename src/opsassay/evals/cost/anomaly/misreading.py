"""The goal's definition of an anomaly, applied correctly and in known wrong readings, by which the grader names mistakes.

The definition is a departure from the median of the same weekday and hour. Applied correctly it finds exactly the
planted anomalies, as tests check for many seeds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from itertools import pairwise

import polars as pl

from opsassay.evals.cost.anomaly.task import AnomalyTask
from opsassay.evals.cost.answers.contract import Claim


def claims_by_definition(task: AnomalyTask, costs: pl.DataFrame | None = None, zone: str | None = None) -> list[Claim]:
    """Return the anomalies in *costs* by the goal's definition, on the clock of *zone*; both default to the task's."""
    frame = task.series if costs is None else costs
    local = pl.col("time").dt.convert_time_zone(zone or task.zone)
    clock = [pl.col("slice"), local.dt.weekday(), *(() if task.daily else (local.dt.hour(),))]
    usual = pl.col("cost_usd").median().over(clock)
    departs = (pl.col("cost_usd") - usual).abs() > task.departure * usual.abs()
    found = frame.filter(departs).sort("slice", "time")
    costs_of = {(slice_, time): cost for time, slice_, cost in found.select("time", "slice", "cost_usd").rows()}
    return _merge_points(task, list(costs_of), costs_of)


def _merge_points(
    task: AnomalyTask, points: Sequence[tuple[str, object]], costs: Mapping[tuple[str, object], float]
) -> list[Claim]:
    """Merge successive (slice, time) *points* into claims; *costs* gives their importance if the task asks for it."""
    runs: list[list[tuple[str, object]]] = [[point] for point in points[:1]]
    for (slice_, before), point in pairwise(points):
        if point[0] == slice_ and point[1] - before == task.step:  # type: ignore[operator]
            runs[-1].append(point)
        else:
            runs.append([point])
    weights = [abs(sum(costs[point] for point in run)) * len(run) for run in runs]
    largest = max(weights, default=1.0) or 1.0
    return [
        Claim(run[0][0], run[0][1], run[-1][1] + task.step, weight / largest if task.ranked else None)  # type: ignore[arg-type, operator]
        for run, weight in zip(runs, weights, strict=True)
    ]


def true_claims(task: AnomalyTask) -> list[Claim]:
    """Return the true anomalies of *task* as claims, with importance if the task asks for it."""
    largest = max((one.weight for one in task.truth), default=1.0)
    return [
        Claim(one.slice, one.start, one.end, one.weight / largest if task.ranked else None) for one in task.truth
    ]  # fmt: skip


def _claim_everything(task: AnomalyTask) -> list[Claim]:
    """Return one claim per slice that covers the whole period, with importance 1 if the task asks for it."""
    start, end = task.bounds
    return [Claim(slice_, start, end, 1.0 if task.ranked else None) for slice_ in task.slices]


def _claim_a_day_late(task: AnomalyTask) -> list[Claim]:
    """Return the true anomalies, each moved one day later."""
    day = timedelta(days=1)
    return [Claim(one.slice, one.start + day, one.end + day, one.importance) for one in true_claims(task)]


def _claim_with_credits(task: AnomalyTask) -> list[Claim]:
    """Return the anomalies that a solver finds if it counts credits as costs."""
    return claims_by_definition(task, task.series_read(credits_too=True))


def _claim_unconverted(task: AnomalyTask) -> list[Claim]:
    """Return the anomalies that a solver finds if it does not convert amounts to USD."""
    return claims_by_definition(task, task.series_read(convert=False))


def _claim_by_utc(task: AnomalyTask) -> list[Claim]:
    """Return the anomalies that a solver finds if it takes days and hours in UTC, not in the task's zone."""
    return claims_by_definition(task, zone="UTC")


def _claim_ranked_by_cost(task: AnomalyTask) -> list[Claim]:
    """Return the true anomalies with importance by cost alone in place of cost times deviation."""
    largest = max((one.cost_usd for one in task.truth), default=1.0)
    return [Claim(one.slice, one.start, one.end, one.cost_usd / largest) for one in task.truth]


Misreading = Callable[[AnomalyTask], list[Claim]]
MISREADINGS: Mapping[str, tuple[str, Misreading]] = {
    "off_by_a_day": ("its anomalies are a day late", _claim_a_day_late),
    "everything": ("it claims every point of every slice", _claim_everything),
    "credits_counted": ("it counts credits, which are to be left out", _claim_with_credits),
    "no_conversion": ("it adds up amounts of different currencies", _claim_unconverted),
    "utc_clock": ("its hours of the day are those of UTC", _claim_by_utc),
    "cost_alone": ("its importance is of the cost alone, not of cost and duration", _claim_ranked_by_cost),
}
"""Wrong readings by name: (description for an answer that fits, function that returns its claims)."""
OF_AREA: Mapping[str, tuple[str, ...]] = {
    "levels": ("cost_alone",),
    "credits": ("credits_counted",),
    "currency": ("no_conversion", "cost_alone"),
    "seasons": ("utc_clock", "cost_alone"),
}
"""Wrong readings that only matter in one area."""


def misreadings_of(task: AnomalyTask) -> tuple[str, ...]:
    """Return the names of the misreadings of *task* whose answers the grader recognises."""
    return ("off_by_a_day", "everything", *OF_AREA.get(task.name, ()))
