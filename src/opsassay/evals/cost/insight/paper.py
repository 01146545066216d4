"""The six questions of ITBench, Table 26, as templates: windows, categories and numbers of rows are drawn by seed."""

from __future__ import annotations

from datetime import timedelta
from fractions import Fraction

import polars as pl

from opsassay.evals.cost.insight.question import Billed, KeyRow, Tables, Terms
from opsassay.evals.cost.insight.reading import dollars, frame_rows, share
from opsassay.evals.cost.insight.templates import template
from opsassay.evals.runner.draws import Draws

BEFORE, AFTER = 3, 4
"""Least days between a window and the first, and the last, billed day."""
ZONES = ("UTC", "Europe/Berlin", "America/New_York")


def part_of(draws: Draws, billed: Billed, low: int = 12, high: int = 26) -> tuple[int, Terms]:
    """Draw a window of *low* to *high* days in the billed time; return (its days, a question's parameters with it)."""
    days = (billed.end - billed.start).days
    length = draws.integer(min(low, days - BEFORE - AFTER), min(high, days - BEFORE - AFTER))
    first = (billed.start + timedelta(days=draws.integer(BEFORE, days - length - AFTER))).date()
    return length, Terms("BilledCost", first, first + timedelta(days=length - 1))


def _category_terms(draws: Draws, billed: Billed) -> Terms:
    """Draw the parameters of a question: a window of 12 to 26 days and two service categories."""
    _, terms = part_of(draws, billed)
    return Terms(terms.cost, terms.first, terms.last, chosen=tuple(sorted(draws.sample(billed.categories, 2))))


def _category_frame(tables: Tables, terms: Terms) -> list[KeyRow]:
    """Return the cost in USD, in the window of *terms*, of each service category that these have drawn."""
    rows = frame_rows(tables, terms).filter(pl.col("ServiceCategory").is_in(terms.chosen))
    return [
        {"category": name, "cost_usd": dollars(pico)}
        for name, pico in rows.group_by("ServiceCategory").agg(pl.col("pico").sum()).rows()
    ]


CATEGORY_COST = template("category-cost", _category_terms, _category_frame)


def _top_terms(draws: Draws, billed: Billed) -> Terms:
    """Draw the parameters of a question: a window of 12 to 26 days, and the number of largest rows to answer with."""
    _, terms = part_of(draws, billed)
    return Terms(terms.cost, terms.first, terms.last, top=draws.integer(3, 5))


def _top_frame(tables: Tables, terms: Terms) -> list[KeyRow]:
    """Return per application its cost in USD in the window of *terms*, before the largest are chosen."""
    rows = frame_rows(tables, terms).drop_nulls("application")
    return [
        {"application": name, "cost_usd": dollars(pico)}
        for name, pico in rows.group_by("application").agg(pl.col("pico").sum()).rows()
    ]


TOP_APPLICATIONS = template("top-applications", _top_terms, _top_frame)


def _allocation_terms(draws: Draws, billed: Billed) -> Terms:
    """Draw the parameters of a question: a window of 12 to 26 days, without rows of negative cost."""
    _, terms = part_of(draws, billed)
    return Terms(terms.cost, terms.first, terms.last, negative="leave_out")


def _allocation_frame(tables: Tables, terms: Terms) -> list[KeyRow]:
    """Return per provider the percent of cost, in the window of *terms*, in rows with an application tag."""
    rows = frame_rows(tables, terms).with_columns(
        pl.when(pl.col("application").is_null()).then(0).otherwise("pico").alias("allocated")
    )
    sums = rows.group_by("ProviderName").agg(pl.col("allocated", "pico").sum())
    return [{"provider": name, "allocated_percent": share(part, whole)} for name, part, whole in sums.rows() if whole]


ALLOCATION = template("allocation", _allocation_terms, _allocation_frame)


def _peak_terms(draws: Draws, billed: Billed) -> Terms:
    """Draw a window of 12 to 26 days and a time zone; negative costs are left out, five rows are asked for."""
    _, terms = part_of(draws, billed)
    return Terms(terms.cost, terms.first, terms.last, draws.choice(ZONES), "leave_out", top=5)


def _cost_by_day(tables: Tables, terms: Terms) -> dict[str, dict[str, int]]:
    """Return the cost in picodollars (1e-12 USD) by application, then by day, in the window of *terms*."""
    rows = frame_rows(tables, terms).drop_nulls("application")
    sums = rows.group_by("application", "day").agg(pl.col("pico").sum())
    found: dict[str, dict[str, int]] = {}
    for name, day, pico in sums.rows():
        found.setdefault(name, {})[str(day)] = pico
    return found


def _peak_frame(tables: Tables, terms: Terms) -> list[KeyRow]:
    """Return per application its highest daily cost, its mean daily cost, their ratio, and the days of the highest."""
    days = (terms.last - terms.first).days + 1
    rows: list[KeyRow] = []
    for name, costs in _cost_by_day(tables, terms).items():
        total, peak = sum(costs.values()), max(costs.values())
        if total:
            rows.append({
                "application": name, "peak_usd": dollars(peak), "average_usd": dollars(total) / days,
                "ratio": Fraction(peak * days, total),
                "peak_date": frozenset(day for day, cost in costs.items() if cost == peak),
            })  # fmt: skip
    return rows


PEAK_RATIO = template("peak-ratio", _peak_terms, _peak_frame)


def _variance_frame(tables: Tables, terms: Terms) -> list[KeyRow]:
    """Return per application the variance of its daily cost in the window of *terms*, in USD squared."""
    days = (terms.last - terms.first).days + 1
    return [
        {"application": name, "variance": (
            Fraction(sum(cost * cost for cost in costs.values()), days) - Fraction(sum(costs.values()), days) ** 2
        ) / 10**24}
        for name, costs in _cost_by_day(tables, terms).items()
    ]  # fmt: skip


def _variance_terms(draws: Draws, billed: Billed) -> Terms:
    """Draw a window of 8 to 10 days and a time zone; negative costs are left out, five rows are asked for."""
    _, terms = part_of(draws, billed, 8, 10)
    return Terms(terms.cost, terms.first, terms.last, draws.choice(ZONES), "leave_out", top=5)


DAILY_VARIANCE = template("daily-variance", _variance_terms, _variance_frame)


def _credit_terms(draws: Draws, billed: Billed) -> Terms:
    """Return the parameters of a question: the whole billed time as the window, and five rows to answer with."""
    del draws
    return Terms("BilledCost", billed.start.date(), (billed.end - timedelta(days=1)).date(), top=5)


def _credit_frame(tables: Tables, terms: Terms) -> list[KeyRow]:
    """Return per sub-account the credits in the window of *terms*, in percent of its charges."""
    rows = frame_rows(tables, terms)
    sums = rows.group_by("SubAccountId").agg(
        pl.col("pico").filter(pl.col("pico") < 0).sum().alias("back"),
        pl.col("pico").filter(pl.col("pico") > 0).sum().alias("charged"),
    )
    return [
        {"sub_account": name, "discount_percent": share(-back, charged)}
        for name, back, charged in sums.rows() if charged + back > 0
    ]  # fmt: skip


CREDIT_COVERAGE = template("credit-coverage", _credit_terms, _credit_frame)
