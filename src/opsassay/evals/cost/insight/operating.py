"""The KPIs of ITBench's E.1.1 that a bill alone does not tell: use, forecasts, storage and carbon, as templates with seeds.

They are asked by name beside the ten questions. Sums are of whole micro-units, so that the two keys of each agree exactly.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Literal

import polars as pl

from opsassay.evals.cost.focus.schema import BUDGETS, RESOURCE_DAYS
from opsassay.evals.cost.focus.world import MICRO, World
from opsassay.evals.cost.insight.paper import part_of
from opsassay.evals.cost.insight.question import (
    ANY_PERCENT,
    CREDITS,
    PERCENT,
    USD,
    Field,
    KeyRow,
    QuestionTemplate,
    Tables,
    Terms,
    between,
)
from opsassay.evals.cost.insight.reading import frame_rows, share, sql_rows
from opsassay.evals.runner.draws import Draws

LATE = ("off_by_a_day", "half_the_window")
"""Wrong readings that every question over days has."""
SUB_ACCOUNT = Field("sub_account", "name", "the SubAccountId")
PROVIDER = Field("provider", "name", "the ProviderName")
CATEGORY = Field("category", "name", "the ServiceCategory")
_GROUPS = {"sub_account": "SubAccountId", "provider": "ProviderName", "category": "ServiceCategory"}
_UNTAGGED = "(Tags IS NULL OR Tags = 'NULL')"


def _days(terms: Terms) -> str:
    return f"from {terms.first} to {terms.last}, both days included (by Day of the table {RESOURCE_DAYS})"


def _window(draws: Draws, world: World) -> Terms:
    return part_of(draws, world)[1]


def _micro(name: str) -> str:
    return f"CAST({name} * {MICRO} AS HUGEINT)"


def _rows_of_window(tables: Tables, terms: Terms) -> pl.DataFrame:
    """Return the rows of the window, quantities as whole micro-units."""
    days = tables[RESOURCE_DAYS].filter(pl.col("Day").is_between(pl.lit(str(terms.first)), pl.lit(str(terms.last))))
    return days.with_columns(pl.col(pl.Decimal).to_physical().cast(pl.Int64))


def _per_group(
    name: str, stratum: Literal["easy", "medium"], kpi: str, by: Field, asked: Field, words: Callable[[Terms], str],
    sql: tuple[str, str], frame: tuple[pl.Expr, pl.Expr], *, only: tuple[str, pl.Expr] = ("true", pl.lit(True)),  # noqa: FBT003
) -> QuestionTemplate:  # fmt: skip
    """Return the template of a share: *sql* and *frame* are its part and its whole, summed in each group of *by*."""
    column = _GROUPS[by.name]

    def statement(terms: Terms) -> str:
        return (
            f"SELECT {column} AS {by.name}, 100 * ({sql[0]}) AS {asked.name}_num, {sql[1]} AS {asked.name}_den "
            f"FROM {RESOURCE_DAYS} WHERE Day BETWEEN '{terms.first}' AND '{terms.last}' AND {only[0]} GROUP BY ALL"
        )

    def rows(tables: Tables, terms: Terms) -> list[KeyRow]:
        sums = (
            _rows_of_window(tables, terms)
            .filter(only[1])
            .group_by(column)
            .agg(frame[0].alias("part"), frame[1].alias("whole"))
        )
        return [{by.name: group, asked.name: share(part, whole)} for group, part, whole in sums.rows() if whole]

    return QuestionTemplate(name, stratum, kpi, (by, asked), _window, words, statement, rows, LATE)


def _sum(name: str) -> str:
    return f"sum({_micro(name)})"


UTILIZATION = _per_group(
    "utilization", "easy", "Percentage resource utilization", CATEGORY,
    Field("used_percent", "number", "UsedUnits as percent of CapacityUnits"),
    lambda terms: f"How much of what was provided was used {_days(terms)}, by service category? Divide the sum of "
    f"UsedUnits by the sum of CapacityUnits. {PERCENT}",
    (_sum("UsedUnits"), _sum("CapacityUnits")), (pl.col("UsedUnits").sum(), pl.col("CapacityUnits").sum()),
)  # fmt: skip

UNUSED_RESOURCES = _per_group(
    "unused-resources", "medium", "Percent of unused resources", PROVIDER,
    Field("unused_percent", "number", "days of resources without any use as percent of all of their days"),
    lambda terms: "What percentage of the days of its resources did nobody use them, by provider, "
    f"{_days(terms)}? A row of the table is a day of a resource; it is not used when its UsedUnits are 0. {PERCENT}",
    ("count(*) FILTER (UsedUnits = 0)", "count(*)"), ((pl.col("UsedUnits") == 0).sum(), pl.len()),
)  # fmt: skip

FREQUENT_TIER = _per_group(
    "frequent-tier", "medium", "Percent storage on frequent access tier", PROVIDER,
    Field("frequent_percent", "number", "StoredGb in the tier Standard as percent of all StoredGb"),
    lambda terms: f"How much of what each provider stores is in the AccessTier Standard, {_days(terms)}? Sum StoredGb over "
    f"all days and resources, and leave out rows without a StoredGb. {PERCENT}",
    (f"coalesce(sum({_micro('StoredGb')}) FILTER (AccessTier = 'Standard'), 0)", _sum("StoredGb")),
    (pl.col("StoredGb").filter(pl.col("AccessTier") == "Standard").sum(), pl.col("StoredGb").sum()),
    only=("StoredGb IS NOT NULL", pl.col("StoredGb").is_not_null()),
)  # fmt: skip

UNTAGGED_CARBON = _per_group(
    "untagged-carbon", "easy", "Percentage of carbon associated with untagged resources", PROVIDER,
    Field("untagged_percent", "number", "CarbonKg of untagged resources as percent of all CarbonKg"),
    lambda terms: f"What percentage of the carbon of each provider is of resources without tags, {_days(terms)}? Sum "
    f"CarbonKg; a resource has no tags when its Tags are NULL or the text 'NULL'. {PERCENT}",
    (f"coalesce(sum({_micro('CarbonKg')}) FILTER ({_UNTAGGED}), 0)", _sum("CarbonKg")),
    (pl.col("CarbonKg").filter(pl.col("Tags").is_null() | (pl.col("Tags") == "NULL")).sum(), pl.col("CarbonKg").sum()),
)  # fmt: skip

FORECAST_USAGE = _per_group(
    "forecast-usage", "medium", "Forecast accuracy rate (usage)", CATEGORY,
    Field("accuracy_percent", "number", "100 less the error of the forecast in percent of the use"),
    lambda terms: f"How accurate were the forecasts of use {_days(terms)}, by service category? The accuracy is 100 x (1 - "
    f"|sum of ForecastUnits - sum of UsedUnits| / sum of UsedUnits); it may be below 0. {ANY_PERCENT}",
    (f"{_sum('UsedUnits')} - abs({_sum('ForecastUnits')} - {_sum('UsedUnits')})", _sum("UsedUnits")),
    (pl.col("UsedUnits").sum() - (pl.col("ForecastUnits").sum() - pl.col("UsedUnits").sum()).abs(),
     pl.col("UsedUnits").sum()),
)  # fmt: skip


def _hours(terms: Terms) -> int:
    return 24 * ((terms.last - terms.first).days + 1)


def _scaling_frame(tables: Tables, terms: Terms) -> list[KeyRow]:
    each = _rows_of_window(tables, terms).group_by("SubAccountId", "ResourceId").agg(
        (pl.col("PeakCapacityUnits").max() * _hours(terms)).alias("fixed"), pl.col("CapacityUnits").sum().alias("scaled")
    )  # fmt: skip
    sums = each.group_by("SubAccountId").agg(pl.col("fixed", "scaled").sum())
    return [
        {"sub_account": name, "rate_percent": share(fixed, scaled)} for name, fixed, scaled in sums.rows() if scaled
    ]


AUTOSCALING = QuestionTemplate(
    "autoscaling-rate", "hard", "Auto-scaling efficiency rate",
    (SUB_ACCOUNT, Field("rate_percent", "number", "capacity without autoscaling as percent of capacity with it")),
    _window,
    lambda terms: f"What does autoscaling save each sub-account {_days(terms)}? Without it a resource would have run at "
    "its largest PeakCapacityUnits (units of an hour) of that time for every hour of it, 24 a day; with it, it ran at the "
    "sum of its CapacityUnits. Add both up over the resources of a sub-account, and give what it would have been without "
    f"as percent of what it was. {ANY_PERCENT}",
    lambda terms: "SELECT SubAccountId AS sub_account, 100 * sum(fixed) AS rate_percent_num, "
    "sum(scaled) AS rate_percent_den FROM (SELECT SubAccountId, ResourceId, "
    f"max({_micro('PeakCapacityUnits')}) * {_hours(terms)} AS fixed, {_sum('CapacityUnits')} AS scaled "
    f"FROM {RESOURCE_DAYS} WHERE Day BETWEEN '{terms.first}' AND '{terms.last}' GROUP BY ALL) GROUP BY ALL",
    _scaling_frame, LATE,
)  # fmt: skip


def _spend_terms(draws: Draws, world: World) -> Terms:
    start, end = draws.choice(((world.start, world.middle), (world.middle, world.end)))
    zone = draws.choice(("Europe/Berlin", "Asia/Kolkata"))
    return Terms("BilledCost", start.date(), (end - timedelta(days=1)).date(), zone)


def _spend_frame(tables: Tables, terms: Terms) -> list[KeyRow]:
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


FORECAST_SPEND = QuestionTemplate(
    "forecast-spend", "hard", "Forecast accuracy rate (spend); percentage variance of budgeted vs. forecasted spend",
    (SUB_ACCOUNT, Field("accuracy_percent", "number", "100 less the error of the forecast in percent of what was spent"),
     Field("variance_percent", "number", "forecast less budget, as percent of the budget")),
    _spend_terms,
    lambda terms: f"How accurate were the forecasts of spending for {terms.first:%Y-%m}, and how far from the budgets, "
    f"by sub-account? Spending is the sum of BilledCost {between(terms)}. {CREDITS} The accuracy is 100 x "
    "(1 - |ForecastUsd - spending| / spending), which may be below 0; the variance is ForecastUsd less BudgetUsd as "
    "percent of BudgetUsd (table budgets). Leave out sub-accounts whose spending is not above 0, without a budget, or with "
    f"one of 0. {USD} {ANY_PERCENT}",
    lambda terms: sql_rows(terms) + "SELECT SubAccountId AS sub_account, "
    "100 * (sum(pico) - abs(any_value(forecast) - sum(pico))) AS accuracy_percent_num, sum(pico) AS accuracy_percent_den, "
    "100 * (any_value(forecast) - any_value(budget)) AS variance_percent_num, any_value(budget) AS variance_percent_den "
    f"FROM chosen JOIN (SELECT SubAccountId, {_micro('BudgetUsd')} * {MICRO} AS budget, {_micro('ForecastUsd')} * {MICRO} "
    f"AS forecast FROM budgets WHERE Month = '{terms.first:%Y-%m}' AND BudgetUsd <> 0) USING (SubAccountId) GROUP BY ALL "
    "HAVING sum(pico) > 0",
    _spend_frame, ("list_cost", "effective_cost", "other_zone", "no_conversion", "credits_ignored"),
)  # fmt: skip
