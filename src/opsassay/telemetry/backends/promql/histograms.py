"""``histogram_quantile`` over classic buckets, as in Prometheus' ``bucketQuantile``."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from math import inf, isfinite

import numpy as np

from opsassay.telemetry.backends.promql.values import Present, Vectors, count_present, group_labels, names_of, summed
from opsassay.telemetry.backends.series import NAME, Times, Values

BOUND = "le"
_DIGITS, _HEX = r"[0-9](?:_?[0-9])*", r"[0-9a-f](?:_?[0-9a-f])*"
_DECIMAL = re.compile(rf"(?ai)[+-]?(?:{_DIGITS}(?:\.(?:{_DIGITS})?)?|\.{_DIGITS})(?:e[+-]?{_DIGITS})?")
_HEXADECIMAL = re.compile(rf"(?ai)[+-]?0x(?:_?{_HEX}(?:\.(?:{_HEX})?)?|\.{_HEX})p[+-]?{_DIGITS}")
_SPECIAL = re.compile(r"(?ai)[+-]?inf(?:inity)?|nan")


def histogram_quantile(quantile: Values, buckets: Vectors, check_time: Callable[[], None]) -> Vectors:
    """Return the *quantile* at each step of every histogram in *buckets*; series without a bound are ignored.

    *quantile* has one value a step, the result the shape (histograms, steps); *check_time* is called repeatedly and
    raises when the query takes too long. With rank = quantile * count of the bucket +Inf and b the first bucket that
    holds rank or more observations (counts are cumulative):

        begin + (bound[b] - begin) * (rank - count[b-1]) / (count[b] - count[b-1])

    *begin* is the bound before, 0 for the first bucket; if the first bound is 0 or less and holds the rank, it is the
    result, and within +Inf the last finite bound is. Without +Inf and another bucket the result is NaN, for a quantile
    outside of 0 to 1 infinite.
    """
    bound_of = {text: _bound(text) for text in {labels.get(BOUND, "") for labels in buckets.labels}}
    given = [bound_of[labels.get(BOUND, "")] for labels in buckets.labels]
    rows = [row for row, bound in enumerate(given) if bound is not None]
    bounds = np.array([given[row] for row in rows], dtype=np.float64)
    of_bounds = buckets.rows(rows)
    groups, owners = group_labels(of_bounds.labels, names_of(of_bounds.labels) - {BOUND, NAME})
    steps = len(quantile)
    values, present = np.full((len(groups), steps), np.nan), np.zeros((len(groups), steps), dtype=bool)
    for numbers, layout, counts, there in _histograms(of_bounds, bounds, owners):
        found, asked = np.full(len(numbers) * steps, np.nan), np.tile(quantile, len(numbers))
        for kept, columns in _distinct_columns(there.reshape(len(layout), -1)):
            check_time()
            of_columns = counts.reshape(len(layout), -1)[:, columns]
            found[columns] = _interpolate_quantile(asked[columns], layout[kept], of_columns[kept])
        values[numbers], present[numbers] = found.reshape(len(numbers), steps), there.any(axis=0)
    return Vectors(groups, values, present, distinct=True)


def _bound(text: str) -> float | None:
    """Parse *text*, a bucket's label le, as Go's ``strconv.ParseFloat`` does; None where that fails."""
    if _SPECIAL.fullmatch(text):
        return float(text)
    read = float if _DECIMAL.fullmatch(text) else float.fromhex if _HEXADECIMAL.fullmatch(text) else None
    try:
        found = read(text.replace("_", "")) if read else inf
    except OverflowError:
        return None
    return found if isfinite(found) else None


def _histograms(buckets: Vectors, bounds: Values, owners: Times) -> Iterator[tuple[Times, Values, Values, Present]]:
    """Yield (histogram indices, bounds, counts, presence) for each set of histograms with the same bounds.

    *owners* is the histogram of each series of *buckets*, *bounds* its upper bound. Counts and presence have the shape
    (bounds, histograms, steps). Equal bounds, written differently, are one bucket.
    """
    order = np.lexsort((bounds, owners))
    first = np.ones(len(order), dtype=bool)
    first[1:] = (np.diff(owners[order]) != 0) | (bounds[order][1:] != bounds[order][:-1])
    bucket = np.empty(len(order), dtype=np.int64)
    bucket[order] = np.cumsum(first) - 1
    count = int(first.sum())
    counts = summed(np.where(buckets.present, buckets.values, 0.0), bucket, count)
    there = count_present(buckets.present, bucket, count) > 0
    distinct = bounds[order][first]
    begins = np.flatnonzero(np.diff(owners[order][first], prepend=-1))
    layouts: dict[bytes, list[int]] = {}
    for number, one in enumerate(np.split(distinct, begins[1:]) if count else ()):
        layouts.setdefault(one.tobytes(), []).append(number)
    for key, alike in layouts.items():
        layout, numbers = np.frombuffer(key), np.array(alike, dtype=np.int64)
        within = begins[numbers] + np.arange(len(layout))[:, None]
        yield numbers, layout, counts[within], there[within]


def _distinct_columns(present: Present) -> Iterator[tuple[Present, Times]]:
    """Yield (pattern, column indices) for each distinct column of *present*, shape (buckets, columns), with any bucket."""
    whole = present.all(axis=0)
    yield np.ones(len(present), dtype=bool), np.flatnonzero(whole)
    partly = np.flatnonzero(present.any(axis=0) & ~whole)
    patterns, pattern = np.unique(np.packbits(present[:, partly], axis=0), axis=1, return_inverse=True)
    for at, kept in enumerate(np.unpackbits(patterns, axis=0, count=len(present)).T.astype(bool)):
        yield kept, partly[pattern.ravel() == at]


def _interpolate_quantile(quantile: Values, bounds: Values, counts: Values) -> Values:
    """Return the *quantile* of one histogram in each column of *counts*, cumulative, shape (buckets, columns).

    Within a bucket observations are spread evenly. An empty first bucket, or no observation at all, gives NaN.
    """
    outside = np.where(quantile < 0, -np.inf, np.where(quantile > 1, np.inf, np.nan))
    if len(bounds) < 2 or bounds[-1] != np.inf:
        return outside
    counts = np.maximum.accumulate(counts)  # rates of counters that were read one by one need not rise
    columns, rank = np.arange(len(quantile)), quantile * counts[-1]
    at = (counts[:-1] < rank).sum(axis=0)
    begin, before = np.append(0.0, bounds)[at], np.where(at > 0, counts[at - 1, columns], 0.0)
    found = begin + (bounds[at] - begin) * (rank - before) / (counts[at, columns] - before)
    found = np.where((at == 0) & (bounds[0] <= 0), bounds[0], found)
    found = np.where(at == len(bounds) - 1, bounds[-2], found)
    found = np.where(counts[-1] != 0, found, np.nan)
    return np.where((quantile >= 0) & (quantile <= 1), found, outside)
