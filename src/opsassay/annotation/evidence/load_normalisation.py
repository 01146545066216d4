"""Corrects checks of time for higher load: calls are compared in intervals that are no busier than the baseline was."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import wraps

import polars as pl

from opsassay.annotation.evidence.context import EvidenceContext, SignatureCheck
from opsassay.annotation.evidence.states import NANO
from opsassay.annotation.evidence.thresholds import LoadThresholds
from opsassay.annotation.reading.calls import Calls

PERIODS = ("normal", "abnormal")


def at_usual_pace(check: Callable[[EvidenceContext], SignatureCheck]) -> Callable[[EvidenceContext], SignatureCheck]:
    """Decorate *check* so that, if the load grew, it sees only calls outside of intervals busier than the baseline."""

    @wraps(check)
    def check_normalised(context: EvidenceContext) -> SignatureCheck:
        """Return the check of all calls or, when load has grown, of those outside of busy intervals."""
        busy = _is_busy(context)
        if busy is None:
            return check(context)
        calls = context.calls
        quiet = replace(calls, entries=calls.entries.filter(~busy), exits=calls.exits.filter(~busy))
        found = check(replace(context, calls=quiet))
        if found.passed:
            return found
        words = f"{_growth(context):.1f} times as many requests as before reach {context.root}"
        return replace(found, sentence=f"{words}; when no more did than then, {found.sentence}")

    return check_normalised


def _growth(context: EvidenceContext) -> float:
    """Return the rate of requests to the root in the abnormal window over that of the normal one; 1 when that had none."""
    requests = dict(context.own.group_by("period").agg(pl.col("trace").n_unique()).iter_rows())
    before, now = (requests.get(p, 0) / context.calls.seconds(p) for p in PERIODS)
    return now / before if before else 1.0


def _is_busy(context: EvidenceContext) -> pl.Expr | None:
    """Return a polars filter for calls that began in a busy interval of the abnormal window; None if load did not grow.

    A busy interval has more requests than any of the normal window, and they keep the root busy for more than *idle* of
    it: the wait for one server is idle / (1 - idle) of the time that it serves (M/M/1), a ninth of it by default.
    """
    calls, own, limits = context.calls, context.own, context.thresholds.pace
    if _growth(context) < limits.grew:
        return None
    rates = {}
    for period in PERIODS:
        came = own.filter(pl.col("period") == period).select("trace", moment=moment_of(calls, period, limits)).unique()
        length_s = _period_seconds(calls, period) / _count_intervals(calls, period, limits)
        rates[period] = came.group_by("moment").agg(rate=pl.len() / length_s)
    usual = rates["normal"].get_column("rate").max()
    before = own.filter(pl.col("period") == "normal")
    work_s = float(before.get_column("own_ms").sum()) / 1e3 / max(before.get_column("trace").n_unique(), 1)
    crowded = (pl.col("rate") > usual) & (pl.col("rate") * work_s > limits.idle)
    busy = rates["abnormal"].filter(crowded).get_column("moment")
    return (
        (pl.col("period") == "abnormal") & moment_of(calls, "abnormal", limits).is_in(busy.implode())
        if busy.len()
        else None
    )


def _count_intervals(calls: Calls, period: str, limits: LoadThresholds) -> int:
    """Return the number of intervals of about limits.moment_s seconds in *period*, at least 1."""
    return max(int(_period_seconds(calls, period) / limits.moment_s), 1)


def _period_seconds(calls: Calls, period: str) -> float:
    """Return the length of *period* (normal or abnormal) in seconds, gaps without spans included."""
    return max((calls.end_ns[period] - calls.start_ns[period]) / NANO, 1.0)


def moment_of(calls: Calls, period: str, limits: LoadThresholds) -> pl.Expr:
    """Return the expression for the number, from 0, of the interval of *period* in which a row's call began.

    It reads the column time_ns; all intervals of a period have the same length.
    """
    count, start_ns = _count_intervals(calls, period, limits), calls.start_ns[period]
    length_ns = max(calls.end_ns[period] - start_ns, NANO)
    # In whole numbers: in floats a call on the first nanosecond of a moment may be in the one before.
    width_ns = -(-length_ns // count)
    return ((pl.col("time_ns") - start_ns) // width_ns).clip(0, count - 1).cast(pl.Int32)
