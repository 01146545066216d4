"""The six questions of ITBench, Table 26, as templates: windows, categories and numbers of rows follow from a seed."""

from __future__ import annotations

from datetime import timedelta
from fractions import Fraction

import polars as pl

from opsassay.evals.cost.focus.world import World
from opsassay.evals.cost.insight.question import (
    APPLICATION,
    CENT,
    CREDITS,
    NO_NEGATIVE,
    PERCENT,
    USD,
    Field,
    KeyRow,
    QuestionTemplate,
    Tables,
    Terms,
    between,
    ties,
)
from opsassay.evals.cost.insight.reading import dollars, frame_rows, share, sql_literals, sql_rows
from opsassay.evals.runner.draws import Draws

PICO_SQL = "1000000000000"
CATEGORIES = ("Compute", "Storage", "Databases")
ZONES = ("UTC", "Europe/Berlin", "America/New_York")


def part_of(draws: Draws, world: World, low: int = 12, high: int = 26) -> tuple[int, Terms]:
    """Return a window of *low* to *high* days well inside the two months, as terms over BilledCost."""
    length = draws.integer(low, high)
    first = (world.start + timedelta(days=draws.integer(3, world.hours // 24 - length - 4))).date()
    return length, Terms("BilledCost", first, first + timedelta(days=length - 1))


def _category_terms(draws: Draws, world: World) -> Terms:
    _, terms = part_of(draws, world)
    return Terms(terms.cost, terms.first, terms.last, chosen=tuple(sorted(draws.sample(CATEGORIES, 2))))


def _category_frame(tables: Tables, terms: Terms) -> list[KeyRow]:
    rows = frame_rows(tables, terms).filter(pl.col("ServiceCategory").is_in(terms.chosen))
    return [
        {"category": name, "cost_usd": dollars(pico)}
        for name, pico in rows.group_by("ServiceCategory").agg(pl.col("pico").sum()).rows()
    ]


CATEGORY_COST = QuestionTemplate(
    "category-cost", "easy", "Workload optimization and waste reduction",
    (Field("category", "name", "the ServiceCategory"), Field("cost_usd", "number", "its total BilledCost")),
    _category_terms,
    lambda terms: f"What did each of the service categories {' and '.join(terms.chosen)} cost {between(terms)}? "
    f"Sum BilledCost. {CREDITS} {USD} {CENT}",
    lambda terms: sql_rows(terms) + f"SELECT ServiceCategory AS category, sum(pico) AS cost_usd_num, {PICO_SQL} "
    f"AS cost_usd_den FROM chosen WHERE ServiceCategory IN ({sql_literals(terms.chosen)}) GROUP BY ALL",
    _category_frame, ("list_cost", "effective_cost", "off_by_a_day", "no_conversion", "credits_ignored"), paper=1,
)  # fmt: skip


def _top_terms(draws: Draws, world: World) -> Terms:
    _, terms = part_of(draws, world)
    return Terms(terms.cost, terms.first, terms.last, top=draws.integer(3, 5))


def _top_frame(tables: Tables, terms: Terms) -> list[KeyRow]:
    rows = frame_rows(tables, terms).drop_nulls("application")
    return [
        {"application": name, "cost_usd": dollars(pico)}
        for name, pico in rows.group_by("application").agg(pl.col("pico").sum()).rows()
    ]


TOP_APPLICATIONS = QuestionTemplate(
    "top-applications", "easy", "Workload optimization and waste reduction",
    (Field("application", "name", "the application"), Field("cost_usd", "number", "its total BilledCost")),
    _top_terms,
    lambda terms: f"Which {terms.top} applications cost the most {between(terms)}? Sum BilledCost and leave out what has "
    f"no application. {APPLICATION} {CREDITS} {USD} {CENT} {ties(terms.top)}",
    lambda terms: sql_rows(terms) + "SELECT application, sum(pico) AS cost_usd_num, "
    f"{PICO_SQL} AS cost_usd_den, count(*) AS rows_counted FROM chosen WHERE application IS NOT NULL GROUP BY ALL",
    _top_frame, ("list_cost", "off_by_a_day", "no_conversion", "credits_ignored", "by_rows"), ranked="cost_usd", paper=2,
)  # fmt: skip


def _allocation_terms(draws: Draws, world: World) -> Terms:
    _, terms = part_of(draws, world)
    return Terms(terms.cost, terms.first, terms.last, negative="leave_out")


def _allocation_frame(tables: Tables, terms: Terms) -> list[KeyRow]:
    rows = frame_rows(tables, terms).with_columns(
        pl.when(pl.col("application").is_null()).then(0).otherwise("pico").alias("allocated")
    )
    sums = rows.group_by("ProviderName").agg(pl.col("allocated", "pico").sum())
    return [{"provider": name, "allocated_percent": share(part, whole)} for name, part, whole in sums.rows() if whole]


ALLOCATION = QuestionTemplate(
    "allocation", "medium", "Full allocation of spending; percentage of unallocated shared cost",
    (Field("provider", "name", "the ProviderName"),
     Field("allocated_percent", "number", "allocated cost as percent of total cost")),
    _allocation_terms,
    lambda terms: f"What percentage of the cost of each provider is allocated {between(terms)}? Cost is BilledCost; it "
    f"is allocated when there is an application. {APPLICATION} {NO_NEGATIVE} Rows without a service, such as taxes, count. "
    f"{USD} {PERCENT}",
    lambda terms: sql_rows(terms) + "SELECT ProviderName AS provider, "
    "100 * coalesce(sum(pico) FILTER (application IS NOT NULL), 0) AS allocated_percent_num, "
    "sum(pico) AS allocated_percent_den FROM chosen GROUP BY ALL",
    _allocation_frame, ("list_cost", "effective_cost", "off_by_a_day", "credits_counted"), paper=3,
)  # fmt: skip


def _peak_terms(draws: Draws, world: World) -> Terms:
    _, terms = part_of(draws, world)
    return Terms(terms.cost, terms.first, terms.last, draws.choice(ZONES), "leave_out", top=5)


def _daily(tables: Tables, terms: Terms) -> dict[str, dict[str, int]]:
    """Return the picodollars of each application by day."""
    rows = frame_rows(tables, terms).drop_nulls("application")
    sums = rows.group_by("application", "day").agg(pl.col("pico").sum())
    found: dict[str, dict[str, int]] = {}
    for name, day, pico in sums.rows():
        found.setdefault(name, {})[str(day)] = pico
    return found


def _peak_frame(tables: Tables, terms: Terms) -> list[KeyRow]:
    days = (terms.last - terms.first).days + 1
    rows: list[KeyRow] = []
    for name, costs in _daily(tables, terms).items():
        total, peak = sum(costs.values()), max(costs.values())
        if total:
            rows.append({
                "application": name, "peak_usd": dollars(peak), "average_usd": dollars(total) / days,
                "ratio": Fraction(peak * days, total),
                "peak_date": frozenset(day for day, cost in costs.items() if cost == peak),
            })  # fmt: skip
    return rows


def _daily_sql(terms: Terms) -> str:
    return sql_rows(terms) + (
        ", daily AS (SELECT application, day, sum(pico) AS pico, count(*) AS counted FROM chosen "
        "WHERE application IS NOT NULL GROUP BY ALL) "
    )


def _peak_sql(terms: Terms) -> str:
    days = (terms.last - terms.first).days + 1
    return _daily_sql(terms) + (
        f"SELECT application, max(pico) AS peak_usd_num, {PICO_SQL} AS peak_usd_den, sum(pico) AS average_usd_num, "
        f"{PICO_SQL} * {days}::HUGEINT AS average_usd_den, max(pico) * {days} AS ratio_num, sum(pico) AS ratio_den, "
        "list(day::VARCHAR) FILTER (pico = (SELECT max(o.pico) FROM daily o WHERE o.application = daily.application)) "
        "AS peak_date, sum(counted) AS rows_counted FROM daily GROUP BY application"
    )


PEAK_RATIO = QuestionTemplate(
    "peak-ratio", "hard", "Workload optimization and waste reduction",
    (Field("application", "name", "the application"), Field("peak_usd", "number", "cost of its dearest day"),
     Field("average_usd", "number", "its average cost per day"),
     Field("ratio", "number", "peak divided by average", Fraction(1, 1000)),
     Field("peak_date", "date", "the dearest day")),
    _peak_terms,
    lambda terms: f"Which {terms.top} applications have the highest ratio of the cost of their dearest day to their "
    f"average cost per day {between(terms)}? Cost is BilledCost. The average is over all days of the window; a day without "
    f"cost counts as 0. {APPLICATION} {NO_NEGATIVE} {USD} {CENT} Give the ratio with three decimals or more. "
    f"{ties(terms.top)}",
    _peak_sql, _peak_frame, ("list_cost", "effective_cost", "off_by_a_day", "by_rows"), ranked="ratio", paper=4,
)  # fmt: skip


def _variance_frame(tables: Tables, terms: Terms) -> list[KeyRow]:
    days = (terms.last - terms.first).days + 1
    return [
        {"application": name, "variance": (
            Fraction(sum(cost * cost for cost in costs.values()), days) - Fraction(sum(costs.values()), days) ** 2
        ) / 10**24}
        for name, costs in _daily(tables, terms).items()
    ]  # fmt: skip


def _variance_terms(draws: Draws, world: World) -> Terms:
    _, terms = part_of(draws, world, 8, 10)
    return Terms(terms.cost, terms.first, terms.last, draws.choice(ZONES), "leave_out", top=5)


def _variance_sql(terms: Terms) -> str:
    days = (terms.last - terms.first).days + 1
    return _daily_sql(terms) + (
        f"SELECT application, {days} * sum(pico * pico) - sum(pico) * sum(pico) AS variance_num, "
        f"{days * days} * {PICO_SQL}::HUGEINT * {PICO_SQL} AS variance_den, sum(counted) AS rows_counted "
        "FROM daily GROUP BY ALL"
    )


DAILY_VARIANCE = QuestionTemplate(
    "daily-variance", "hard", "Total unpredicted variance of spend",
    (Field("application", "name", "the application"),
     Field("variance", "number", "population variance of its daily cost, USD squared")),
    _variance_terms,
    lambda terms: f"Which {terms.top} applications have the highest variance of daily cost {between(terms)}? Cost is "
    f"BilledCost; take the population variance over all days of the window, a day without cost as 0. {APPLICATION} "
    f"{NO_NEGATIVE} {USD} Give the variance with two decimals or more. {ties(terms.top)}",
    _variance_sql, _variance_frame, ("list_cost", "effective_cost", "off_by_a_day", "by_rows"), ranked="variance", paper=5,
)  # fmt: skip


def _credit_terms(draws: Draws, world: World) -> Terms:
    del draws
    return Terms("BilledCost", world.start.date(), (world.end - timedelta(days=1)).date(), top=5)


def _credit_frame(tables: Tables, terms: Terms) -> list[KeyRow]:
    rows = frame_rows(tables, terms)
    sums = rows.group_by("SubAccountId").agg(
        pl.col("pico").filter(pl.col("pico") < 0).sum().alias("back"),
        pl.col("pico").filter(pl.col("pico") > 0).sum().alias("charged"),
    )
    return [
        {"sub_account": name, "discount_percent": share(-back, charged)}
        for name, back, charged in sums.rows() if charged + back > 0
    ]  # fmt: skip


CREDIT_COVERAGE = QuestionTemplate(
    "credit-coverage", "hard", "Rate optimization",
    (Field("sub_account", "name", "the SubAccountId"),
     Field("discount_percent", "number", "what was given back, as percent of what was charged")),
    _credit_terms,
    lambda terms: "Providers give money back after the first charges. Which "
    f"{terms.top} sub-accounts got back the largest part of their charges {between(terms)}? That part is the sum of the "
    "negative BilledCost (as a positive number) divided by the sum of the positive BilledCost, taxes included. Only "
    f"sub-accounts whose total BilledCost is above 0 count. {USD} {PERCENT} {ties(terms.top)}",
    lambda terms: sql_rows(terms) + "SELECT SubAccountId AS sub_account, "
    "100 * coalesce(-sum(pico) FILTER (pico < 0), 0) AS discount_percent_num, "
    "sum(pico) FILTER (pico > 0) AS discount_percent_den, count(*) AS rows_counted FROM chosen "
    "GROUP BY ALL HAVING sum(pico) > 0",
    _credit_frame, ("list_cost", "half_the_window", "taxes_ignored", "by_rows"), ranked="discount_percent", paper=6,
)  # fmt: skip
