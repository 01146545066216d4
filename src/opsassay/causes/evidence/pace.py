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
        busy = busy_moments(scene.calls, scene.own)
        if busy is None:
            return check(scene)
        calls = scene.calls
        quiet = replace(calls, entries=calls.entries.filter(~busy), exits=calls.exits.filter(~busy))
        found = check(replace(scene, calls=quiet))
        if found.passed:
            return found
        words = f"more requests than before reach {scene.root}; in moments when no more did than ever before, "
        return replace(found, sentence=words + found.sentence)

    return checked


def busy_moments(calls: Calls, served: pl.DataFrame) -> pl.Expr | None:
    """Return which calls began in a moment of the abnormal window in which more requests came than in any one before.

    *served*: entries of the service that is asked about. None when its requests did not grow by GREW.
    """
    requests = served.select("period", "trace", "time_ns")
    traces = {p: requests.filter(pl.col("period") == p).get_column("trace").n_unique() for p in PERIODS}
    before, now = (traces[p] / calls.seconds(p) for p in PERIODS)
    if now < GREW * before or not before:
        return None
    rates = {}
    for period in PERIODS:
        came = requests.filter(pl.col("period") == period).select("trace", moment=_moment(calls, period)).unique()
        length_s = calls.seconds(period) / _moments(calls, period)
        rates[period] = came.group_by("moment").agg(rate=pl.len() / length_s)
    usual = rates["normal"].get_column("rate").max()
    busy = rates["abnormal"].filter(pl.col("rate") > usual).get_column("moment")
    return (pl.col("period") == "abnormal") & _moment(calls, "abnormal").is_in(busy.implode())


def _moments(calls: Calls, period: str) -> int:
    """Return into how many moments of equal length *period* is parted."""
    return max(int(calls.seconds(period) / MOMENT_S), 1)


def _moment(calls: Calls, period: str) -> pl.Expr:
    """Return in which moment of *period* a call began."""
    count = _moments(calls, period)
    passed = (pl.col("time_ns") - calls.start_ns[period]) / 1e9 / calls.seconds(period)
    return (passed * count).floor().clip(0, count - 1).cast(pl.Int32)
