"""``histogram_quantile`` over classic buckets, as Prometheus' ``bucketQuantile`` has it."""

from __future__ import annotations

import math

import numpy as np

from opsassay.apis.promql.values import Vectors, key_of, unnamed
from opsassay.apis.series import Labels, Values

BOUND = "le"


def histogram_quantile(quantile: Values, buckets: Vectors) -> Vectors:
    """Return the *quantile* at each step of every histogram that *buckets* hold; series without a bound are none of it."""
    groups: dict[tuple[tuple[str, str], ...], list[tuple[float, int]]] = {}
    for row, labels in enumerate(buckets.labels):
        if (bound := _bound(labels)) is not None:
            rest = {name: value for name, value in unnamed(labels).items() if name != BOUND}
            groups.setdefault(key_of(rest), []).append((bound, row))
    steps = buckets.values.shape[1]
    values, present = np.full((len(groups), steps), np.nan), np.zeros((len(groups), steps), dtype=bool)
    for number, members in enumerate(groups.values()):
        bounds = sorted({bound for bound, _ in members})
        counts, there = np.zeros((len(bounds), steps)), np.zeros((len(bounds), steps), dtype=bool)
        for bound, row in members:  # equal bounds, written differently, are one bucket
            at = bounds.index(bound)
            counts[at] += np.where(buckets.present[row], buckets.values[row], 0.0)
            there[at] |= buckets.present[row]
        present[number] = there.any(axis=0)
        for step in np.flatnonzero(present[number]).tolist():
            kept = there[:, step]
            values[number, step] = _at(float(quantile[step]), np.array(bounds)[kept], counts[kept, step])
    return Vectors([dict(key) for key in groups], values, present)


def _bound(labels: Labels) -> float | None:
    try:
        return float(labels[BOUND])
    except (KeyError, ValueError):
        return None


def _at(quantile: float, bounds: Values, counts: Values) -> float:
    """Return the *quantile* of one histogram: within a bucket observations are spread evenly."""
    if math.isnan(quantile) or len(bounds) < 2 or not math.isinf(bounds[-1]):
        return math.nan
    if not 0 <= quantile <= 1:
        return math.copysign(math.inf, quantile)
    counts = np.maximum.accumulate(counts)  # rates of counters that were read one by one need not rise
    if not counts[-1] > 0:
        return math.nan
    rank = quantile * float(counts[-1])
    at = int(np.searchsorted(counts[:-1], rank, side="left"))
    if at == len(bounds) - 1:
        return float(bounds[-2])
    if at == 0 and bounds[0] <= 0:
        return float(bounds[0])
    begin, before = (float(bounds[at - 1]), float(counts[at - 1])) if at else (0.0, 0.0)
    return begin + (float(bounds[at]) - begin) * float(rank - before) / (float(counts[at]) - before)
