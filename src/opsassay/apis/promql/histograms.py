"""``histogram_quantile`` over classic buckets, as Prometheus' ``bucketQuantile`` has it."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from opsassay.apis.promql.values import Vectors, key_of, unnamed
from opsassay.apis.series import Labels, Values

BOUND = "le"


def histogram_quantile(quantile: Values, buckets: Vectors, in_time: Callable[[], None]) -> Vectors:
    """Return the *quantile* at each step of every histogram that *buckets* hold; series without a bound are none of it.

    *in_time* is asked again and again, and raises when it has taken too long.
    """
    groups: dict[tuple[tuple[str, str], ...], list[tuple[float, int]]] = {}
    for row, labels in enumerate(buckets.labels):
        if (bound := _bound(labels)) is not None:
            rest = {name: value for name, value in unnamed(labels).items() if name != BOUND}
            groups.setdefault(key_of(rest), []).append((bound, row))
    shape = (len(groups), buckets.values.shape[1])
    values, present = np.full(shape, np.nan), np.zeros(shape, dtype=bool)
    for number, members in enumerate(groups.values()):
        bounds, owners = np.unique([bound for bound, _ in members], return_inverse=True)
        rows = [row for _, row in members]
        counts, there = np.zeros((len(bounds), shape[1])), np.zeros((len(bounds), shape[1]), dtype=bool)
        np.add.at(counts, owners, np.where(buckets.present[rows], buckets.values[rows], 0.0))
        np.logical_or.at(there, owners, buckets.present[rows])  # equal bounds, written differently, are one bucket
        patterns, pattern = np.unique(there, axis=1, return_inverse=True)
        for at, kept in enumerate(patterns.T):
            in_time()
            steps = np.flatnonzero(pattern.ravel() == at)
            present[number, steps] = kept.any()
            values[number, steps] = _at(quantile[steps], bounds[kept], counts[np.ix_(kept, steps)])
    return Vectors([dict(key) for key in groups], values, present)


def _bound(labels: Labels) -> float | None:
    try:
        return float(labels[BOUND])
    except (KeyError, ValueError):
        return None


def _at(quantile: Values, bounds: Values, counts: Values) -> Values:
    """Return the *quantile* of one histogram at each step of *counts* (buckets, steps).

    Within a bucket observations are spread evenly. An empty first bucket, or no observation at all, gives NaN.
    """
    if len(bounds) < 2 or bounds[-1] != np.inf:
        return np.full(len(quantile), np.nan)
    counts = np.maximum.accumulate(counts)  # rates of counters that were read one by one need not rise
    steps, rank = np.arange(len(quantile)), quantile * counts[-1]
    at = (counts[:-1] < rank).sum(axis=0)
    begin, before = np.append(0.0, bounds)[at], np.vstack([np.zeros(len(steps)), counts])[at, steps]
    found = begin + (bounds[at] - begin) * (rank - before) / (counts[at, steps] - before)
    found = np.where((at == 0) & (bounds[0] <= 0), bounds[0], found)
    found = np.where(at == len(bounds) - 1, bounds[-2], found)
    found = np.where(counts[-1] > 0, found, np.nan)
    outside = np.where(quantile < 0, -np.inf, np.where(quantile > 1, np.inf, found))
    return np.where(np.isnan(quantile), np.nan, outside)
