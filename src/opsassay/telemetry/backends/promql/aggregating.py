"""Aggregations of PromQL: they combine the series of each group, or select the k largest of them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import replace

import numpy as np

from opsassay.telemetry.backends.promql.values import (
    PromqlError,
    Vectors,
    count_present,
    group_labels,
    names_of,
    quantile_of,
    reduced_rows,
    summed,
)
from opsassay.telemetry.backends.series import NAME, Times, Values

_LABEL = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")

Grouping = Callable[[set[str]], set[str]]
"""Function from the label names of series to the label names of their groups."""


def aggregate(op: str, grouping: Grouping, vectors: Vectors, limit: Values | None) -> Vectors:
    """Return *vectors* aggregated by *op* (sum, topk, ...) within each group of *grouping*; raises PromqlError.

    *limit* is the parameter at each step: k, or the quantile. stddev and stdvar are those of the population; quantile
    is `quantile_of`.
    """
    groups, owners = group_labels(vectors.labels, grouping(names_of(vectors.labels)))
    if op in {"topk", "bottomk"}:
        assert limit is not None
        return _largest(vectors, owners, limit, smallest=op == "bottomk")
    shape = (len(groups), vectors.values.shape[1])
    counts = count_present(vectors.present, owners, len(groups))
    if op == "quantile":
        assert limit is not None
        values = _quantiles_of_groups(vectors, owners, shape, limit)
    elif op in {"count", "group"}:
        values = counts if op == "count" else np.ones(shape)
    else:
        values = _combine_groups(op, vectors, owners, counts)
    return Vectors(groups, values, counts > 0, distinct=True)


def count_values(grouping: Grouping, vectors: Vectors, label: str, *, without: bool) -> Vectors:
    """Return how many series of each group have each value; the value is the text of the label *label*. Raises PromqlError.

    As in Prometheus, a label of that name is overwritten before grouping: for a grouping by *without* all values count
    together.
    """
    if not _LABEL.fullmatch(label):
        raise PromqlError(f'invalid label name "{label}"', "execution", 422)
    groups, owners = group_labels(vectors.labels, grouping(names_of(vectors.labels)) - {label})
    rows, steps = np.nonzero(vectors.present)
    distinct, which = np.unique(vectors.values[rows, steps], return_inverse=True)
    if without:
        distinct, which = distinct[:1], np.zeros_like(which)
    pairs, places = np.unique(owners[rows] * max(len(distinct), 1) + which, return_inverse=True)
    counts = np.zeros((len(pairs), vectors.values.shape[1]))
    np.add.at(counts, (places, steps), 1.0)
    said = [{} if without else {label: _format_value(value)} for value in distinct.tolist()]
    labels = [groups[pair // len(distinct)] | said[pair % len(distinct)] for pair in pairs.tolist()]
    return Vectors(labels, counts, counts > 0)


def _format_value(value: float) -> str:
    """Return *value* as Go's ``FormatFloat(value, 'f', -1, 64)`` writes it."""
    if np.isnan(value) or np.isinf(value):
        return "NaN" if np.isnan(value) else "+Inf" if value > 0 else "-Inf"
    return np.format_float_positional(value, trim="-")


def _combine_groups(op: str, vectors: Vectors, owners: Times, counts: Values) -> Values:
    """Return *op* of each group by step; *owners* is each series' group, *counts* the series in a group by step."""

    def added(values: Values) -> Values:
        return summed(np.where(vectors.present, values, 0.0), owners, len(counts))

    if op in {"min", "max", "stddev", "stdvar"}:
        extreme = np.fmin if op == "min" else np.fmax  # which pass over NaN wherever there is a number
        found = reduced_rows(extreme, np.where(vectors.present, vectors.values, np.nan), owners, len(counts))
        if op in {"min", "max"}:
            return found
        away = vectors.values - found[owners]  # from one of the group: of equal values exactly 0
        away -= (added(away) / counts)[owners]
        variance = added(away * away) / counts
        return variance if op == "stdvar" else np.sqrt(variance)
    found = added(vectors.values)
    if op == "sum":
        return found
    mean = found / counts
    return np.where(np.isinf(found), added(vectors.values / counts[owners]), mean) if np.isinf(found).any() else mean


def _quantiles_of_groups(vectors: Vectors, owners: Times, shape: tuple[int, int], quantile: Values) -> Values:
    """Return the *quantile* (one value a step) over the series of each group, of shape *shape*: (groups, steps).

    *owners* is the group of each series of *vectors*.
    """
    found = np.full(shape, np.nan)
    order, sizes = np.argsort(owners, kind="stable"), np.bincount(owners, minlength=shape[0])
    begins = np.cumsum(sizes) - sizes
    for size in np.unique(sizes).tolist():  # groups of one size are worked out side by side
        groups = np.flatnonzero(sizes == size)
        rows = order[begins[groups] + np.arange(size)[:, None]]
        values, present = (of_rows.reshape(size, -1) for of_rows in (vectors.values[rows], vectors.present[rows]))
        found[groups] = quantile_of(values, present, np.tile(quantile, len(groups))).reshape(len(groups), -1)
    return found


def grouping_by(names: Iterable[str]) -> Grouping:
    """Return a function from the label names of series to those to group by: *names* (PromQL's by)."""
    named = set(names)
    return named.intersection


def grouping_without(names: Iterable[str]) -> Grouping:
    """Return a function from the label names of series to those to group by: all but *names* and the metric's name."""
    dropped = {NAME, *names}
    return lambda given: given - dropped


def _largest(vectors: Vectors, owners: Times, limit: Values, *, smallest: bool) -> Vectors:
    """Return *vectors* with only the k largest (or *smallest*) series of each group present; raises PromqlError.

    *owners* is the group of each series, *limit* is k at each step.
    """
    if np.isnan(limit).any() or (np.abs(limit) >= 2**63).any():
        raise PromqlError("Parameter value is NaN or overflows int64", "execution", 422)
    values, absent = vectors.values, ~vectors.present
    groups = np.broadcast_to(owners[:, None], values.shape)
    order = np.lexsort((values if smallest else -values, np.isnan(values), absent, groups), axis=0)
    ranks = np.empty_like(order)
    np.put_along_axis(ranks, order, np.arange(len(owners))[:, None], axis=0)
    ranks -= np.searchsorted(np.sort(owners), owners)[:, None]  # where its group begins
    return replace(vectors, present=(ranks < np.trunc(limit)[None, :]) & vectors.present)
