"""Work that came is no delay: where users send more, time is compared in moments no busier than there were before."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import wraps

import polars as pl

from opsassay.causes.evidence.scene import Scene, SignatureCheck
from opsassay.causes.reading.calls import Calls

GREW = 1.5
"""How many times as many requests as before must reach the root before its time is compared like with like."""

MOMENT_S = 5.0
"""How long a moment is at least: a queue outlives the second that filled it."""

PERIODS = ("normal", "abnormal")


def at_usual_pace(check: Callable[[Scene], SignatureCheck]) -> Callable[[Scene], SignatureCheck]:
    """Have *check* see no moment in which more requests reach the root than in any moment before, when they grew.

    Requests are counted as traces: who calls again because it was failed does not send more work.
    """

    @wraps(check)
    def checked(scene: Scene) -> SignatureCheck:
        requests = scene.own.select("period", "trace", "time_ns")
        served = {p: requests.filter(pl.col("period") == p).get_column("trace").n_unique() for p in PERIODS}
        before, now = (served[p] / scene.calls.seconds(p) for p in PERIODS)
        if now < GREW * before or not before:
            return check(scene)
        found = check(replace(scene, calls=_without_busy(scene.calls, requests)))
        if found.passed:
            return found
        words = f"{now / before:.1f} times as many requests as before reach {scene.root}; when no more did than then, "
        return replace(found, sentence=words + found.sentence)

    return checked


def _without_busy(calls: Calls, requests: pl.DataFrame) -> Calls:
    """Return *calls* without those of the abnormal window that began when *requests* came faster than they ever had."""
    rates = {}
    for period in PERIODS:
        came = requests.filter(pl.col("period") == period).select("trace", moment=_moment(calls, period)).unique()
        length_s = calls.seconds(period) / _moments(calls, period)
        rates[period] = came.group_by("moment").agg(rate=pl.len() / length_s)
    usual = rates["normal"].get_column("rate").max()
    busy = rates["abnormal"].filter(pl.col("rate") > usual).get_column("moment")
    kept = (pl.col("period") == "normal") | ~_moment(calls, "abnormal").is_in(busy.implode())
    return replace(calls, entries=calls.entries.filter(kept), exits=calls.exits.filter(kept))


def _moments(calls: Calls, period: str) -> int:
    """Return into how many moments of equal length *period* is parted."""
    return max(int(calls.seconds(period) / MOMENT_S), 1)


def _moment(calls: Calls, period: str) -> pl.Expr:
    """Return in which moment of *period* a call began."""
    count = _moments(calls, period)
    passed = (pl.col("time_ns") - calls.start_ns[period]) / 1e9 / calls.seconds(period)
    return (passed * count).floor().clip(0, count - 1).cast(pl.Int32)
