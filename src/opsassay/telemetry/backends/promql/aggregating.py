"""Aggregations: many series of one group become one, or the k largest of them stay."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np

from opsassay.telemetry.backends.promql.values import (
    PromqlError,
    Vectors,
    count_present,
    group_labels,
    names_of,
    summed,
)
from opsassay.telemetry.backends.series import NAME, Times, Values

Grouping = Callable[[set[str]], set[str]]
"""Which of the names of labels those of groups are."""


def aggregate(op: str, grouping: Grouping, vectors: Vectors, limit: Values | None) -> Vectors:
    """Return *vectors* aggregated by *op*; *limit* is k or the quantile at each step. Raises PromqlError.

    stddev and stdvar divide by the count: of all, and not of a sample. quantile lies between ranks linearly, at rank q
    * (count - 1); it is -inf below q = 0 and +inf above 1.
    """
    groups, owners = group_labels(vectors.labels, grouping(names_of(vectors.labels)))
    if op in {"topk", "bottomk"}:
        assert limit is not None
        return _largest(vectors, owners, limit, smallest=op == "bottomk")
    shape = (len(groups), vectors.values.shape[1])
    counts = count_present(vectors.present, owners, len(groups))
    if op == "quantile":
        assert limit is not None
        values = _quantiles(vectors, owners, shape, limit)
    elif op in {"count", "group"}:
        values = counts if op == "count" else np.ones(shape)
    else:
        values = _combined(op, vectors, owners, shape, counts)
    return Vectors(groups, values, counts > 0)


def _combined(op: str, vectors: Vectors, owners: Times, shape: tuple[int, int], counts: Values) -> Values:
    if op in {"min", "max"}:
        found = np.full(shape, np.nan)  # passed over by fmin and fmax wherever there is a number
        (np.fmin if op == "min" else np.fmax).at(found, owners, np.where(vectors.present, vectors.values, np.nan))
        return found
    found = summed(np.where(vectors.present, vectors.values, 0.0), owners, len(counts))
    if op in {"avg", "sum"}:
        return found / counts if op == "avg" else found
    away = vectors.values - (found / counts)[owners]
    variance = summed(np.where(vectors.present, away * away, 0.0), owners, len(counts)) / counts
    return variance if op == "stdvar" else np.sqrt(variance)


def _quantiles(vectors: Vectors, owners: Times, shape: tuple[int, int], quantile: Values) -> Values:
    """Return the *quantile* of each group at each step, between ranks linearly; infinite outside of 0 to 1."""
    found = np.full(shape, np.nan)
    for group in range(shape[0]):
        rows = np.flatnonzero(owners == group)
        ordered = np.sort(np.where(vectors.present[rows], vectors.values[rows], np.inf), axis=0)
        count = vectors.present[rows].sum(axis=0)
        rank = np.clip(np.nan_to_num(quantile), 0, 1) * np.maximum(count - 1, 0)
        low = np.floor(rank).astype(np.int64)
        high = np.minimum(low + 1, np.maximum(count - 1, 0))
        at = np.arange(shape[1])
        share = rank - low
        found[group] = np.where(
            share == 0, ordered[low, at], ordered[low, at] * (1 - share) + ordered[high, at] * share
        )
    found = np.where(quantile < 0, -np.inf, np.where(quantile > 1, np.inf, found))
    return np.where(np.isnan(quantile), np.nan, found)


def grouping_by(names: Iterable[str]) -> Grouping:
    """Return the grouping that keeps the labels *names*."""
    named = set(names)
    return named.intersection


def grouping_without(names: Iterable[str]) -> Grouping:
    """Return the grouping that drops the labels *names* and the metric's name."""
    dropped = {NAME, *names}
    return lambda given: given - dropped


def _largest(vectors: Vectors, owners: Times, limit: Values, *, smallest: bool) -> Vectors:
    """Return the series that are among the k largest of their group at any step, present where they are."""
    if np.isnan(limit).any() or (np.abs(limit) >= 2**63).any():
        raise PromqlError("Parameter value is NaN or overflows int64", "execution", 422)
    chosen = np.zeros_like(vectors.present)
    for group in range(int(owners.max()) + 1 if len(owners) else 0):
        rows = np.flatnonzero(owners == group)
        values, absent = vectors.values[rows], ~vectors.present[rows]
        order = np.lexsort((values if smallest else -values, np.isnan(values), absent), axis=0)
        ranks = np.empty_like(order)
        np.put_along_axis(ranks, order, np.arange(len(rows))[:, None], axis=0)
        chosen[rows] = (ranks < np.trunc(limit)[None, :]) & ~absent
    return Vectors(vectors.labels, vectors.values, chosen)
