"""Times of which a recording holds nothing: a minute's file is missing, or a collector was down."""

from __future__ import annotations

import numpy as np
import polars as pl

from opsassay.core.schema.incident import Window

LONG_NS, TIMES_USUAL = 15_000_000_000, 10
"""A silence of everything is a gap from LONG_NS on, when it is TIMES_USUAL the mean time between two requests."""


def unobserved(spans: pl.DataFrame, period: str, window: Window) -> tuple[tuple[int, int], ...]:
    """Return the gaps of *period* within *window*, (from, to) in ns.

    *spans*: period, trace, time_ns, end_ns, those of load generators included: they go on when a system is down. What
    precedes the first span of the normal window, or follows its last, is a gap too; at the ends of the abnormal window
    it may be the fault's work.
    """
    mine = spans.filter(pl.col("period") == period).sort("time_ns")
    if not mine.height:
        return ()
    begins, ends = mine.get_column("time_ns").to_numpy(), np.maximum.accumulate(mine.get_column("end_ns").to_numpy())
    before, after = ends[:-1], begins[1:]
    if period == "normal":
        before, after = np.r_[window.start_ns, before, ends[-1]], np.r_[begins[0], after, window.end_ns]
    silent = after - before
    traces = mine.get_column("trace").n_unique()
    busy_ns = window.end_ns - window.start_ns - int(silent[silent >= LONG_NS].sum())
    found = np.flatnonzero((silent >= LONG_NS) & (silent >= TIMES_USUAL * max(busy_ns, 0) / traces))
    return tuple((int(before[at]), int(after[at])) for at in found)


def about_gaps(period: str, gaps: tuple[tuple[int, int], ...], window: Window) -> str:
    """Return in a sentence how much of *window* was observed."""
    whole, lost = window.seconds, sum(end - start for start, end in gaps) / 1e9
    seen = f"Of the {whole:.0f} s of the {period} window {whole - lost:.0f} s were observed"
    return f"{seen}: for {lost:.0f} s there are no spans."
