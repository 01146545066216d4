"""Four more questions, over KPIs of ITBench's E.1.1 that Table 26 leaves out.

Two of them differ from E.1.1: coverage is of all usage, where it has compute alone, and a budget is held against what
was spent, where it has the forecast (`FORECAST_SPEND` has that).
"""

from __future__ import annotations

from datetime import date, timedelta

import polars as pl

from opsassay.evals.cost.focus.schema import BUDGETS
from opsassay.evals.cost.focus.world import MICRO, World
from opsassay.evals.cost.insight.paper import PICO_SQL, part_of
from opsassay.evals.cost.insight.question import (
    ANY_PERCENT,
    APPLICATION,
    CENT,
    CREDITS,
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
from opsassay.evals.cost.insight.reading import TAGS, dollars, frame_rows, share, sql_rows
from opsassay.evals.runner.draws import Draws


def _effective_terms(draws: Draws, world: World) -> Terms:
    _, terms = part_of(draws, world)
    return Terms("EffectiveCost", terms.first, terms.last)


def _usage(tables: Tables, terms: Terms) -> pl.DataFrame:
    return frame_rows(tables, terms).filter((pl.col("ChargeCategory") == "Usage") & pl.col("ChargeClass").is_null())


_USAGE_SQL = "FROM chosen WHERE ChargeCategory = 'Usage' AND ChargeClass IS NULL GROUP BY ALL"
USAGE = "Only rows with the ChargeCategory Usage that correct nothing (ChargeClass is NULL) count."


def _commitment_frame(tables: Tables, terms: Terms) -> list[KeyRow]:
    status = pl.col("CommitmentDiscountStatus")
    sums = _usage(tables, terms).group_by("ProviderName").agg(
        pl.col("pico").filter(status == "Used").sum().alias("used"),
        pl.col("pico").filter(status == "Unused").sum().alias("unused"),
        pl.col("pico").filter(status.is_null() | (status != "Unused")).sum().alias("all"),
    )  # fmt: skip
    return [
        {"provider": name, "coverage_percent": share(used, whole), "waste_percent": share(unused, used + unused)}
        for name, used, unused, whole in sums.rows() if whole and used + unused
    ]  # fmt: skip


COMMITMENTS = QuestionTemplate(
    "commitments", "medium", "Percent of spend covered by commitment discounts; percentage of commitment discount waste",
    (Field("provider", "name", "the ProviderName"),
     Field("coverage_percent", "number", "cost that commitments covered, as percent of all cost of usage"),
     Field("waste_percent", "number", "cost of unused commitments, as percent of used and unused ones")),
    _effective_terms,
    lambda terms: f"How much of the usage of each provider do commitments cover, and how much of them is wasted, "
    f"{between(terms)}? Cost is EffectiveCost. {USAGE} Coverage is the cost of rows with the CommitmentDiscountStatus Used "
    "divided by that of all rows but the Unused ones; waste is the cost of Unused rows divided by that of Used and Unused "
    f"ones together. Leave out providers without a commitment. {USD} {PERCENT}",
    lambda terms: sql_rows(terms) + "SELECT ProviderName AS provider, "
    "100 * coalesce(sum(pico) FILTER (CommitmentDiscountStatus = 'Used'), 0) AS coverage_percent_num, "
    "coalesce(sum(pico) FILTER (CommitmentDiscountStatus IS DISTINCT FROM 'Unused'), 0) AS coverage_percent_den, "
    "100 * coalesce(sum(pico) FILTER (CommitmentDiscountStatus = 'Unused'), 0) AS waste_percent_num, "
    "coalesce(sum(pico) FILTER (CommitmentDiscountStatus IN ('Used', 'Unused')), 0) AS waste_percent_den " + _USAGE_SQL,
    _commitment_frame, ("list_cost", "contracted_cost", "off_by_a_day", "half_the_window"),
)  # fmt: skip


def _savings_frame(tables: Tables, terms: Terms) -> list[KeyRow]:
    sums = _usage(tables, terms).group_by("ProviderName").agg(pl.col("pico", "ListCost_pico").sum())
    return [
        {"provider": name, "effective_rate_percent": share(paid, at_list)}
        for name, paid, at_list in sums.rows()
        if at_list
    ]


EFFECTIVE_RATE = QuestionTemplate(
    "effective-rate", "medium", "Effective savings rate percentage",
    (Field("provider", "name", "the ProviderName"),
     Field("effective_rate_percent", "number", "cost with discounts as percent of cost at list prices")),
    _effective_terms,
    lambda terms: "What does each provider's usage cost with all discounts, as percent of what it would cost at list "
    f"prices, {between(terms)}? Divide the sum of EffectiveCost by the sum of ListCost. {USAGE} {USD} {PERCENT}",
    lambda terms: sql_rows(terms) + "SELECT ProviderName AS provider, 100 * sum(pico) AS effective_rate_percent_num, "
    "sum(ListCost_pico) AS effective_rate_percent_den " + _USAGE_SQL,
    _savings_frame, ("billed_cost", "contracted_cost", "off_by_a_day", "half_the_window"),
)  # fmt: skip


def _tag_frame(tables: Tables, terms: Terms) -> list[KeyRow]:
    complete = pl.all_horizontal(pl.col(tag).is_not_null() for tag in TAGS)
    sums = frame_rows(tables, terms).group_by("SubAccountId").agg(
        pl.col("pico").filter(complete).sum().alias("part"), pl.col("pico").sum().alias("whole")
    )  # fmt: skip
    return [
        {"sub_account": name, "compliant_percent": share(part, whole)} for name, part, whole in sums.rows() if whole > 0
    ]


def _tag_terms(draws: Draws, world: World) -> Terms:
    _, terms = part_of(draws, world)
    return Terms(
        "BilledCost", terms.first, terms.last, draws.choice(("Europe/Berlin", "America/New_York")), "leave_out"
    )


_REQUIRED = " AND ".join(f"{tag} IS NOT NULL" for tag in TAGS)

TAG_POLICY = QuestionTemplate(
    "tag-policy", "hard", "Percentage of cloud costs that are tagging policy compliant",
    (Field("sub_account", "name", "the SubAccountId"),
     Field("compliant_percent", "number", "cost of rows with all required tags, as percent of all cost")),
    _tag_terms,
    lambda terms: "The tagging policy requires the tags `application`, `cost_center` and `environment`, each with a value. "
    f"What percentage of the BilledCost of each sub-account is of rows that comply, {between(terms)}? {APPLICATION} The "
    "same holds for the other two tags. Leave out rows with a negative BilledCost, and sub-accounts whose cost is then 0. "
    f"{USD} {PERCENT}",
    lambda terms: sql_rows(terms) + "SELECT SubAccountId AS sub_account, "
    f"100 * coalesce(sum(pico) FILTER ({_REQUIRED}), 0) AS compliant_percent_num, sum(pico) AS compliant_percent_den "
    "FROM chosen GROUP BY ALL HAVING sum(pico) > 0",
    _tag_frame, ("list_cost", "effective_cost", "off_by_a_day", "credits_counted"),
)  # fmt: skip


def _budget_terms(draws: Draws, world: World) -> Terms:
    last = (world.end - timedelta(days=1)).date()
    return Terms("BilledCost", world.middle.date(), last, draws.choice(("Europe/Berlin", "Asia/Kolkata")), top=5)


def _month(day: date) -> str:
    return f"{day:%Y-%m}"


def _budget_frame(tables: Tables, terms: Terms) -> list[KeyRow]:
    spent = dict(frame_rows(tables, terms).group_by("SubAccountId").agg(pl.col("pico").sum()).rows())
    granted = tables[BUDGETS].filter(pl.col("Month") == _month(terms.first)).with_columns(
        (pl.col("BudgetUsd").to_physical().cast(pl.Int64) * MICRO).alias("pico")
    )  # fmt: skip
    return [
        {"sub_account": name, "spent_usd": dollars(spent[name]), "variance_percent": share(spent[name] - budget, budget)}
        for name, budget in granted.select("SubAccountId", "pico").rows() if budget and name in spent
    ]  # fmt: skip


BUDGET_VARIANCE = QuestionTemplate(
    "budget-variance", "hard", "Percentage variance of budgeted vs. actual cloud spend",
    (Field("sub_account", "name", "the SubAccountId"), Field("spent_usd", "number", "what it spent"),
     Field("variance_percent", "number", "spent less budget, as percent of the budget")),
    _budget_terms,
    lambda terms: f"Which {terms.top} sub-accounts went furthest beyond their budget of {_month(terms.first)}, in percent "
    f"of that budget (BudgetUsd of the table budgets)? Spending is the sum of BilledCost {between(terms)}. {CREDITS} Leave "
    "out sub-accounts without spending, without a budget or with one of 0; who stayed below the budget has a negative "
    f"variance. {USD} {CENT} {ANY_PERCENT} {ties(terms.top)}",
    lambda terms: sql_rows(terms) + "SELECT SubAccountId AS sub_account, sum(pico) AS spent_usd_num, "
    f"{PICO_SQL} AS spent_usd_den, 100 * (sum(pico) - any_value(budget)) AS variance_percent_num, "
    "any_value(budget) AS variance_percent_den, count(*) AS rows_counted FROM chosen JOIN (SELECT SubAccountId, "
    "CAST(BudgetUsd * 1000000 AS HUGEINT) * 1000000 AS budget FROM budgets "
    f"WHERE Month = '{_month(terms.first)}' AND BudgetUsd <> 0) USING (SubAccountId) GROUP BY ALL",
    _budget_frame, ("list_cost", "other_zone", "no_conversion", "credits_ignored", "by_rows"), ranked="variance_percent",
)  # fmt: skip
