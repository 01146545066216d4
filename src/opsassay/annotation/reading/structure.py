"""The structure inside services: spans that lack the calls or inner spans which their operation usually has."""

from __future__ import annotations

import numpy as np
import polars as pl

from opsassay.annotation.reading.names import codes, distinct_pairs, known_names
from opsassay.annotation.reading.parents import Index
from opsassay.annotation.reading.spans import Flags, Spans

OFTEN = 0.5
"""Where more than this share of an operation's baseline spans has a child, or a call, a span without one is *bare*."""

ALWAYS, ALWAYS_OF = 0.9, 5
"""A child or callee is usual if this share of an operation's baseline spans had it, and there are ALWAYS_OF or more."""


def find_bare(spans: Spans, entry_of: Index) -> pl.DataFrame:
    """Return the spans, other than client spans, of all operations that have a bare span in the abnormal window.

    Columns: period, time_ns, end_ns, service, operation (the span's name), entry, bare. A span is *bare* when it has no
    child although most of its operation had one before, no call in it although most had one, or when it lacks a child
    that nearly all had and made no call, so that no answer of another service can be the reason.
    """
    rows = np.flatnonzero(~spans.is_exit & ~spans.generator & (spans.entry >= 0))
    code, size = _operation_codes(spans)
    normal = (spans.frame.get_column("period") == "normal").to_numpy()
    child = np.flatnonzero(spans.parent >= 0)
    parent = spans.parent.take(child)
    has_child = np.zeros(code.size, dtype=bool)
    has_child[parent] = True
    has_call = _with_calls(spans)
    bare = (_usual_flags(has_child, code, normal, rows) & ~has_child) | (
        _usual_flags(has_call, code, normal, rows) & ~has_call
    )
    inner = has_child & ~has_call
    some = np.zeros(size, dtype=bool)
    some[code[inner & ~normal]] = True
    of = some[code[parent]]
    bare |= lacks_usual(code, normal, parent[of], code[child[of]], size) & inner
    changed = np.zeros(size, dtype=bool)
    changed[code[rows][bare[rows] & ~normal[rows]]] = True
    kept = rows[changed[code[rows]]]
    found = spans.frame.select("period", "time_ns", "end_ns", "service", "operation")[kept]
    entry = pl.Series(entry_of.take(spans.entry.take(kept)))
    return found.with_columns(entry=entry, bare=pl.Series(bare[kept]))


def _operation_codes(spans: Spans) -> tuple[Index, int]:
    """Return (for each span the number, from 0, of its (service, operation) pair; the number of pairs)."""
    service, name = (spans.frame.get_column(column) for column in ("service", "operation"))
    width = known_names(name).len()
    pair = codes(service) * width + codes(name)
    present = np.zeros(known_names(service).len() * width, dtype=bool)
    present[pair] = True
    numbers = np.cumsum(present)
    return numbers.take(pair) - 1, int(numbers[-1])


def _with_calls(spans: Spans) -> Flags:
    """Return for each span whether its service makes a call within it, at any depth."""
    found = np.zeros(spans.parent.size, dtype=bool)
    below = (spans.is_exit | spans.is_entry) & (spans.parent >= 0)
    while below.any():
        above = np.zeros(found.size, dtype=bool)
        above[spans.parent[below]] = True
        below = above & ~found & ~spans.is_entry & (spans.parent >= 0)
        found |= above
    return found


def _usual_flags(flags: Flags, code: Index, normal: Flags, rows: Index) -> Flags:
    """Return for each span whether over OFTEN of the *normal* spans among *rows* with its *code* have *flags* set."""
    before = rows[normal.take(rows)]
    size = int(code.max(initial=-1)) + 1
    all_ = np.bincount(code.take(before), minlength=size)
    with_it = np.bincount(code.take(before[flags.take(before)]), minlength=size)
    return (with_it > OFTEN * all_).take(code)


def lacks_usual(code: Index, normal: Flags, owner: Index, part: Index, size: int) -> Flags:
    """Return for each row whether it lacks a part that (nearly) all baseline rows with its code had.

    *code* and *normal* have a row each; *owner* (a row) has a *part* (a code, -1 for none). Codes are below *size*.
    """
    owners, parts = distinct_pairs(owner, part)
    served = np.bincount(code[normal], minlength=size)
    pair = code[owners] * size + parts
    pairs, had = np.unique(pair[normal[owners]], return_counts=True)
    usual = pairs[(served[pairs // size] >= ALWAYS_OF) & (had >= ALWAYS * served[pairs // size])]
    needed = np.bincount(usual // size, minlength=size)
    has = np.bincount(owners[np.isin(pair, usual)], minlength=code.size)
    return has < needed.take(code)
