"""Finds the series that a selector matches. Regular expressions match whole values."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import promql_parser as promql

from opsassay.telemetry.backends.literals import decode_literals
from opsassay.telemetry.backends.matching import RegexError, tester
from opsassay.telemetry.backends.promql.values import Present, PromqlError
from opsassay.telemetry.backends.series import NAME, SeriesStore, Times

MOST_KEPT = 256
"""Most matchers whose series a store caches."""


def select(store: SeriesStore, selector: promql.VectorSelector) -> Times:
    """Return the indices of the series in *store* that *selector* matches; raises PromqlError for an invalid regex."""
    matched = [_matching_series(store, *matcher) for matcher in matchers_of(selector)]
    if all(of_nothing for of_nothing, _ in matched):
        raise _parse_error("vector selector must contain at least one non-empty matcher")
    return np.flatnonzero(np.logical_and.reduce([fits for _, fits in matched]))


def _matching_series(store: SeriesStore, op: str, label: str, value: str) -> tuple[bool, Present]:
    """Return (whether "" satisfies the matcher *label* *op* *value*, whether each series of *store* does); cached there."""
    key = (op, label, value)
    if (found := store.matched.get(key)) is None:
        texts, which = store.column(label)
        fits = _make_test(op, value, ["", *texts])
        found = fits(""), np.array([fits(text) for text in texts], dtype=bool)[which]
        while len(store.matched) >= MOST_KEPT:
            store.matched.pop(next(iter(store.matched)))
        store.matched[key] = found
    return found


def matchers_of(selector: promql.VectorSelector) -> list[tuple[str, str, str]]:
    """Return (operator, label, value) of each matcher in *selector*, including the one for the metric's name."""
    found = [
        (_operator_text(one.op), decode_literals(one.name), decode_literals(one.value))
        for one in selector.matchers.matchers
    ]
    return found + ([("=", NAME, selector.name)] if selector.name else [])


def _operator_text(op: promql.MatchOp) -> str:
    """Return the matcher's operator as text: "=", "!=", "=~" or "!~"."""
    if op == promql.MatchOp.Equal:
        return "="
    if op == promql.MatchOp.NotEqual:
        return "!="
    return "=~" if op == promql.MatchOp.Re else "!~"


def _make_test(op: str, value: str, texts: list[str]) -> Callable[[str], bool]:
    """Return a test whether one of *texts* matches *op* and *value*; raises PromqlError for an invalid regex."""
    try:
        return tester(op, value, texts)
    except RegexError as error:
        raise _parse_error(str(error)) from error


def _parse_error(what: str) -> PromqlError:
    """Return the PromqlError for a query that cannot be parsed; *what* says what is wrong."""
    return PromqlError(f'invalid parameter "query": parse error: {what}')
