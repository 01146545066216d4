"""Evaluates PromQL: every node of an expression once, for all series and all steps together."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass

import numpy as np
import promql_parser as promql

from opsassay.telemetry.backends.literals import decode_literals
from opsassay.telemetry.backends.promql.aggregating import (
    Grouping,
    aggregate,
    count_values,
    grouping_by,
    grouping_without,
)
from opsassay.telemetry.backends.promql.elementwise import (
    CALENDAR,
    applied,
    as_number,
    calendar,
    label_join,
    label_replace,
)
from opsassay.telemetry.backends.promql.histograms import histogram_quantile
from opsassay.telemetry.backends.promql.operators import Operand, operate
from opsassay.telemetry.backends.promql.selecting import matchers_of, select
from opsassay.telemetry.backends.promql.values import (
    TIMED_OUT,
    Present,
    PromqlError,
    Vectors,
    merged,
    require_distinct,
    too_many_samples,
)
from opsassay.telemetry.backends.promql.windows import (
    RANGE_FUNCTIONS,
    Windows,
    last_sample,
    predicted,
    quantile_over_time,
)
from opsassay.telemetry.backends.series import NAME, Labels, SeriesStore, Times, Values

LOOKBACK_MS = 5 * 60 * 1000
"""The age in ms up to which a sample counts at an instant, Prometheus' default."""

DEFAULT_STEP_MS = 60 * 1000
"""The step of a subquery without one, Prometheus' evaluation interval."""

MOST_CELLS = 4_000_000
"""Most values (series times steps) of one vector."""


@dataclass(frozen=True)
class Evaluation:
    """Evaluates a query over *store* at each of *steps_ms*; it fails after the monotonic time *deadline* (s)."""

    store: SeriesStore
    steps_ms: Times
    deadline: float
    request_ms: tuple[int, int]
    """Start and end of the request, for ``@ start()`` and ``@ end()``, also in subqueries; both the time of an instant."""

    def evaluate(self, expression: promql.Expr) -> Operand:
        """Evaluate *expression* at all steps; return vectors, or one number for each step. Raises PromqlError."""
        with np.errstate(all="ignore"):
            found = self._evaluate_expression(expression)
        return merged(found) if isinstance(found, Vectors) else found

    def samples(self, selector: promql.Expr) -> list[tuple[dict[str, str], Times, Values]]:
        """Return (labels, times in ms, values) of each series of a range selector at the first step; raises PromqlError."""
        with np.errstate(all="ignore"):
            windows = self._windows(selector)
        low, high = windows.positions(windows.low)[:, 0], windows.positions(windows.high)[:, 0]
        if int((high - low).sum()) > MOST_CELLS:
            raise too_many_samples()
        ranges = [slice(*bounds) for bounds in zip(low.tolist(), high.tolist(), strict=True)]
        return [
            (labels, windows.store.ms[one], windows.store.values[one])
            for labels, one in zip(windows.labels, ranges, strict=True)
            if one.stop > one.start
        ]

    def _evaluate_expression(self, expression: promql.Expr) -> Operand:  # noqa: PLR0911 - one for each kind of expression
        """Return the value of *expression*: vectors, or one number for each step; raises PromqlError."""
        self._require_time()
        match expression:
            case promql.NumberLiteral():
                return np.full(len(self.steps_ms), expression.val)
            case promql.ParenExpr():
                return self._evaluate_expression(expression.expr)
            case promql.UnaryExpr():
                return operate("*", None, self._evaluate_expression(expression.expr), np.full(len(self.steps_ms), -1.0))
            case promql.VectorSelector():
                return self._select_vectors(expression)
            case promql.Call():
                return self._evaluate_call(expression)
            case promql.AggregateExpr():
                return self._aggregate_vectors(expression)
            case promql.BinaryExpr():
                left, right = self._evaluate_expression(expression.lhs), self._evaluate_expression(expression.rhs)
                return operate(str(expression.op), expression.modifier, left, right)
        raise PromqlError(f"invalid expression type for an evaluation at steps: {type(expression).__name__}")

    def _require_time(self) -> None:
        """Raise PromqlError (503) when the query has taken too long."""
        if time.monotonic() > self.deadline:
            raise PromqlError(TIMED_OUT, "timeout", 503)

    def _select_vectors(self, selector: promql.VectorSelector) -> Vectors:
        """Return the latest sample within the lookback of each step, for each series that *selector* selects."""
        windows = self._windows_at_instants(selector)
        return Vectors(windows.labels, *last_sample(windows), self.store.distinct)

    def _windows_at_instants(self, selector: promql.VectorSelector) -> Windows:
        """Return the windows of lookback, which end at each step, over the series that *selector* selects."""
        return Windows.ending_at(
            self.store, self._select_series(selector), self._ends_of_windows(selector), LOOKBACK_MS
        )

    def _evaluate_call(self, call: promql.Call) -> Operand:
        """Return the result of the function *call*, at each step."""
        name = call.func.name
        if not call.args and (name == "pi" or name in CALENDAR or name == "time"):
            return self._evaluate_constant(name)
        if name == "timestamp":
            return self._timestamps(without_parentheses(call.args[0]))
        if name in {"label_replace", "label_join"}:
            return self._relabel_vectors(name, call)
        matrix = [argument for argument in call.args if _is_range(argument)]
        return (
            self._apply_to_ranges(name, call, self._windows(matrix[0])) if matrix else self._apply_to_values(name, call)
        )

    def _evaluate_constant(self, name: str) -> Operand:
        """Return the value of the function *name* without arguments (time, pi, hour, ...) at each step."""
        seconds = self.steps_ms / 1000
        if name in CALENDAR:
            return Vectors([{}], calendar(name, seconds)[None, :], np.ones((1, len(seconds)), dtype=bool))
        return np.full(len(seconds), np.pi) if name == "pi" else seconds

    def _timestamps(self, argument: promql.Expr) -> Vectors:
        """Return PromQL's `timestamp` in s: of a selector that of its samples, of another *argument* the step's."""
        if isinstance(argument, promql.VectorSelector):
            windows = self._windows_at_instants(argument)
            values, present = windows.store.ms[np.maximum(windows.positions(windows.high) - 1, 0)], windows.holding(1)
            return Vectors(windows.labels, values / 1000, present, self.store.distinct).without_name()
        vectors = self._evaluate_expression(argument)
        assert isinstance(vectors, Vectors)
        seconds = np.broadcast_to(self.steps_ms / 1000, vectors.values.shape)
        return Vectors(vectors.labels, seconds, vectors.present, vectors.distinct).without_name()

    def _apply_to_ranges(self, name: str, call: promql.Call, windows: Windows) -> Vectors:
        """Apply the range function *name*, such as rate, to *windows*; further arguments are in *call*."""
        match name:
            case "absent_over_time":
                return _absent_series(call.args[0], windows.holding(1))
            case "quantile_over_time":
                result = quantile_over_time(windows, self._evaluate_number(call.args[0]))
            case "predict_linear":
                result = predicted(windows, self._evaluate_number(call.args[1]), self.steps_ms)
            case _:
                result = RANGE_FUNCTIONS[name](windows)
        if name == "last_over_time":
            return Vectors(windows.labels, *result, windows.store.distinct)
        names = windows.store.column(NAME)[1][windows.numbers]
        distinct = windows.store.distinct and bool((names == names[:1]).all())
        return require_distinct(
            Vectors([windows.store.unnamed[number] for number in windows.numbers.tolist()], *result, distinct)
        )

    def _relabel_vectors(self, name: str, call: promql.Call) -> Vectors:
        """Evaluate the function *name*, label_replace or label_join, with the arguments of *call*."""
        vectors = self._evaluate_expression(call.args[0])
        assert isinstance(vectors, Vectors)
        target, first, *others = (_read_literal(argument) for argument in call.args[1:])
        if name == "label_join":
            return label_join(vectors, target, first, others)
        return label_replace(vectors, target, first, *others)

    def _evaluate_number(self, expression: promql.Expr) -> Values:
        """Return the scalar *expression* at each step."""
        found = self._evaluate_expression(expression)
        assert not isinstance(found, Vectors)
        return found

    def _apply_to_values(self, name: str, call: promql.Call) -> Operand:
        """Apply the function *name* to the vector or number that is the argument of *call*."""
        inner, *others = (self._evaluate_expression(argument) for argument in call.args)
        if name == "histogram_quantile":
            assert not isinstance(inner, Vectors)
            assert isinstance(others[0], Vectors)
            return histogram_quantile(inner, others[0], self._require_time)
        if name == "vector":
            assert not isinstance(inner, Vectors)
            return Vectors([{}], inner[None, :], np.ones((1, len(inner)), dtype=bool))
        assert isinstance(inner, Vectors)
        match name:
            case "scalar":
                return as_number(inner)
            case "absent":
                return _absent_series(call.args[0], inner.present)
            case "sort" | "sort_desc":
                return inner
        return applied(name, inner, [other for other in others if not isinstance(other, Vectors)])

    def _aggregate_vectors(self, expression: promql.AggregateExpr) -> Vectors:
        """Return the result of the aggregation *expression*, such as sum or topk, at each step."""
        vectors = self._evaluate_expression(expression.expr)
        if str(expression.op) == "count_values":
            assert isinstance(vectors, Vectors)
            assert expression.param is not None
            label, modifier = _read_literal(expression.param), expression.modifier
            without = modifier is not None and modifier.type != promql.AggModifierType.By and label in modifier.labels
            return count_values(_read_grouping(modifier), vectors, label, without=without)
        limit = self._evaluate_expression(expression.param) if expression.param is not None else None
        assert isinstance(vectors, Vectors)
        assert not isinstance(limit, Vectors)
        return aggregate(str(expression.op), _read_grouping(expression.modifier), vectors, limit)

    def _windows(self, selector: promql.Expr) -> Windows:
        """Return the windows of samples of the range *selector* at all steps."""
        selector = without_parentheses(selector)
        if isinstance(selector, promql.SubqueryExpr):
            return self._subquery(selector)
        assert isinstance(selector, promql.MatrixSelector)
        inner = selector.vector_selector
        return Windows.ending_at(
            self.store, self._select_series(inner), self._ends_of_windows(inner), _range_ms(selector)
        )

    def _subquery(self, query: promql.SubqueryExpr) -> Windows:
        """Return the windows of the subquery *query*: its inner expression, evaluated at multiples of its step."""
        range_ms, ends = _range_ms(query), self._ends_of_windows(query)
        step_ms = round(query.step.total_seconds() * 1000) if query.step is not None else DEFAULT_STEP_MS
        if step_ms < 1:
            raise PromqlError('invalid parameter "query": parse error: duration must be greater than 0')
        first = (int(ends.min()) - range_ms) // step_ms * step_ms + step_ms
        count = max(0, (int(ends.max()) - first) // step_ms + 1)
        if count > MOST_CELLS:
            raise too_many_samples()
        steps = first + step_ms * np.arange(count, dtype=np.int64)
        within = Evaluation(self.store, steps, self.deadline, self.request_ms)
        found = within._evaluate_expression(query.expr)
        if not isinstance(found, Vectors):
            found = Vectors([{}], found[None, :], np.ones((1, len(found)), dtype=bool))
        store = series_at(merged(found), steps)
        numbers = np.arange(len(store.labels), dtype=np.int64)
        if len(numbers) * len(ends) > MOST_CELLS:
            raise too_many_samples()
        return Windows.ending_at(store, numbers, ends, range_ms)

    def _select_series(self, selector: promql.VectorSelector) -> Times:
        """Return the store's indices of the series that *selector* selects; raises PromqlError for too many samples."""
        numbers = select(self.store, selector)
        if len(numbers) * len(self.steps_ms) > MOST_CELLS:
            raise too_many_samples()
        return numbers

    def _ends_of_windows(self, selector: promql.VectorSelector | promql.SubqueryExpr) -> Times:
        """Return the end, ms since 1970, of the window of *selector* at each step, after its offset and ``@``."""
        ends = self.steps_ms
        if selector.at is not None:
            at = selector.at
            edge = self.request_ms[0 if at.type == promql.AtModifierType.Start else 1]
            # Read from its text, where what lies before 1970 is 0: its attribute cannot hold that, nor the year 10000.
            written = re.search(r"-?\d+\.\d+", str(at))
            ends = np.full_like(ends, min(round(float(written[0]) * 1000), 2**62) if written else edge)
        offset = selector.offset
        return ends - (round(offset.total_seconds() * 1000) if offset is not None else 0)


def series_at(vectors: Vectors, steps_ms: Times) -> SeriesStore:
    """Return *vectors* as a store of series with a sample at each step (ms since 1970) at which they are present."""
    kept = np.flatnonzero(vectors.present.any(axis=1))
    present = vectors.present[kept]
    bounds = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(present.sum(axis=1))])
    times = np.broadcast_to(steps_ms, present.shape)[present]
    labels = [vectors.labels[row] for row in kept.tolist()]
    return SeriesStore(labels, bounds, times, vectors.values[kept][present], {})


def _range_ms(selector: promql.MatrixSelector | promql.SubqueryExpr) -> int:
    """Return the range in brackets of *selector* in ms; raises PromqlError for one that is not positive."""
    assert selector.range is not None
    range_ms = round(selector.range.total_seconds() * 1000)
    if range_ms < 1:
        raise PromqlError('invalid parameter "query": parse error: duration must be greater than 0')
    return range_ms


def without_parentheses(expression: promql.Expr) -> promql.Expr:
    """Return *expression* without any parentheses around it."""
    while isinstance(expression, promql.ParenExpr):
        expression = expression.expr
    return expression


def _is_range(expression: promql.Expr) -> bool:
    """Return whether *expression* is a range vector: a selector with a range or a subquery."""
    return isinstance(without_parentheses(expression), promql.MatrixSelector | promql.SubqueryExpr)


def _read_literal(expression: promql.Expr) -> str:
    """Return the text of the string literal *expression*."""
    inner = without_parentheses(expression)
    assert isinstance(inner, promql.StringLiteral)
    return decode_literals(inner.val)


def _absent_series(selector: promql.Expr, present: Present) -> Vectors:
    """Return PromQL's `absent` of *selector*: a series with value 1 at each step at which no series is *present*."""
    missing: Present = np.logical_not(present.any(axis=0, keepdims=True))
    return Vectors([_equal_labels(selector)], np.ones(missing.shape), missing)


def _equal_labels(expression: promql.Expr) -> Labels:
    """Return the labels that the selector *expression* fixes by "=", as Prometheus' ``createLabelsForAbsentFunction``."""
    expression = without_parentheses(expression)
    if isinstance(expression, promql.MatrixSelector):
        expression = expression.vector_selector
    if not isinstance(expression, promql.VectorSelector):
        return {}
    found: Labels = {}
    said: set[str] = set()
    for op, name, text in matchers_of(expression):
        if op == "=" and name not in {NAME, *said}:
            said.add(name)
            found[name] = text
        else:
            found.pop(name, None)
    return {name: text for name, text in found.items() if text}


def _read_grouping(modifier: promql.AggModifier | None) -> Grouping:
    """Return the grouping of the *modifier* by(...) or without(...); for None all series are one group."""
    if modifier is None:
        return grouping_by(())
    return (grouping_by if modifier.type == promql.AggModifierType.By else grouping_without)(
        decode_literals(name) for name in modifier.labels
    )
