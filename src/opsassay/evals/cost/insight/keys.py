"""Right answers ("keys") of questions, computed twice, and answers of known misreadings, by which mistakes are named."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal, Protocol

from opsassay.core.errors import OperationError
from opsassay.evals.cost.focus.generate import CostTables, cost_data
from opsassay.evals.cost.focus.world import make_world
from opsassay.evals.cost.insight.kpis import BUDGET_VARIANCE, COMMITMENTS, EFFECTIVE_RATE, TAG_POLICY
from opsassay.evals.cost.insight.operating import (
    AUTOSCALING,
    FORECAST_SPEND,
    FORECAST_USAGE,
    FREQUENT_TIER,
    UNTAGGED_CARBON,
    UNUSED_RESOURCES,
    UTILIZATION,
)
from opsassay.evals.cost.insight.paper import (
    ALLOCATION,
    CATEGORY_COST,
    CREDIT_COVERAGE,
    DAILY_VARIANCE,
    PEAK_RATIO,
    TOP_APPLICATIONS,
)
from opsassay.evals.cost.insight.question import (
    Billed,
    Key,
    KeyRow,
    OwnReading,
    QuestionTemplate,
    Terms,
    cut,
    rows_of,
    sorted_rows,
)
from opsassay.evals.runner.draws import Draws

QUESTIONS: Mapping[str, QuestionTemplate] = {
    one.name: one
    for one in (
        CATEGORY_COST, TOP_APPLICATIONS, ALLOCATION, PEAK_RATIO, DAILY_VARIANCE, CREDIT_COVERAGE, COMMITMENTS,
        EFFECTIVE_RATE, TAG_POLICY, BUDGET_VARIANCE,
    )
}  # fmt: skip
"""The ten questions that are tasks by default."""
KPIS: Mapping[str, QuestionTemplate] = {
    one.name: one
    for one in (
        UTILIZATION, AUTOSCALING, FORECAST_USAGE, FORECAST_SPEND, UNUSED_RESOURCES, FREQUENT_TIER, UNTAGGED_CARBON
    )
}  # fmt: skip
"""The KPIs of E.1.1 that the ten questions do not cover; plans select them by name."""
TEMPLATES = {**QUESTIONS, **KPIS}

Misread = Callable[[Terms], Terms]
MISTAKES: Mapping[str, tuple[str, Misread]] = {
    "list_cost": ("it sums ListCost instead of the cost that is asked for", lambda t: replace(t, cost="ListCost")),
    "effective_cost": ("it sums EffectiveCost instead of BilledCost", lambda t: replace(t, cost="EffectiveCost")),
    "billed_cost": ("it sums BilledCost instead of EffectiveCost", lambda t: replace(t, cost="BilledCost")),
    "contracted_cost": ("it sums ContractedCost instead of EffectiveCost", lambda t: replace(t, cost="ContractedCost")),
    "off_by_a_day": ("its window is a day late", lambda t: t.moved(1)),
    "half_the_window": ("it covers the first half of the window alone",
                        lambda t: replace(t, last=t.first + (t.last - t.first) / 2)),
    "other_zone": ("its days are those of UTC", lambda t: replace(t, zone="UTC")),
    "no_conversion": ("it adds up amounts of different currencies", lambda t: replace(t, convert=False)),
    "credits_ignored": ("it ignores credits and refunds", lambda t: replace(t, negative="leave_out")),
    "credits_counted": ("it counts rows with negative cost, which are to be left out",
                        lambda t: replace(t, negative="count")),
    "taxes_ignored": ("it leaves taxes out", lambda t: replace(t, taxes=False)),
    "by_rows": ("it ranks by the number of rows instead of the amount", lambda t: replace(t, rank_by="rows")),
}  # fmt: skip
"""Misreadings by name: (description for an answer that fits, function from the right terms to the wrong ones)."""


class OwnCosts(Billed, Protocol):
    """A team's own costs: their time, tables, and how to read them."""

    @property
    def reading(self) -> OwnReading:
        """The currency of the costs, and the tag key that names the application."""

    @property
    def empty(self) -> tuple[str, ...]:
        """The names of amount columns that are NULL in some rows."""

    @property
    def data(self) -> CostTables:
        """The DuckDB and polars tables with the costs."""


@dataclass(frozen=True)
class Question:
    """A template with the parameters (*terms*) of a seed: its goal, its right answer, and those of misreadings.

    It is about the generated data of *seed*, or about a team's own *costs*.
    """

    template: QuestionTemplate
    seed: int
    costs: OwnCosts | None = None

    @cached_property
    def data(self) -> CostTables:
        """The DuckDB and polars tables with the costs that the question is about."""
        return cost_data(self.seed) if self.costs is None else self.costs.data

    @cached_property
    def terms(self) -> Terms:
        """The random parameters of the question: window, time zone, which charges count, number of rows."""
        draws = Draws(self.seed, "question", self.template.name)
        if self.costs is None:
            return self.template.terms(draws, make_world(self.seed))
        return replace(self.template.terms(draws, self.costs), own=self.costs.reading)

    @property
    def about(self) -> str:
        """The name of the KPI that the question asks for."""
        return self.template.kpi

    @property
    def stratum(self) -> Literal["easy", "medium", "hard"]:
        """The difficulty of the question."""
        return self.template.stratum

    @property
    def oracles(self) -> tuple[str, ...]:
        """The names of its scripted solvers: right, constant, one with a missing column, and misreadings."""
        return ("right", "constant", "hallucinated_column", *self.template.mistakes)

    @property
    def goal(self) -> str:
        """The text for the agent: question, conventions (such as which charges count) and answer fields."""
        return self._with_fields(self.template.prompt(self.terms))

    @property
    def terse_goal(self) -> str:
        """The text for the agent without conventions: the question and the fields of the answer."""
        question, mark, _ = self.template.prompt(self.terms).rpartition("?")
        return self._with_fields(question + mark)

    def _with_fields(self, question: str) -> str:
        """Return the text *question* followed by the fields that each row of the answer must have."""
        fields = "\n".join(f"- {one.name}: {_describe_kind(one.kind)}, {one.meaning}" for one in self.template.fields)
        return (
            f"{question}\n\n"
            f'Answer with one JSON object {{"rows": [...]}}, each row with exactly these fields:\n{fields}\n'
        )

    @cached_property
    def key(self) -> Key:
        """The right answer; raises OperationError when DuckDB and polars compute different rows."""
        by_sql = sorted_rows(self.by_sql(self.terms), self.template)
        by_frame = sorted_rows(self.by_frame(), self.template)
        plain = [{name: row[name] for name in (f.name for f in self.template.fields)} for row in by_sql]
        if plain != by_frame:
            raise OperationError(f"The two keys of {self.template.name}, seed {self.seed}, differ: {plain} {by_frame}")
        return cut(by_sql, self.template, self.terms)

    def by_sql(self, terms: Terms) -> list[KeyRow]:
        """Return the rows of all groups (before the top ones are chosen) for *terms*, as DuckDB computes them."""
        return rows_of(statement_rows(self.data, self.template.sql(terms)), self.template.fields)

    def by_frame(self) -> list[KeyRow]:
        """Return the rows of all groups (before the top ones are chosen), as polars computes them."""
        return list(self.template.frame(self.data.tables, self.terms))

    def misread(self, mistake: str) -> Key:
        """Return the answer to which the misreading called *mistake* (of `MISTAKES`) leads."""
        terms = MISTAKES[mistake][1](self.terms)
        return cut(self.by_sql(terms), self.template, terms)


def _describe_kind(kind: str) -> str:
    """Return how the goal describes a field of *kind*: "text", "text YYYY-MM-DD" or "number"."""
    return {"name": "text", "date": "text YYYY-MM-DD", "number": "number"}[kind]


def statement_rows(data: CostTables, sql: str) -> list[dict[str, Any]]:
    """Return the rows of the statement *sql* over the tables of *data*, by column name."""
    cursor = data.connection.cursor().execute(sql)
    columns = [column[0] for column in cursor.description]
    return [dict(zip(columns, row, strict=True)) for row in cursor.fetchall()]
