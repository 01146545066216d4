"""Solvers without a model: oracles, which know the truth, and baselines, which see as much as an agent."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

from opsassay.evals.cost.anomaly.detector import detect
from opsassay.evals.cost.anomaly.misreading import MISREADINGS, true_claims
from opsassay.evals.cost.anomaly.task import AnomalyTask
from opsassay.evals.cost.answers.contract import Claim
from opsassay.evals.cost.environment import CostToolSession
from opsassay.evals.cost.focus.world import APPLICATIONS
from opsassay.evals.cost.insight.grading import answer_of
from opsassay.evals.cost.insight.keys import Question
from opsassay.evals.cost.insight.question import Field
from opsassay.evals.cost.insight.reading import frame_rows
from opsassay.evals.cost.tasks import CostTask
from opsassay.evals.runner.draws import Draws
from opsassay.solvers.agents.tool_sessions import SUBMIT

HALLUCINATED = "SELECT ApplicationName, sum(BilledCost) FROM costs GROUP BY ApplicationName"
"""A statement with a column that FOCUS does not have, of the kind that models invent."""


def play(name: str, task: CostTask, session: CostToolSession) -> None:
    """Submit the answer of the oracle *name* in *session*; "hallucinated_column" only queries a missing column."""
    session.call("get_schema", {"table": "costs"})
    if name == "hallucinated_column":
        session.call("query_sql", {"sql": HALLUCINATED})
        return
    body = task.body
    if name == "constant":
        session.call(SUBMIT, constant(body))
    elif isinstance(body, Question):
        session.call(SUBMIT, answer_of(body.template, body.key if name == "right" else body.misread(name)))
    else:
        session.call(SUBMIT, as_answer(true_claims(body) if name == "right" else MISREADINGS[name][1](body)))


def as_answer(claims: Sequence[Claim]) -> dict[str, Any]:
    """Return *claims* in the form of a submitted answer."""
    return {
        "anomalies": [
            {"slice": one.slice, "start": _format_moment(one.start), "end": _format_moment(one.end)}
            | ({} if one.importance is None else {"importance": one.importance})
            for one in claims
        ]
    }


def _format_moment(moment: datetime) -> str:
    """Return a UTC time as ISO 8601, such as 2024-09-01T05:00:00Z."""
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def constant(body: Question | AnomalyTask) -> dict[str, Any]:
    """Return a valid answer to *body* with fixed values that does not use the data."""
    if isinstance(body, Question):
        values: Mapping[str, Any] = {"name": "total", "date": "2024-09-01", "number": 0}
        return {"rows": [{one.name: values[one.kind] for one in body.template.fields}]}
    start, _ = body.bounds
    return as_answer([Claim(body.slices[0], start, start + body.step, 1.0 if body.ranked else None)])


def chance(body: Question | AnomalyTask, draws: Draws) -> dict[str, Any] | None:
    """Return a valid random answer to *body*, never None: names that occur in the data, and plausible numbers."""
    if isinstance(body, Question):
        names = {"category": "ServiceCategory", "provider": "ProviderName", "sub_account": "SubAccountId"}
        first = body.template.names[0]
        column = names.get(first)
        known = _names_to_guess(body, column)
        count = body.terms.top or len(body.terms.chosen) or len(known)
        chosen = draws.sample(known, min(count, len(known)))
        return {"rows": [{one.name: _guess_value(one, name, draws) for one in body.template.fields} for name in chosen]}
    times = sorted(body.series["time"].unique().to_list())
    starts = draws.sample(range(len(times)), 6)
    return as_answer([
        Claim(draws.choice(body.slices), times[at], times[at] + body.step, draws.integer(0, 9) / 9 if body.ranked else None)
        for at in starts
    ])  # fmt: skip


def _names_to_guess(body: Question, column: str | None) -> Sequence[str]:
    """Return the distinct values of *column* in the costs; of the application tag when it is None."""
    if column is None and body.costs is None:
        return APPLICATIONS
    rows = body.data.tables["costs"] if column else frame_rows(body.data.tables, body.terms)
    return sorted(rows[column or "application"].drop_nulls().unique().to_list())


def _guess_value(field: Field, name: str, draws: Draws) -> Any:
    """Return *name* for a name field, a fixed date, or a random number for the other kinds of *field*."""
    if field.kind == "name":
        return name
    return "2024-09-15" if field.kind == "date" else draws.integer(0, 100)


def detector_only(body: Question | AnomalyTask, draws: Draws) -> dict[str, Any] | None:
    """Return an answer with one anomaly per point that the default detector marks; None for a question."""
    del draws
    if isinstance(body, Question):
        return None
    rows = [(time, slice_, cost) for time, slice_, cost in body.series.rows()]
    costs = {(time, slice_): cost for time, slice_, cost in rows}
    found = detect(rows)
    largest = max((abs(costs[point]) for point in found), default=1.0)
    return as_answer([
        Claim(slice_, time, time + body.step, abs(costs[time, slice_]) / largest if body.ranked else None)
        for time, slice_ in found
    ])  # fmt: skip


Baseline = Callable[[Question | AnomalyTask, Draws], dict[str, Any] | None]
BASELINES: Mapping[str, Baseline] = {
    "constant": lambda body, _: constant(body),
    "chance": chance,
    "detector": detector_only,
}
"""Solvers that use neither a model nor the truth: a fixed answer, a random one, and the detector alone."""
