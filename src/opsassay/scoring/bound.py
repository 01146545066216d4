"""Bound evidence: a query with ``$service`` and ``$period``, and an expectation of how its number changes.

It is tried on the claimed service and on others. An expectation that holds for every service supports no claim about
one, so the score is lowered by the share of other services for which it holds.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from opsassay.core.schema.diagnosis import Expectation
from opsassay.core.text import number_text
from opsassay.scoring.budget import TimeBudget
from opsassay.scoring.statements import Statement
from opsassay.telemetry.sql import LockedSql
from opsassay.telemetry.sql_worker import MAIN, SHAKEN

MAX_CONTROLS = 40
"""Most other services on which a query is tried, evenly spaced by name."""


@dataclass(frozen=True)
class BoundResult:
    """The *score* in [0, 1] and its reason, *finding*: the numbers of the claimed service and how many others fit."""

    score: float
    finding: str


@dataclass(frozen=True)
class Bound:
    """A parsed *statement*, run as the text *executed* for several services within *budget*."""

    sql: LockedSql
    statement: Statement
    executed: str
    budget: TimeBudget

    def score(self, expectation: Expectation, service: str, services: Sequence[str]) -> BoundResult:
        """Return how well the query supports *expectation* for *service*, compared with the other *services*.

        score = 1[it holds for the claimed service] * (1 - h / m), where m other services were tried and it holds for h
        of them too (OpsAssay's own measure). It is 0 when the query may not be bound, when there is no other service to
        compare with, when the time was used up before all were tried, and when it does not hold once every number and
        time is a little larger, since it then selects particular rows.
        """
        controls = _pick_controls([name for name in services if name != service])
        if reason := self.statement.why_not_bound() or (
            "" if controls else "there is no other service to try the query on"
        ):
            return BoundResult(0.0, reason)
        own, shaken = self._period_values(service), self._period_values(service, SHAKEN)
        if isinstance(own, str):
            return BoundResult(0.0, own)
        if not holds(expectation, *own):
            return BoundResult(0.0, f"{_format_means(own)} for {service}: not {_format_expectation(expectation)}")
        if isinstance(shaken, str) or not holds(expectation, *shaken):
            return BoundResult(0.0, "it picks its rows: it does not hold once every number is a little larger")
        others = [self._period_values(name) for name in controls]
        if not self.budget.left_s:
            return BoundResult(0.0, "the time of the answer was used up before the other services had been tried")
        shared = sum(not isinstance(moved, str) and holds(expectation, *moved) for moved in others)
        finding = f"{_format_means(own)} for {service}; it holds for {shared} of {len(controls)} other services too"
        return BoundResult(1 - shared / len(controls), finding)

    def _period_values(self, service: str, schema: str = MAIN) -> tuple[float, float] | str:
        """Return the query's (normal, abnormal) numbers for *service* on tables of *schema*, or why there are none."""
        found = []
        for period in ("normal", "abnormal"):
            asked, schemas = {"service": service, "period": period}, (schema,) * self.statement.reads
            answer = self.budget.query(self.sql, self.executed, asked, schemas=schemas)
            if answer.status not in {"ok", "empty"}:
                return answer.message or answer.status
            value = answer.rows[0][0] if answer.rows else 0
            if len(answer.rows) > 1 or len(answer.columns) != 1:
                return "the query gives more than one number"
            if value is not None and (isinstance(value, bool) or not isinstance(value, int | float)):
                return "the query gives no number"
            found.append(_as_float(value))
        if not all(map(math.isfinite, found)):
            return "the query gives no finite number"
        return found[0], found[1]


def holds(expectation: Expectation, normal: float, abnormal: float) -> bool:
    """Return whether the number moved from *normal* to *abnormal* as expected; r is the ratio of *expectation*.

    up: abnormal > normal and abnormal >= r normal; down: abnormal < normal and normal >= r abnormal; gone: normal > 0
    and abnormal = 0.
    """
    if expectation.change == "gone":
        return normal > 0 and abnormal == 0
    if expectation.change == "up":
        return abnormal > normal and abnormal >= expectation.ratio * normal
    return abnormal < normal and normal >= expectation.ratio * abnormal


def _as_float(value: float | None) -> float:
    """Return *value* as a float: None as 0.0, an integer too large for a float as infinity."""
    try:
        return float(value or 0)
    except OverflowError:  # an integer beyond what a float holds
        return math.inf


def _pick_controls(names: Sequence[str]) -> list[str]:
    """Return at most `MAX_CONTROLS` of *names*, sorted, taken at equal distances, to compare a service with."""
    step = max(1, math.ceil(len(names) / MAX_CONTROLS))
    return sorted(names)[::step]


def _format_means(means: tuple[float, float]) -> str:
    """Return "A normal, B abnormal" with the two *means* to four digits."""
    return f"{number_text(means[0], 4)} normal, {number_text(means[1], 4)} abnormal"


def _format_expectation(expectation: Expectation) -> str:
    """Return the expectation as text, such as "up by 1.5" or "gone"."""
    return "gone" if expectation.change == "gone" else f"{expectation.change} by {expectation.ratio:g}"
