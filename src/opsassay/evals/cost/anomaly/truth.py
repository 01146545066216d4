"""The truth of an anomaly task: planted anomalies with their costs, and the cost series."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

import polars as pl

from opsassay.evals.cost.focus.generate import CostData
from opsassay.evals.cost.focus.planting import AnomalyKind
from opsassay.evals.cost.focus.schema import COSTS, EXCHANGE_RATES
from opsassay.evals.cost.focus.world import AREAS, Area

Point = tuple[datetime, str]
"""(time, slice)."""


@dataclass(frozen=True)
class TrueAnomaly:
    """One planted anomaly of a *slice*, with the absolute cost of its points in USD (C) and their number (delta).

    *planted_usd* is the change of that cost by the planting.
    """

    slice: str
    start: datetime
    end: datetime
    kind: AnomalyKind
    cost_usd: float
    planted_usd: float
    points: frozenset[Point]

    @property
    def weight(self) -> float:
        """The unscaled importance C * delta: cost times number of points."""
        return self.cost_usd * len(self.points)


def series(
    tables: Mapping[str, pl.DataFrame], area: Area, *, credits_too: bool = False, convert: bool = True
) -> pl.DataFrame:
    """Return time, slice and cost_usd of *area* per hour or day: of usage or, if *credits_too*, of all charges.

    Without *convert* amounts in other currencies are summed as if they were in USD.
    """
    every = "1d" if area.daily else "1h"
    usage = (pl.col("ChargeCategory") == "Usage") & pl.col("ChargeClass").is_null()
    rate = pl.col("UsdPerUnit").to_physical().cast(pl.Int64) if convert else pl.lit(1_000_000)
    return (
        tables[COSTS].lazy()
        .filter((pl.col("ServiceName") == area.service) & (pl.col("PricingUnit") == area.unit)
                & (pl.col("ProviderName") == area.provider) & (usage | pl.lit(credits_too)))
        .join(tables[EXCHANGE_RATES].lazy(), left_on="BillingCurrency", right_on="Currency")
        .with_columns(pl.col("ChargePeriodStart").dt.truncate(every).alias("time"),
                      (pl.col("BilledCost").to_physical().cast(pl.Int64) * rate).alias("pico"))
        .group_by("time", pl.col("SubAccountName").alias("slice"))
        .agg(pl.col("pico").sum())
        .select("time", "slice", (pl.col("pico") / 1e12).alias("cost_usd"))
        .sort("slice", "time")
        .collect()
    )  # fmt: skip


def true_anomalies(data: CostData, name: str) -> tuple[TrueAnomaly, ...]:
    """Return the anomalies that *data* has planted in the area *name*, sorted by time."""
    area, world = AREAS[name], data.world
    step = timedelta(days=1) if area.daily else timedelta(hours=1)
    costs = {(time, slice_): cost for time, slice_, cost in series(data.tables, area).rows()}
    found = []
    for event in data.planted:
        if event.area != name:
            continue
        slice_ = world.resources[event.resource].account.sub_name
        start, end = (world.start + timedelta(hours=hour) for hour in (event.seen_from, event.end))
        points = [(start + step * n, slice_) for n in range((end - start) // step)]
        factors = event.factors[event.seen_from - event.start :: 24 if area.daily else 1]
        excess = sum(costs[point] * (1 - 1000 / factor) for point, factor in zip(points, factors, strict=True))
        cost = abs(sum(costs[point] for point in points))
        found.append(TrueAnomaly(slice_, start, end, event.kind, cost, excess, frozenset(points)))
    return tuple(sorted(found, key=lambda one: (one.start, one.slice)))
