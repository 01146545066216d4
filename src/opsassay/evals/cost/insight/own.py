"""Questions over a team's own costs: which of the ten it allows, with which seeds."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace

from opsassay.core.errors import OperationError
from opsassay.evals.cost.insight.grading import answer_of, difference
from opsassay.evals.cost.insight.keys import MISTAKES, QUESTIONS, OwnCosts, Question
from opsassay.evals.cost.insight.kpis import COMMITMENTS, EFFECTIVE_RATE
from opsassay.evals.cost.insight.paper import (
    AFTER,
    ALLOCATION,
    BEFORE,
    CATEGORY_COST,
    DAILY_VARIANCE,
    PEAK_RATIO,
    TOP_APPLICATIONS,
)
from opsassay.evals.cost.insight.question import KeyRow, QuestionTemplate, Tables, Terms, number

LEFT_OUT = {"budget-variance": "an export has no budgets", "tag-policy": "which tags are required stands in no export"}
"""Questions that no export can answer, with the reason."""
BY_APPLICATION = {one.name for one in (TOP_APPLICATIONS, ALLOCATION, PEAK_RATIO, DAILY_VARIANCE)}
"""Questions that need the tag that names an application."""
_AMOUNTS = {COMMITMENTS.name: ("EffectiveCost",), EFFECTIVE_RATE.name: ("EffectiveCost", "ListCost")}
"""Amount columns other than BilledCost that a question sums."""
FEWEST_DAYS = BEFORE + AFTER + 2
_TRIES = 20
"""Most seeds per question that are tried until one has an answer."""


@dataclass(frozen=True)
class OwnQuestion:
    """A question on own costs: its *seed*, and the *mistakes* with another answer; or the reason *why_not*."""

    name: str
    seed: int
    mistakes: tuple[str, ...] = ()
    why_not: str = ""


def own_template(name: str, currency: str, mistakes: tuple[str, ...] = ()) -> QuestionTemplate:
    """Return question template *name* with amounts in *currency*, and *mistakes*, the misreadings the grader names."""
    given, end = QUESTIONS[name], f"_{currency.lower()}"
    named = {one.name: one.name.replace("_usd", end) for one in given.fields}
    fields = (replace(f, name=named[f.name], meaning=f.meaning.replace("USD", currency)) for f in given.fields)

    def frame(tables: Tables, terms: Terms) -> list[KeyRow]:
        """Return the rows of the given frame with fields renamed."""
        return [{named[field]: value for field, value in row.items()} for row in given.frame(tables, terms)]

    return replace(
        given,
        fields=tuple(fields),
        ranked=None if given.ranked is None else named[given.ranked],
        sql=lambda terms: given.sql(terms).replace("_usd_", f"{end}_"),
        frame=frame,
        mistakes=mistakes,
    )


def own_questions(costs: OwnCosts, seed: int, count: int) -> Iterator[OwnQuestion]:
    """Yield *count* questions of each kind that *costs* can answer, with seeds from *seed* on.

    A kind that cannot be asked is yielded once, with the reason in `why_not`.
    """
    for name in QUESTIONS:
        tried = (_make_question(name, one, costs) for one in range(seed, seed + count * _TRIES))
        if why := _why_left_out(name, costs):
            yield OwnQuestion(name, seed, why_not=why)
            continue
        asked: dict[Terms, OwnQuestion] = {}
        refused = ""
        for one, terms in tried:
            refused = one.why_not or refused
            if not one.why_not:
                asked.setdefault(terms, one)
            if len(asked) == count:
                break
        yield from asked.values() or [OwnQuestion(name, seed, why_not=refused)]


def _why_left_out(name: str, costs: OwnCosts) -> str:
    """Return why questions of kind *name* cannot be asked about *costs*, "" when they can."""
    if name in LEFT_OUT:
        return LEFT_OUT[name]
    if name in BY_APPLICATION and costs.reading.tag is None:
        return "no row has a tag that names an application"
    if lacking := [one for one in _AMOUNTS.get(name, ()) if one in costs.empty]:
        return f"{', '.join(lacking)} is empty in some rows"
    if name == CATEGORY_COST.name and len(costs.categories) < 2:
        return "fewer than two service categories cost anything"
    return ""


def _make_question(name: str, seed: int, costs: OwnCosts) -> tuple[OwnQuestion, Terms]:
    """Return question *name* of *seed* on *costs*, with the misreadings that change its answer, and its parameters."""
    question = Question(own_template(name, costs.reading.currency), seed, costs)
    why = _why_unusable(question)
    mistakes = (one for one in QUESTIONS[name].mistakes if not why and _changes_answer(question, one, costs.empty))
    return OwnQuestion(name, seed, tuple(mistakes), why), question.terms


def _why_unusable(question: Question) -> str:
    """Return why *question* has no definite answer, or none at all; '' when it can be used."""
    import duckdb

    try:
        key = question.key
    except OperationError:
        return "its two keys differ, so that neither is trusted"
    except duckdb.OutOfRangeException:
        return "its amounts are beyond what is computed exactly"
    rows, asked = len(key.required) + key.open, question.terms.top or len(question.terms.chosen) or 1
    if rows < asked:
        return f"{rows} rows answer it, and it asks for {asked}"
    ranked = question.template.ranked
    values = [number(row, ranked) for row in (*key.required, *key.tied)] if ranked else []
    return "all of its rows have the same value" if values and min(values) == max(values) else ""


def _changes_answer(question: Question, mistake: str, empty: Collection[str]) -> bool:
    """Return whether the grader tells misreading *mistake* from the right answer; False if its cost is in *empty*."""
    if MISTAKES[mistake][1](question.terms).cost in empty:
        return False
    answer = answer_of(question.template, question.misread(mistake))
    return difference(question.template, question.key, answer["rows"]) is not None
