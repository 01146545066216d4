"""Added time: how much longer calls take than in the baseline, each compared with calls of the same shape."""

from __future__ import annotations

import operator
from dataclasses import replace

import polars as pl

from opsassay.annotation.reading.calls import Calls

MINIMUM_MATCHED = 3
"""A group with fewer calls in either window has too few to estimate its variance."""

UNKNOWN_SPREAD = 0.25
"""Variance of the logarithm of a call's time where too few calls show it: a factor of 1.6 either way is usual."""

LOG_FLOOR_MS = 0.1
"""Shorter times are all equal to the logarithm: they are clock jitter."""

COVERAGE = 0.5
"""Groups in which a smaller share of calls has a counterpart of the same shape may be compared as a whole."""


def added_time(
    frame: pl.DataFrame,
    value: str,
    keys: list[str],
    strata: list[str],
    *,
    unmatched_too: bool = False,
    small_groups_too: bool = False,
) -> pl.DataFrame:
    """Return per group of *keys* how much the mean of *value* (ms) rose: n, n_before, before_ms, added_ms, z and error.

    *frame* has a column `period`. Rows are compared within equal *strata* and then averaged with the weights of the
    abnormal window, so that a change in the mix of requests does not count as slowness. With *unmatched_too*, groups of
    which less than COVERAGE has a counterpart are compared without strata, since a fault may change every shape. With
    *small_groups_too*, groups of less than MINIMUM_MATCHED calls are compared too, with UNKNOWN_SPREAD.
    Over the strata g of one group, with n_g calls now and n0_g before, and w_g = n_g / sum n_g:

        added_ms = sum w_g (mean_g - mean0_g),  before_ms = sum w_g mean0_g,  z = sum w_g (log_g - log0_g) / error,
        error = sqrt(sum w_g^2 (s_g^2 / n_g + s0_g^2 / n0_g))

    *log_g* and s_g^2 are mean and variance (ddof 1) of ln max(value, LOG_FLOOR_MS); s_g^2 is 0.01 at least, with less
    than MINIMUM_MATCHED calls UNKNOWN_SPREAD at least. This is direct standardisation, with Welch's error per group.
    """
    matched = _added_latency(frame, value, keys, strata, small_groups_too=small_groups_too)
    if not unmatched_too:
        return matched
    all_now = (
        frame.lazy()
        .filter((pl.col("period") == "abnormal") & pl.col(value).is_not_null())
        .group_by(keys)
        .len("all_now")
        .collect()
    )
    enough = all_now.join(matched.select(*keys, "n"), on=keys, nulls_equal=True).filter(
        pl.col("n") >= COVERAGE * pl.col("all_now")
    )
    slim = frame.select("period", *keys, value)
    rest = _added_latency(
        slim.join(enough, on=keys, how="anti", nulls_equal=True), value, keys, [], small_groups_too=small_groups_too
    )
    return pl.concat([matched.join(enough, on=keys, how="semi", nulls_equal=True), rest]).sort(keys)


def _added_latency(
    frame: pl.DataFrame, value: str, group_by: list[str], strata: list[str], *, small_groups_too: bool
) -> pl.DataFrame:
    """Return per *group_by* the weighted means of *value* (ms) in both windows, compared within equal *strata*."""
    keys = [*group_by, *strata]
    logged = pl.col(value).clip(lower_bound=LOG_FLOOR_MS).log()
    cell = pl.fold(pl.lit(0, pl.UInt64), operator.xor, [pl.col(k).hash(i) for i, k in enumerate(["period", *keys])])
    each = (
        frame.lazy()
        .filter(pl.col(value).is_not_null())
        .select("period", *keys, value, cell=cell)
        .group_by("cell")  # one number groups several times faster than many names
    )
    first = pl.col("period", *keys).first()
    logs = {"log": logged.mean(), "variance": logged.var().fill_null(0.0)}
    stats = each.agg(first, n=pl.len(), mean=pl.col(value).mean(), **logs).drop("cell").collect()
    normal = stats.filter(pl.col("period") == "normal").drop("period")
    both = (
        stats.filter(pl.col("period") == "abnormal")
        .drop("period")
        .join(normal, on=keys, how="inner", suffix="_before", nulls_equal=True)
        .filter(pl.lit(small_groups_too) | ((pl.col("n") >= MINIMUM_MATCHED) & (pl.col("n_before") >= MINIMUM_MATCHED)))
        .sort(keys)
    )
    weight = pl.col("n") / pl.col("n").sum()
    spread, spread_before = (
        pl.max_horizontal(
            f"variance{side}", pl.when(pl.col(f"n{side}") < MINIMUM_MATCHED).then(UNKNOWN_SPREAD).otherwise(0.01)
        )
        / pl.col(f"n{side}")
        for side in ("", "_before")
    )
    return (
        both.group_by(group_by)
        .agg(
            n=pl.col("n").sum(),
            n_before=pl.col("n_before").sum(),
            before_ms=(weight * pl.col("mean_before")).sum(),
            added_ms=(weight * (pl.col("mean") - pl.col("mean_before"))).sum(),
            shift=(weight * (pl.col("log") - pl.col("log_before"))).sum(),
            variance=(weight**2 * (spread + spread_before)).sum(),
        )
        .with_columns(z=pl.col("shift") / pl.col("variance").sqrt(), error=pl.col("variance").sqrt())
        .drop("shift", "variance")
        .sort(group_by)
    )


def since(calls: Calls, start_ns: int | None) -> Calls:
    """Return *calls* without calls of the abnormal window that ended before *start_ns* (ns of UTC), the fault's start.

    A call that its caller made later is kept: the clock of the callee was wrong.
    Returns *calls* unchanged where *start_ns* is None or lies outside of that window.
    """
    if start_ns is None or not calls.start_ns["abnormal"] < start_ns < calls.end_ns["abnormal"]:
        return calls
    keep = (pl.col("period") == "normal") | (pl.col("end_ns") >= start_ns)
    asked = calls.exits.filter(keep).select(entry="callee_entry", asked_ns="time_ns").drop_nulls().unique("entry")
    answered = calls.entries.join(asked, on="entry", how="left", maintain_order="left")
    entries = answered.filter(keep | (pl.col("end_ns") < pl.col("asked_ns")))  # before it was asked: a wrong clock
    early = entries.filter(~keep)["entry"].implode()
    return replace(
        calls,
        entries=entries.drop("asked_ns"),
        exits=calls.exits.filter(keep | pl.col("caller_entry").is_in(early)),
        bare=calls.bare.filter(keep),
        start_ns={**calls.start_ns, "abnormal": start_ns},
    )
