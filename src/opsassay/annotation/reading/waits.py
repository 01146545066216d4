"""Waiting times: an entry's own time, the time that it waits for each call, and which calls are on the critical path."""

from __future__ import annotations

import numpy as np
import polars as pl
from numpy.typing import NDArray

from opsassay.annotation.reading.names import codes, distinct_pairs, known_names
from opsassay.annotation.reading.parents import Index

Floats = NDArray[np.float64]
_LARGEST = 2**62
_KEY_BITS = 63


def with_waits(entries: pl.DataFrame, exits: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Add own_ms, store_ms, exit_gap_ms, any_failed_exit and shape to *entries*, critical to *exits*.

    Of calls that overlap, the one that ends last is what the caller waits for; of an earlier one only the part before
    that began. These parts sum up to the union of the exits' intervals: own_ms = duration_ms - their sum, store_ms is
    the sum of those of stores, exit_gap_ms that of the positive gap_ms, and critical the part over the length of the
    exit, in [0, 1].
    """
    size = entries.height
    waiting = exits.get_column("caller_entry").is_not_null() & ~(
        exits.get_column("virtual") & exits.get_column("asynchronous")
    )
    rows = np.flatnonzero(waiting.to_numpy())
    caller = exits.get_column("caller_entry").fill_null(-1).to_numpy()[rows]
    begin, finish = _clip_to_entry(entries, exits, rows, caller)
    critical_ns = _critical_ns(caller, begin, finish)
    store = exits.get_column("store").to_numpy()[rows]
    gap = np.nan_to_num(exits.get_column("gap_ms").fill_null(0.0).to_numpy()[rows]).clip(min=0.0)
    failed = exits.get_column("failed").to_numpy()[rows]

    def total(weights: Floats) -> Floats:
        """Return the sum of *weights* (one per waiting exit) for each row of *entries*; 0 for one without exits."""
        return np.bincount(caller, weights=weights, minlength=size).astype(np.float64)

    length = exits.select((pl.col("end_ns") - pl.col("time_ns")).clip(lower_bound=1)).to_series().to_numpy()[rows]
    critical = np.ones(exits.height)
    critical[rows] = np.minimum(critical_ns / length, 1.0)
    duration = entries.get_column("duration_ms").to_numpy()
    return entries.with_columns(
        own_ms=pl.Series((duration - total(critical_ns) / 1e6).clip(min=0.0)),
        store_ms=pl.Series(total(np.where(store, critical_ns, 0.0)) / 1e6),
        exit_gap_ms=pl.Series(total(gap)),
        any_failed_exit=pl.Series(total(failed.astype(float)) > 0),
        shape=pl.Series(_request_shapes(exits, rows, caller, size)),
    ), exits.with_columns(critical=pl.Series(critical))


def _clip_to_entry(entries: pl.DataFrame, exits: pl.DataFrame, rows: Index, caller: Index) -> tuple[Index, Index]:
    """Return (start, end) of *exits* at *rows* in ns after their entry (row *caller*) began, clipped to that entry."""
    from_, to = (entries.get_column(c).to_numpy()[caller] for c in ("time_ns", "end_ns"))
    begin, finish = (exits.get_column(c).to_numpy()[rows] - from_ for c in ("time_ns", "end_ns"))
    lasted = np.maximum(to - from_, 0)
    begin = np.clip(begin, 0, lasted)
    return begin, np.clip(finish, begin, lasted)


def _critical_ns(caller: Index, begin: Index, finish: Index) -> Floats:
    """Return per exit (*begin* to *finish*) the ns in which *caller* waits for it and for none that ends later."""
    if not caller.size:
        return np.zeros(0)
    order = _order_latest_first(caller, begin, finish)
    group, start, stop = caller[order], begin[order], finish[order]
    first = np.r_[True, group[1:] != group[:-1]]
    # A running minimum per group in one pass: each group is shifted below all values of the one before.
    height = int(stop.max()) + 1
    unit = height * int(first.sum()) // _LARGEST + 1
    shift = np.cumsum(first) * (height // unit + 1)
    reached = (np.minimum.accumulate(start // unit - shift) + shift) * unit
    before = np.r_[_LARGEST, reached[:-1]]
    before[first] = _LARGEST
    critical = np.empty(caller.size)
    critical[order] = (np.minimum(stop, before) - start).clip(min=0)
    return critical


def _order_latest_first(caller: Index, begin: Index, finish: Index) -> Index:
    """Return the row order of exits sorted by caller, then by latest finish, then by latest begin."""
    bits = int(finish.max()).bit_length()
    if bits + int(caller.max()).bit_length() < _KEY_BITS:
        key = (caller << bits) | ((1 << bits) - 1 - finish)
        order = np.argsort(key, kind="stable")  # exits are by time, so mostly in order: the fastest way then
        ordered = key[order]
        if not np.any(ordered[1:] == ordered[:-1]):
            return order
    by = pl.DataFrame({"caller": caller, "finish": -finish, "begin": -begin})
    return by.select(pl.arg_sort_by("caller", "finish", "begin")).to_series().to_numpy()


def _request_shapes(exits: pl.DataFrame, rows: Index, caller: Index, size: int) -> NDArray[np.uint64]:
    """Return for each of *size* entries a hash of the set of its callees, which tells kinds of requests apart."""
    names = exits.get_column("callee_node")
    entry, callee = distinct_pairs(caller, codes(names)[rows])
    shapes = np.zeros(size, dtype=np.uint64)
    if entry.size:
        first = np.flatnonzero(np.r_[True, entry[1:] != entry[:-1]])
        hashes = known_names(names).hash(3).to_numpy()
        shapes[entry[first]] = np.add.reduceat(hashes[callee], first)
    return shapes
