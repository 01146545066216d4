"""States per node: windows of 3 s, widened until a window holds enough calls, and what is wrong in each of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

import numpy as np
import polars as pl

from opsassay.annotation.evidence.detectors import Severity, adaptive_multiplier, percentile_severity
from opsassay.annotation.evidence.thresholds import Thresholds
from opsassay.annotation.reading.calls import Calls
from opsassay.annotation.reading.tails import beta_binomial_at_least

SPAN_WINDOW_S = 3.0
NANO = 1_000_000_000
TAILS = (("p90", 0.9), ("p99", 0.99), ("p999", 0.999))


class OperationState(StrEnum):
    """The coarse states of a node; the reasons (lat, err, ...) are the paper's finer names."""

    HEALTHY = "healthy"
    SLOW = "slow"
    ERRORING = "erroring"
    SILENT = "silent"
    MISSING = "missing"
    DEGRADED = "degraded"
    RESTARTING = "restarting"
    UNAVAILABLE = "unavailable"
    UNKNOWN = "unknown"


STATE_OF_REASON = {
    "lat": OperationState.SLOW,
    "p99": OperationState.SLOW,
    "err": OperationState.ERRORING,
    "timeout": OperationState.ERRORING,
    "reset": OperationState.ERRORING,
    "log_err": OperationState.ERRORING,
    "silent": OperationState.SILENT,
    "missing": OperationState.MISSING,
    "cpu": OperationState.DEGRADED,
    "mem": OperationState.DEGRADED,
    "inj_affected": OperationState.DEGRADED,
    "restart": OperationState.RESTARTING,
    "unavail": OperationState.UNAVAILABLE,
}


NEEDED = (
    "period", "node", "time_ns", "duration_ms", "felt_ms", "failed", "felt_failed", "logged_error",
)  # fmt: skip
"""The columns of `Calls.entries` from which `node_states` derives states."""


@dataclass(frozen=True)
class NodeState:
    """A node's deviations: reason (lat, p99, err, timeout, missing, log_err, ...) -> onset, ns of UTC wall clock."""

    onsets: dict[str, int] = field(default_factory=dict)
    width_ns: int = int(SPAN_WINDOW_S * NANO)

    @property
    def reasons(self) -> frozenset[str]:
        """The paper's names of the deviations, such as lat, err, missing; empty when healthy."""
        return frozenset(self.onsets)

    @property
    def states(self) -> tuple[str, ...]:
        """OpsAssay's coarser states of this node, sorted; the healthy state when nothing deviates."""
        return tuple(sorted({STATE_OF_REASON[r].value for r in self.onsets})) or (OperationState.HEALTHY.value,)


def windows(entries: pl.DataFrame, nodes: pl.DataFrame, start_ns: int, end_ns: int, samples: int = 5) -> pl.DataFrame:
    """Return one row per node and time window, sorted: the columns of *nodes*, and the statistics of the window's calls.

    *nodes* are those of `describe`. Added are width_ns, expected (calls by the baseline's rate), window (from 0 on),
    from_ns (its start), now (calls in it), mean_now_ms, log_mean_now (of ln of the duration in ms, at least 0.001),
    failed (calls), first_failed_ns and first_ns (start of the first failed call, and of the first call); null where a
    window has no call, but for now and failed. The width is 3 s * 2^m with the least m >= 0 at which rate_per_s fills a
    window with *samples* calls; a window that would reach beyond *end_ns* is left out, and so are nodes without a
    baseline of that many calls.
    """
    steps = ((pl.lit(samples) / (pl.col("rate_per_s") * SPAN_WINDOW_S)).log(2).ceil().clip(lower_bound=0)).cast(
        pl.Int64
    )
    known = nodes.filter(pl.col("n") >= samples).with_columns(
        width_ns=(pl.lit(SPAN_WINDOW_S * NANO) * pl.lit(2.0).pow(steps)).cast(pl.Int64)
    )
    known = known.with_columns(expected=pl.col("rate_per_s") * pl.col("width_ns") / NANO)
    grid = known.with_columns(window=pl.int_ranges(0, pl.lit(end_ns - start_ns) // pl.col("width_ns")))
    grid = grid.explode("window", empty_as_null=True, keep_nulls=False).drop_nulls("window")
    # One number groups faster than a name and a number: which of *known*, and the window in it.
    known = known.with_row_index("of")
    cell = pl.col("of").cast(pl.Int64) * 2**32 + (pl.col("time_ns") - start_ns) // pl.col("width_ns")
    seen = (
        entries.lazy()
        .filter((pl.col("time_ns") >= start_ns) & (pl.col("time_ns") < end_ns))
        .join(known.lazy().select("node", "width_ns", "of"), on="node", how="inner")
        .group_by(cell=cell)
        .agg(
            pl.col("node").first(),
            now=pl.len(),
            mean_now_ms=pl.col("duration_ms").mean(),
            log_mean_now=pl.col("duration_ms").clip(lower_bound=0.001).log().mean(),
            failed=pl.col("failed").sum(),
            first_failed_ns=pl.col("time_ns").filter("failed").min(),
            first_ns=pl.col("time_ns").min(),
        )
        .select(pl.exclude("cell"), window=pl.col("cell") % 2**32)
        .collect()
    )
    return (
        grid.join(seen, on=["node", "window"], how="left")
        .with_columns(
            pl.col("now", "failed").fill_null(0), from_ns=pl.lit(start_ns) + pl.col("window") * pl.col("width_ns")
        )
        .sort("node", "window")
    )


def flag_windows(frame: pl.DataFrame, thresholds: Thresholds) -> pl.DataFrame:
    """Return *frame*, the rows of `windows`, with the columns *slow*, *erroring* and *missing* added.

    With the numbers of *thresholds* and tau as in `adaptive_multiplier`, of the baseline's mean and sd / mean:
    - slow: now >= 3, mean_now_ms - mean_ms > minimum_added_ms, and either mean_now_ms > tau * mean_ms or both z >
      z_critical and mean_now_ms > minimum_ratio * mean_ms, where z = (log_mean_now - log_mean) sqrt(now) / max(log_sd,
      0.1)
    - erroring: failed >= minimum_errors and failed / now > error_share + p + z_critical sqrt(p (1 - p) / now), p =
      failed_share
    - missing: now = 0, expected >= expected_when_missing, and the node does not pause
    """
    t = thresholds
    mean_ms = frame.get_column("mean_ms").to_numpy()
    cv = frame.get_column("sd_ms").to_numpy() / np.maximum(mean_ms, 1e-6)
    tau = adaptive_multiplier(mean_ms / 1e3, cv, floor=t.minimum_ratio, constants=t.adaptive)
    z = (pl.col("log_mean_now") - pl.col("log_mean")) * pl.col("now").sqrt() / pl.max_horizontal("log_sd", pl.lit(0.1))
    enough = pl.col("now") >= 3
    added = pl.col("mean_now_ms") - pl.col("mean_ms")
    clear = (z > t.z_critical) & (pl.col("mean_now_ms") > t.minimum_ratio * pl.col("mean_ms"))
    far = pl.col("mean_now_ms") > pl.col("tau") * pl.col("mean_ms")
    share = pl.col("failed") / pl.max_horizontal("now", pl.lit(1))
    noise = (pl.col("failed_share") * (1 - pl.col("failed_share")) / pl.max_horizontal("now", pl.lit(1))).sqrt()
    return frame.with_columns(tau=pl.Series(tau)).with_columns(
        slow=(enough & (added > t.minimum_added_ms) & (clear | far)).fill_null(value=False),
        erroring=(pl.col("failed") >= t.minimum_errors)
        & (share > t.error_share + pl.col("failed_share") + t.z_critical * noise),
        missing=(pl.col("now") == 0) & ~pl.col("pauses") & (pl.col("expected") >= t.expected_when_missing),
    )


def node_states(
    entries: pl.DataFrame,
    normal: pl.DataFrame,
    nodes: pl.DataFrame,
    slower: pl.DataFrame,
    span: tuple[int, int],
    thresholds: Thresholds,
) -> dict[str, NodeState]:
    """Return the state of every node that deviates from its baseline.

    *entries* are those of the abnormal window *span* (ns), *normal* all of the normal window, *nodes* the calibrated
    baseline, *slower* the added time at each node as callers feel it. A node is slow or missing by its windows or by
    the whole span, erroring by `beyond_chance`. Onsets are ns of UTC: that of a first call, for missing the start of
    the window.
    """
    flagged = flag_windows(windows(entries, nodes, *span, samples=thresholds.minimum_samples), thresholds)
    onsets: dict[str, dict[str, int]] = {}
    widths = dict(flagged.select("node", "width_ns").unique().iter_rows())
    for node, total, slow, first, missing, first_missing in (
        flagged.group_by("node")
        .agg(
            pl.len(),
            pl.col("slow").sum(),
            pl.col("first_ns").filter("slow").min().alias("first"),
            pl.col("missing").sum(),
            pl.col("from_ns").filter("missing").min().alias("first_missing"),
        )
        .iter_rows()
    ):
        if slow >= min(2, total) and slow:
            onsets.setdefault(node, {})["lat"] = first
        if missing:
            onsets.setdefault(node, {})["missing"] = first_missing
    for node, first in _slow_overall(entries, slower, thresholds).items():
        onsets.setdefault(node, {}).setdefault("lat", first)
    erring = beyond_percentiles if thresholds.error_counts == "percentile" else beyond_chance
    for reason, column in (("err", "felt_failed"), ("log_err", "logged_error")):
        for node, first in erring(entries, normal, column, thresholds).items():
            onsets.setdefault(node, {})[reason] = first
    for node, first in _critical_tails(entries, normal, thresholds).items():
        onsets.setdefault(node, {}).setdefault("p99", first)
    fallback = span[1] - span[0]  # judged over the whole window, so its onset is known no better
    return {node: NodeState(dict(sorted(o.items())), widths.get(node, fallback)) for node, o in sorted(onsets.items())}


def timeouts(calls: Calls, thresholds: Thresholds) -> dict[str, int]:
    """Return node to the first time (ns of UTC), where callers' waits for a callee time out more often than by chance."""
    if not calls.status_known:
        return {}
    worked_on = (pl.col("gap_ms") < pl.col("lead_ms")).fill_null(value=False)
    gave_up = calls.exits.filter(pl.col("failed") & worked_on & ~pl.col("asynchronous"))
    late = gave_up.select(entry="caller_entry").drop_nulls().unique().with_columns(timeout=pl.lit(value=True))
    entries = calls.entries.join(late, on="entry", how="left").with_columns(
        timeout=pl.col("timeout").fill_null(value=False) & pl.col("failed")
    )
    now, normal = (entries.filter(pl.col("period") == p) for p in ("abnormal", "normal"))
    return beyond_chance(now, normal, "timeout", thresholds) if now.height else {}


def _slow_overall(entries: pl.DataFrame, slower: pl.DataFrame, thresholds: Thresholds) -> dict[str, int]:
    """Return node to onset (ns of UTC) for nodes that are slow over the whole abnormal window, as their callers see it."""
    t = thresholds
    table = slower.filter(
        (pl.col("z") > t.z_critical)
        & (pl.col("added_ms") > t.minimum_added_ms)
        & (pl.col("added_ms") > (t.minimum_ratio - 1) * pl.col("before_ms"))
    )
    slow = entries.join(table.select("node", "before_ms"), on="node").filter(
        pl.col("felt_ms") > pl.max_horizontal(t.minimum_ratio * pl.col("before_ms"), t.minimum_added_ms)
    )
    return dict(slow.group_by("node").agg(pl.col("time_ns").min()).sort("node").iter_rows())


def beyond_chance(
    entries: pl.DataFrame, normal: pl.DataFrame, column: str, thresholds: Thresholds, group: str = "node"
) -> dict[str, int]:
    """Return group to the first time (ns of UTC), for groups where *column* is true more often than *normal* predicts.

    The forecast is beta-binomial: the group's own baseline plus a prior of *prior_calls* calls at the rate of the whole
    system, so that a rare operation of a system that never failed needs few failures to be significant. With hits0 of
    n0 before and pooled = (hits of all + 0.5) / (calls of all + 1), a group counts when P(X >= hits) < *chance* for X
    of n draws with probability Beta(hits0 + prior_calls * pooled, n0 - hits0 + prior_calls * (1 - pooled)), and hits >=
    minimum_errors.
    """
    now = entries.group_by(group).agg(
        n=pl.len(), hits=pl.col(column).sum().cast(pl.Int64), first=pl.col("time_ns").filter(column).min()
    )
    before = normal.group_by(group).agg(n_before=pl.len(), hits_before=pl.col(column).sum().cast(pl.Int64))
    both = now.join(before, on=group, how="left").filter(pl.col("hits") >= thresholds.minimum_errors)
    both = both.with_columns(pl.col("n_before", "hits_before").fill_null(0)).sort(group)
    n, hits, n0, hits0 = (both.get_column(c).to_numpy().astype(float) for c in ("n", "hits", "n_before", "hits_before"))
    pooled = (float(normal.get_column(column).sum()) + 0.5) / (normal.height + 1.0)
    prior = thresholds.prior_calls
    chance = beta_binomial_at_least(hits, n, hits0 + prior * pooled, n0 - hits0 + prior * (1 - pooled))
    keep = chance < thresholds.chance
    return {g: f for g, f, k in zip(both.get_column(group), both.get_column("first"), keep, strict=True) if k}


def beyond_percentiles(
    entries: pl.DataFrame, normal: pl.DataFrame, column: str, thresholds: Thresholds
) -> dict[str, int]:
    """Return node to the first time (ns) where more rows per window have *column* than the baseline's percentiles.

    The paper's detector of error counts (D.8), any severity: above P90 or 1.2 x P99 of the counts of the baseline's
    windows of SPAN_WINDOW_S in which the node was called.
    """
    width = int(SPAN_WINDOW_S * NANO)
    count, window = pl.col(column).sum().cast(pl.Int64), pl.col("time_ns") // width
    tails = (pl.col("count").quantile(share, "linear").alias(name) for name, share in TAILS)
    usual = normal.group_by("node", window).agg(count=count).group_by("node").agg(*tails)
    first = pl.col("time_ns").filter(column).min()
    now = entries.group_by("node", window).agg(count=count, first=first).filter(pl.col("count") > 0)
    both = now.join(usual, on="node", how="left").with_columns(pl.col("p90", "p99", "p999").fill_null(0.0))
    count_now, p90, p99, p999 = (both.get_column(name).to_numpy() for name in ("count", "p90", "p99", "p999"))
    level = percentile_severity(count_now, p90, p99, p999, thresholds.tail_factors)
    flagged = both.filter(pl.Series(level > Severity.NONE))
    return dict(flagged.group_by("node").agg(pl.col("first").min()).sort("node").iter_rows())


def _critical_tails(entries: pl.DataFrame, normal: pl.DataFrame, thresholds: Thresholds) -> dict[str, int]:
    """Return node to onset (ns of UTC) for nodes whose P99 latency is critical; both windows need enough calls."""
    duration = pl.col("duration_ms")
    tails = {name: duration.quantile(share) for name, share in TAILS}
    before = normal.group_by("node").agg(n=pl.len(), **tails).filter(pl.col("n") >= thresholds.tail_samples)
    now = (
        entries.join(before, on="node", how="inner")
        .group_by("node")
        .agg(
            pl.col(*tails).first(),
            n_now=pl.len(),
            p99_now=duration.quantile(0.99),
            first=pl.col("time_ns").filter(duration > thresholds.tail_factors[2] * pl.col("p99")).min(),
        )
        .filter(pl.col("n_now") >= thresholds.tail_samples)
        .sort("node")
    )
    value, p90, p99, p999 = (now.get_column(c).to_numpy() for c in ("p99_now", *tails))
    factors = thresholds.tail_factors
    level = percentile_severity(value, p90, p99, p999, factors)
    far = (pl.col("p99_now") > factors[2] * pl.col("p99")) & (
        pl.col("p99_now") - pl.col("p99") > thresholds.minimum_added_ms
    )
    return dict(now.filter(pl.Series(level == Severity.CRITICAL) & far).select("node", "first").iter_rows())
