"""The baseline of each operation: calibrated on the first half of the normal window, tested on the second (E.2)."""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from opsassay.annotation.evidence.states import flag_windows, windows
from opsassay.annotation.evidence.thresholds import Thresholds
from opsassay.core.schema.incident import Window


@dataclass(frozen=True, eq=False)
class OperationBaseline:
    """Statistics of each node in the normal window, and the false-alarm rate in its second half.

    *nodes*: the columns of `describe`, and *pauses* (True: windows without a call are normal for the node). *limit*:
    the *false_alarm_rate* (a share of windows, None if none was tested) above which the baseline is unusable.
    """

    nodes: pl.DataFrame
    false_alarm_rate: float | None
    limit: float

    @property
    def drifted(self) -> bool:
        """Whether *false_alarm_rate* is above *limit*: the normal window was not stable. False when the rate is None."""
        return self.false_alarm_rate is not None and self.false_alarm_rate > self.limit


def calibrate(entries: pl.DataFrame, start_ns: int, end_ns: int, thresholds: Thresholds) -> OperationBaseline:
    """Return the baseline of each operation from the first half of the normal window, and false alarms in the second.

    *entries* are calls in the normal window [*start_ns*, *end_ns*), ns of UTC, with the columns node, time_ns,
    duration_ms and failed. false_alarm_rate is the share of windows of the second half that are slow, erroring or
    missing by `flag_windows` (OpenRCA 2.0, E.2), None when no operation has enough calls for a single window.
    """
    middle = (start_ns + end_ns) // 2
    first = entries.filter(pl.col("time_ns") < middle)
    nodes = _with_pauses(describe(first, max((end_ns - start_ns) / 1e9, 1.0) / 2), first, start_ns, middle)
    tried = flag_windows(windows(entries.filter(pl.col("time_ns") >= middle), nodes, middle, end_ns), thresholds)
    raised = (
        tried.select((pl.col("slow") | pl.col("erroring") | pl.col("missing")).mean()).item() if tried.height else None
    )
    return OperationBaseline(nodes=nodes, false_alarm_rate=raised, limit=thresholds.drift)


def drift_objection(spans: pl.DataFrame, window: Window, thresholds: Thresholds | None = None) -> str:
    """Return a phrase that says how unlike the two halves of the normal *window* are; '' when they are alike.

    *spans* have the columns of a datapack's table traces. The calls are the spans of kind Server.
    """
    begun = pl.col("time").cast(pl.Int64)
    entries = spans.filter(
        (pl.col("attr.span_kind") == "Server") & begun.is_between(window.start_ns, window.end_ns, closed="left")
    ).select(
        node=pl.col("service_name") + "::" + pl.col("span_name"),
        time_ns=begun,
        duration_ms=pl.col("duration") / 1e6,
        failed=(pl.col("attr.status_code") == "Error").fill_null(value=False),
    )
    baseline = calibrate(entries, window.start_ns, window.end_ns, thresholds or Thresholds())
    if not baseline.drifted:
        return ""
    return f"in its second half {baseline.false_alarm_rate:.0%} of the operations' windows were unlike the first half"


MINIMUM_WINDOWS = 5
"""An operation with fewer windows in its calibration always counts as one that pauses."""


def _with_pauses(nodes: pl.DataFrame, entries: pl.DataFrame, start_ns: int, end_ns: int) -> pl.DataFrame:
    """Return *nodes* plus *pauses*: whether the node had a window in [*start_ns*, *end_ns*) without any of its calls."""
    counted = windows(entries, nodes, start_ns, end_ns).group_by("node")
    steady = counted.agg(pauses=(pl.col("now") == 0).any() | (pl.len() < MINIMUM_WINDOWS))
    return nodes.join(steady, on="node", how="left").with_columns(pl.col("pauses").fill_null(value=True))


def describe(entries: pl.DataFrame, seconds: float) -> pl.DataFrame:
    """Return the statistics of each node's calls over *seconds* of wall clock.

    Columns: node, n (calls), mean_ms, sd_ms (ddof 1, 0 for one call), log_mean and log_sd (of ln of the duration in ms,
    at least 0.001), failed_share in [0, 1], rate_per_s = n / *seconds*.
    """
    logged = pl.col("duration_ms").clip(lower_bound=0.001).log()
    return (
        entries.group_by("node")
        .agg(
            n=pl.len(),
            mean_ms=pl.col("duration_ms").mean(),
            sd_ms=pl.col("duration_ms").std().fill_null(0.0),
            log_mean=logged.mean(),
            log_sd=logged.std().fill_null(0.0),
            failed_share=pl.col("failed").mean(),
            rate_per_s=pl.len() / seconds,
        )
        .sort("node")
    )
