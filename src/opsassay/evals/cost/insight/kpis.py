"""Four more questions, over KPIs of ITBench's E.1.1 that Table 26 leaves out.

Two differ from E.1.1: coverage is over all usage, not only compute, and a budget is compared with the amount spent, not
with the forecast (as in `FORECAST_SPEND`).
"""

from __future__ import annotations

from datetime import date, timedelta

import polars as pl

from opsassay.evals.cost.focus.schema import BUDGETS
from opsassay.evals.cost.focus.world import MICRO
from opsassay.evals.cost.insight.paper import part_of
from opsassay.evals.cost.insight.question import Billed, KeyRow, Tables, Terms
from opsassay.evals.cost.insight.reading import TAGS, dollars, frame_rows, share
from opsassay.evals.cost.insight.templates import template
from opsassay.evals.runner.draws import Draws


def _effective_terms(draws: Draws, billed: Billed) -> Terms:
    """Draw the parameters of a question: a window of 12 to 26 days; the cost is EffectiveCost."""
    _, terms = part_of(draws, billed)
    return Terms("EffectiveCost", terms.first, terms.last)


def _usage_rows(tables: Tables, terms: Terms) -> pl.DataFrame:
    """Return the charges in the window of *terms* that are usage and no corrections."""
    return frame_rows(tables, terms).filter((pl.col("ChargeCategory") == "Usage") & pl.col("ChargeClass").is_null())


def _commitment_frame(tables: Tables, terms: Terms) -> list[KeyRow]:
    """Return per provider, in the window of *terms*, percent of usage under commitments and of commitments unused."""
    status = pl.col("CommitmentDiscountStatus")
    sums = _usage_rows(tables, terms).group_by("ProviderName").agg(
        pl.col("pico").filter(status == "Used").sum().alias("used"),
        pl.col("pico").filter(status == "Unused").sum().alias("unused"),
        pl.col("pico").filter(status.is_null() | (status != "Unused")).sum().alias("all"),
    )  # fmt: skip
    return [
        {"provider": name, "coverage_percent": share(used, whole), "waste_percent": share(unused, used + unused)}
        for name, used, unused, whole in sums.rows() if whole and used + unused
    ]  # fmt: skip


COMMITMENTS = template("commitments", _effective_terms, _commitment_frame)


def _savings_frame(tables: Tables, terms: Terms) -> list[KeyRow]:
    """Return per provider the cost of usage in the window of *terms* as a percentage of its list price."""
    sums = _usage_rows(tables, terms).group_by("ProviderName").agg(pl.col("pico", "ListCost_pico").sum())
    return [
        {"provider": name, "effective_rate_percent": share(paid, at_list)}
        for name, paid, at_list in sums.rows()
        if at_list
    ]


EFFECTIVE_RATE = template("effective-rate", _effective_terms, _savings_frame)


def _tag_frame(tables: Tables, terms: Terms) -> list[KeyRow]:
    """Return per sub-account the percent of cost, in the window of *terms*, in rows that have all required tags."""
    complete = pl.all_horizontal(pl.col(tag).is_not_null() for tag in TAGS)
    sums = frame_rows(tables, terms).group_by("SubAccountId").agg(
        pl.col("pico").filter(complete).sum().alias("part"), pl.col("pico").sum().alias("whole")
    )  # fmt: skip
    return [
        {"sub_account": name, "compliant_percent": share(part, whole)} for name, part, whole in sums.rows() if whole > 0
    ]


def _tag_terms(draws: Draws, billed: Billed) -> Terms:
    """Draw the parameters of a question: a window of 12 to 26 days, a time zone; rows of negative cost are left out."""
    _, terms = part_of(draws, billed)
    return Terms(
        "BilledCost", terms.first, terms.last, draws.choice(("Europe/Berlin", "America/New_York")), "leave_out"
    )


TAG_POLICY = template("tag-policy", _tag_terms, _tag_frame)


def _budget_terms(draws: Draws, billed: Billed) -> Terms:
    """Draw the parameters of a question: the second month as the window, a time zone, and five largest rows."""
    last = (billed.end - timedelta(days=1)).date()
    return Terms("BilledCost", billed.middle.date(), last, draws.choice(("Europe/Berlin", "Asia/Kolkata")), top=5)


def _format_month(day: date) -> str:
    """Return *day* as YYYY-MM."""
    return f"{day:%Y-%m}"


def _budget_frame(tables: Tables, terms: Terms) -> list[KeyRow]:
    """Return per sub-account its cost in USD in the window of *terms*, and its excess over budget in percent of it."""
    spent = dict(frame_rows(tables, terms).group_by("SubAccountId").agg(pl.col("pico").sum()).rows())
    granted = tables[BUDGETS].filter(pl.col("Month") == _format_month(terms.first)).with_columns(
        (pl.col("BudgetUsd").to_physical().cast(pl.Int64) * MICRO).alias("pico")
    )  # fmt: skip
    return [
        {"sub_account": name, "spent_usd": dollars(spent[name]), "variance_percent": share(spent[name] - budget, budget)}
        for name, budget in granted.select("SubAccountId", "pico").rows() if budget and name in spent
    ]  # fmt: skip


BUDGET_VARIANCE = template("budget-variance", _budget_terms, _budget_frame)
