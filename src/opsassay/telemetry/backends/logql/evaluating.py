"""Evaluates LogQL over a store of logs: entries for a log query, series for a metric query, all steps at once."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from opsassay.telemetry.backends.logql.parsing import (
    LineFilter,
    LogqlError,
    LogQuery,
    MetricQuery,
    RangeCount,
    VectorLiteral,
)
from opsassay.telemetry.backends.logs import LogStore
from opsassay.telemetry.backends.matching import holds_anywhere
from opsassay.telemetry.backends.promql.aggregating import aggregate, grouping_by, grouping_without
from opsassay.telemetry.backends.promql.values import Vectors
from opsassay.telemetry.backends.series import Times, Values

MOST_CELLS = 4_000_000
"""Most values (series times steps) of one vector."""


@dataclass(frozen=True)
class LogEvaluation:
    """Evaluates queries over *store*, which fail after the monotonic time *deadline* (s)."""

    store: LogStore
    deadline: float

    def entries(self, query: LogQuery, start_ns: int, end_ns: int) -> Times:
        """Return the rows of log entries that *query* selects in [*start_ns*, *end_ns*); raises LogqlError, RegexError."""
        within = self.store.between(start_ns, end_ns)
        fits = self.store.fitting(query.selector, of_stream=True) & self.store.fitting(query.labels, of_stream=False)
        numbers = np.flatnonzero(fits[self.store.owners[within]]).astype(np.int64) + within.start
        for one in query.lines:
            self._check_time()
            numbers = numbers[_passing_line_filter(one, self.store.lines[numbers])]
        found: Times = numbers
        return found

    def series(self, query: MetricQuery, steps_ns: Times) -> Vectors:
        """Return the values of the metric *query* at each of *steps_ns*; raises LogqlError for too much work.

        A step counts the entries in (step - offset - range, step - offset]; a rate is that count per second. Raises
        RegexError for an expression that cannot be used.
        """
        if isinstance(query, VectorLiteral):
            return Vectors([{}], np.full((1, len(steps_ns)), query.value), np.ones((1, len(steps_ns)), dtype=bool))
        if isinstance(query, RangeCount):
            return self._count_lines(query, steps_ns, self.store.sets.columns)
        if query.op == "sum" and isinstance(query.inner, RangeCount):  # all of them add up: groups are counted at once
            kept = [name for name in self.store.sets.columns if (name in query.names) == query.by]
            return self._count_lines(query.inner, steps_ns, kept)
        grouping = (grouping_by if query.by else grouping_without)(query.names)
        inner = self.series(query.inner, steps_ns)
        limit = np.full(len(steps_ns), float(query.limit)) if query.limit is not None else None
        return aggregate(query.op, grouping, inner, limit)

    def _count_lines(self, query: RangeCount, steps_ns: Times, names: Sequence[str]) -> Vectors:
        """Return count, bytes or rate of the lines that *query* selects, at each of *steps_ns*.

        There is one series for each combination of the labels *names*. Raises LogqlError for too many.
        """
        ends_ns = steps_ns - query.offset_ns
        first_ns, last_ns = int(ends_ns[0]) - query.range_ns + 1, int(ends_ns[-1]) + 1  # the first instant is outside
        numbers = self.entries(query.logs, first_ns, last_ns)
        owners, owner_of = np.unique(self.store.owners[numbers], return_inverse=True)
        groups, group_of = self.store.grouped(owners, names)
        if len(groups) * len(steps_ns) > MOST_CELLS:
            raise LogqlError("maximum number of series reached for a single query: name fewer labels or steps", 400)
        self._check_time()
        counts, sizes = self._windows(numbers, group_of[owner_of], len(groups), (ends_ns - query.range_ns, ends_ns))
        values = sizes if query.function.startswith("bytes") else counts
        if query.function.endswith("rate"):
            values = values / (query.range_ns / 1e9)
        return Vectors(groups, values, counts > 0)

    def _windows(
        self, rows: Times, groups: Times, group_count: int, bounds_ns: tuple[Times, Times]
    ) -> tuple[Values, Values]:
        """Return (numbers of entries, their bytes) for the log entries *rows*, each of shape (groups, windows).

        *groups* is the group of each entry; *bounds_ns* are the starts (excluded) and ends (included) of the windows.
        """
        ns, total = self.store.ns[rows], len(rows)
        order = np.argsort(groups, kind="stable")
        keys = groups[order] * (total + 1) + order  # entries are numbered in the order of time
        sizes = self.store.lines[rows].str.len_bytes().to_numpy().astype(np.float64)[order]
        before = np.concatenate([np.zeros(1), np.cumsum(sizes)])
        low, high = (
            np.searchsorted(
                keys, np.arange(group_count)[:, None] * (total + 1) + np.searchsorted(ns, bound, side="right")[None, :]
            )
            for bound in bounds_ns
        )
        return (high - low).astype(np.float64), before[high] - before[low]

    def _check_time(self) -> None:
        """Raise LogqlError (504) when the query has taken too long."""
        if time.monotonic() > self.deadline:
            raise LogqlError("context deadline exceeded", 504)


def _passing_line_filter(filter_: LineFilter, lines: pl.Series) -> Times:
    """Return the indices of *lines* that pass *filter_*, a LogQL line filter."""
    fits = np.zeros(len(lines), dtype=bool)
    for value in filter_.values:
        if filter_.op.endswith("~"):
            fits |= holds_anywhere(value, lines)
        else:
            fits |= lines.str.contains(value, literal=True).to_numpy().astype(bool)
    return np.flatnonzero(fits if filter_.op.startswith("|") else ~fits).astype(np.int64)
