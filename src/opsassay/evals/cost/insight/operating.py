"""Questions on KPIs of ITBench's E.1.1 that need more than a bill: utilization, forecasts, storage and carbon.

Plans select them by name. Sums are of whole micro-units, so that the two keys of each agree exactly.
"""

from __future__ import annotations

from datetime import timedelta

import polars as pl

from opsassay.evals.cost.focus.schema import BUDGETS, RESOURCE_DAYS
from opsassay.evals.cost.focus.world import MICRO
from opsassay.evals.cost.insight.paper import part_of
from opsassay.evals.cost.insight.question import Billed, KeyRow, QuestionTemplate, Tables, Terms
from opsassay.evals.cost.insight.reading import frame_rows, share
from opsassay.evals.cost.insight.templates import template
from opsassay.evals.runner.draws import Draws

_GROUPS = {"sub_account": "SubAccountId", "provider": "ProviderName", "category": "ServiceCategory"}


def _draw_window(draws: Draws, billed: Billed) -> Terms:
    """Draw the parameters of a question: a window of 12 to 26 days."""
    return part_of(draws, billed)[1]


def _rows_of_window(tables: Tables, terms: Terms) -> pl.DataFrame:
    """Return a row per resource and day within the window of *terms*, quantities in whole micro-units."""
    days = tables[RESOURCE_DAYS].filter(pl.col("Day").is_between(pl.lit(str(terms.first)), pl.lit(str(terms.last))))
    return days.with_columns(pl.col(pl.Decimal).to_physical().cast(pl.Int64))


def _per_group(name: str, part: pl.Expr, total: pl.Expr, *, row_filter: pl.Expr | None = None) -> QuestionTemplate:
    """Return the template of question *name*: per group, *part* in percent of *total*, over rows of *row_filter*."""

    def rows(tables: Tables, terms: Terms) -> list[KeyRow]:
        """Return per group the part as a percentage of the total."""
        by, asked = (one.name for one in made.fields)
        days = _rows_of_window(tables, terms).filter(pl.lit(value=True) if row_filter is None else row_filter)
        sums = days.group_by(_GROUPS[by]).agg(part.alias("part"), total.alias("whole"))
        return [{by: group, asked: share(part, total)} for group, part, total in sums.rows() if total]

    made = template(name, _draw_window, rows)
    return made


UTILIZATION = _per_group("utilization", pl.col("UsedUnits").sum(), pl.col("CapacityUnits").sum())

UNUSED_RESOURCES = _per_group("unused-resources", (pl.col("UsedUnits") == 0).sum(), pl.len())

FREQUENT_TIER = _per_group(
    "frequent-tier",
    pl.col("StoredGb").filter(pl.col("AccessTier") == "Standard").sum(),
    pl.col("StoredGb").sum(),
    row_filter=pl.col("StoredGb").is_not_null(),
)

UNTAGGED_CARBON = _per_group(
    "untagged-carbon",
    pl.col("CarbonKg").filter(pl.col("Tags").is_null() | (pl.col("Tags") == "NULL")).sum(),
    pl.col("CarbonKg").sum(),
)

FORECAST_USAGE = _per_group(
    "forecast-usage",
    pl.col("UsedUnits").sum() - (pl.col("ForecastUnits").sum() - pl.col("UsedUnits").sum()).abs(),
    pl.col("UsedUnits").sum(),
)


def _hours_in(terms: Terms) -> int:
    """Return the number of hours in the window of *terms*."""
    return 24 * ((terms.last - terms.first).days + 1)


def _scaling_frame(tables: Tables, terms: Terms) -> list[KeyRow]:
    """Return per sub-account the capacity if always at its peak in the window of *terms*, in percent of the actual."""
    each = _rows_of_window(tables, terms).group_by("SubAccountId", "ResourceId").agg(
        (pl.col("PeakCapacityUnits").max() * _hours_in(terms)).alias("fixed"), pl.col("CapacityUnits").sum().alias("scaled")
    )  # fmt: skip
    sums = each.group_by("SubAccountId").agg(pl.col("fixed", "scaled").sum())
    return [
        {"sub_account": name, "rate_percent": share(fixed, scaled)} for name, fixed, scaled in sums.rows() if scaled
    ]


AUTOSCALING = template("autoscaling-rate", _draw_window, _scaling_frame)


def _spend_terms(draws: Draws, billed: Billed) -> Terms:
    """Draw the parameters of a question: one of the two months as the window, and a time zone."""
    start, end = draws.choice(((billed.start, billed.middle), (billed.middle, billed.end)))
    zone = draws.choice(("Europe/Berlin", "Asia/Kolkata"))
    return Terms("BilledCost", start.date(), (end - timedelta(days=1)).date(), zone)


def _spend_frame(tables: Tables, terms: Terms) -> list[KeyRow]:
    """Return per sub-account, by *terms*, 100% less the forecast's error, and forecast above budget, in percent."""
    spent = dict(frame_rows(tables, terms).group_by("SubAccountId").agg(pl.col("pico").sum()).rows())
    month = tables[BUDGETS].filter(pl.col("Month") == f"{terms.first:%Y-%m}").with_columns(
        pl.col("BudgetUsd", "ForecastUsd").to_physical().cast(pl.Int64) * MICRO
    )  # fmt: skip
    return [
        {"sub_account": name, "accuracy_percent": share(paid - abs(forecast - paid), paid),
         "variance_percent": share(forecast - budget, budget)}
        for name, budget, forecast in month.select("SubAccountId", "BudgetUsd", "ForecastUsd").rows()
        if budget and (paid := spent.get(name, 0)) > 0
    ]  # fmt: skip


FORECAST_SPEND = template("forecast-spend", _spend_terms, _spend_frame)
