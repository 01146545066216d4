"""Signals per service and time bin, the input of methods, computed from the tables with polars."""

from __future__ import annotations

import polars as pl

from opsassay.core.schema.incident import Window
from opsassay.telemetry.datapack import Datapack
from opsassay.telemetry.schema import PERIODS
from opsassay.telemetry.severity import ERROR_LEVELS

COUNTS = ("spans_per_s", "failed_spans_per_s", "error_logs_per_s")
"""Signals that are 0, not missing, where no row was recorded."""

NANO = 1_000_000_000
"""Nanoseconds in a second."""

METRIC = "metric "
"""Prefix of the name of a signal that is a recorded gauge."""


def failed_span() -> pl.Expr:
    """Return the boolean expression that a span failed: status Error, or an HTTP status of 500 and above."""
    is_server_error = pl.col("attr.http.response.status_code").fill_null(0) >= 500
    return (pl.col("attr.status_code").fill_null("") == "Error") | is_server_error


def stable_mean(values: pl.Expr) -> pl.Expr:
    """Return the mean of *values* per group, summed in sorted order, so that threads do not change its last bits."""
    return values.sort().mean()


def seconds(view: Datapack, period: str) -> float:
    """Return the length of *period* ("normal" or "abnormal") of *view* in seconds."""
    return view.incident.normal.seconds if period == "normal" else view.incident.abnormal.seconds


def bin_width_ns(view: Datapack, at_most_s: float = 5.0, at_least_bins: int = 10) -> int:
    """Return the width of a time bin in ns: *at_most_s*, or less so that the normal period has *at_least_bins*."""
    normal = view.incident.normal
    return max(1, min(round(at_most_s * NANO), (normal.end_ns - normal.start_ns) // at_least_bins))


def bins_of(window: Window, width_ns: int, *, partial: bool = False) -> int:
    """Return how many bins of *width_ns* fit *window*, at least 1; *partial* counts a last one that exceeds it."""
    length_ns = window.end_ns - window.start_ns
    return max(1, -(-length_ns // width_ns) if partial else length_ns // width_ns)


def binned_signals(view: Datapack, width_ns: int, *, golden: bool = True) -> pl.DataFrame:
    """Return one row per period, service, signal and bin: columns period, service, signal, bin, value.

    Signals are COUNTS (0 where a bin has no row), latency_mean_ms and latency_p95_ms (absent there), and the mean of
    each gauge of the metrics table. A row is in the bin (time - start of the period) // *width_ns*. Only whole bins of a
    period count; services are those of `view.candidates()`. *golden* False is for recordings without spans: gauges only,
    and the last bin counts even if the period does not fill it.
    """
    return pl.concat([_signals_of_period(view, period, width_ns, golden=golden) for period in PERIODS])


def _signals_of_period(view: Datapack, period: str, width_ns: int, *, golden: bool) -> pl.DataFrame:
    """Return rows (period, service, signal, bin, value) of gauges, with *golden* also of traces and logs."""
    window = view.incident.normal if period == "normal" else view.incident.abnormal
    bins = bins_of(window, width_ns, partial=not golden)
    place = (pl.col("time").dt.epoch("ns") - window.start_ns) // width_ns
    width_s = width_ns / NANO
    services = view.candidates()

    def rows(modality: str) -> pl.LazyFrame:
        """Return the rows of candidate services that lie in a bin, with their bin."""
        frame = view.scan(period, modality).with_columns(bin=place).rename({"service_name": "service"})
        return frame.filter(pl.col("bin").is_between(0, bins - 1), pl.col("service").is_in(services))

    gauges = (
        rows("metrics")
        .filter(pl.col("value").is_finite())
        .group_by("service", "bin", signal=pl.lit(METRIC) + pl.col("metric"))
        .agg(value=stable_mean(pl.col("value")))
    )
    columns = ["service", "signal", "bin", pl.col("value").cast(pl.Float64)]
    parts = [gauges.select(columns)]
    if golden:
        parts.append(_golden_signals(rows("traces"), rows("logs"), services, bins, width_s).select(columns))
    return pl.concat(parts).drop_nulls("value").select(pl.lit(period).alias("period"), pl.all()).collect()


def _golden_signals(
    traces: pl.LazyFrame, logs: pl.LazyFrame, services: list[str], bins: int, width_s: float
) -> pl.LazyFrame:
    """Return rates, latencies and error logs per service and bin of *width_s* s; 0 without rows, latencies null."""
    duration_ms = pl.col("duration") / 1e6
    of_traces = traces.group_by("service", "bin").agg(
        spans_per_s=pl.len() / width_s,
        failed_spans_per_s=failed_span().sum() / width_s,
        latency_mean_ms=stable_mean(duration_ms),
        latency_p95_ms=duration_ms.quantile(0.95, "linear"),
    )
    is_error = pl.col("level").is_in(ERROR_LEVELS)
    of_logs = logs.group_by("service", "bin").agg(error_logs_per_s=is_error.sum() / width_s)
    grid = pl.LazyFrame({"service": services}, schema={"service": pl.String}).join(
        pl.LazyFrame({"bin": range(bins)}, schema={"bin": pl.Int64}), how="cross"
    )
    return (
        grid.join(of_traces, on=["service", "bin"], how="left")
        .join(of_logs, on=["service", "bin"], how="left")
        .with_columns(pl.col(COUNTS).cast(pl.Float64).fill_null(0.0))
        .unpivot(index=["service", "bin"], variable_name="signal", value_name="value")
    )
