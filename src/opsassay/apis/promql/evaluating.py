"""Expressions over series: every node is evaluated once, for all series and all steps together."""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np
import promql_parser as promql

from opsassay.apis.promql.aggregating import Grouping, aggregate, grouping_by, grouping_without
from opsassay.apis.promql.operators import Operand, operate
from opsassay.apis.promql.selecting import select
from opsassay.apis.promql.values import TIMED_OUT, PromqlError, Vectors, require_distinct, too_many_samples
from opsassay.apis.promql.windows import RANGE_FUNCTIONS, Windows, last_sample
from opsassay.apis.series import SeriesStore, Times, Values

LOOKBACK_MS = 5 * 60 * 1000
"""A sample counts for so long at an instant, as with Prometheus' default."""

MOST_CELLS = 4_000_000
"""Series times steps of one vector."""


@dataclass(frozen=True)
class Evaluation:
    """A query over *store* at each of *steps_ms*; it has to end until *deadline* of the monotonic clock."""

    store: SeriesStore
    steps_ms: Times
    deadline: float

    def evaluate(self, expression: promql.Expr) -> Operand:
        """Return a vector at all steps, or a number at each. Raises PromqlError, also when it takes too long."""
        with np.errstate(all="ignore"):
            found = self._evaluate(expression)
        return require_distinct(found) if isinstance(found, Vectors) else found

    def samples(self, selector: promql.MatrixSelector) -> list[tuple[dict[str, str], Times, Values]]:
        """Return labels, times and values of the samples of a range selector at the first step."""
        numbers, windows = self._windows(selector)
        if int(windows.counts.sum()) > MOST_CELLS:
            raise too_many_samples()
        found = []
        for number, low, high in zip(numbers.tolist(), windows.low[:, 0], windows.high[:, 0], strict=True):
            if high > low:
                found.append((self.store.labels[number], self.store.ms[low:high], self.store.values[low:high]))
        return found

    def _evaluate(self, expression: promql.Expr) -> Operand:  # noqa: PLR0911 - one for each kind of expression
        if time.monotonic() > self.deadline:
            raise PromqlError(TIMED_OUT, "timeout", 503)
        match expression:
            case promql.NumberLiteral():
                return np.full(len(self.steps_ms), expression.val)
            case promql.ParenExpr():
                return self._evaluate(expression.expr)
            case promql.UnaryExpr():
                return operate("*", None, self._evaluate(expression.expr), np.full(len(self.steps_ms), -1.0))
            case promql.VectorSelector():
                return self._selected(expression)
            case promql.Call():
                return self._called(expression)
            case promql.AggregateExpr():
                return self._aggregated(expression)
            case promql.BinaryExpr():
                left, right = self._evaluate(expression.lhs), self._evaluate(expression.rhs)
                return operate(str(expression.op), expression.modifier, left, right)
        raise PromqlError(f"invalid expression type for an evaluation at steps: {type(expression).__name__}")

    def _selected(self, selector: promql.VectorSelector) -> Vectors:
        numbers = self._numbers(selector)
        windows = Windows.of(self.store, numbers, self._ends(selector), LOOKBACK_MS)
        return Vectors([self.store.labels[number] for number in numbers.tolist()], *last_sample(windows))

    def _called(self, call: promql.Call) -> Operand:
        name = call.func.name
        if name == "time":
            return self.steps_ms / 1000
        if name in RANGE_FUNCTIONS:
            numbers, windows = self._windows(call.args[0])
            labels = [self.store.labels[number] for number in numbers.tolist()]
            found = Vectors(labels, *RANGE_FUNCTIONS[name](windows))
            return found if name == "last_over_time" else require_distinct(found.without_name())
        inner = self._evaluate(call.args[0])
        if name == "vector":
            assert not isinstance(inner, Vectors)
            return Vectors([{}], inner[None, :], np.ones((1, len(inner)), dtype=bool))
        assert isinstance(inner, Vectors)
        return Vectors(inner.labels, np.abs(inner.values), inner.present).without_name()

    def _aggregated(self, expression: promql.AggregateExpr) -> Vectors:
        vectors = self._evaluate(expression.expr)
        limit = self._evaluate(expression.param) if expression.param is not None else None
        assert isinstance(vectors, Vectors)
        assert not isinstance(limit, Vectors)
        return aggregate(str(expression.op), _grouping(expression.modifier), vectors, limit)

    def _windows(self, selector: promql.Expr) -> tuple[Times, Windows]:
        while isinstance(selector, promql.ParenExpr):
            selector = selector.expr
        assert isinstance(selector, promql.MatrixSelector)
        inner = selector.vector_selector
        range_ms = round(selector.range.total_seconds() * 1000)
        if range_ms < 1:
            raise PromqlError('invalid parameter "query": parse error: duration must be greater than 0')
        numbers = self._numbers(inner)
        return numbers, Windows.of(self.store, numbers, self._ends(inner), range_ms)

    def _numbers(self, selector: promql.VectorSelector) -> Times:
        numbers = select(self.store, selector)
        if len(numbers) * len(self.steps_ms) > MOST_CELLS:
            raise too_many_samples()
        return numbers

    def _ends(self, selector: promql.VectorSelector) -> Times:
        offset = selector.offset
        return self.steps_ms - (round(offset.total_seconds() * 1000) if offset is not None else 0)


def _grouping(modifier: promql.AggModifier | None) -> Grouping:
    if modifier is None:
        return grouping_by(())
    return (grouping_by if modifier.type == promql.AggModifierType.By else grouping_without)(modifier.labels)
