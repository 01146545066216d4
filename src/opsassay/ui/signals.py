"""Golden signals and call edges of an incident, computed from its spans in polars."""

from __future__ import annotations

import math
from collections.abc import Sequence

import polars as pl

from opsassay.core.schema.base import Noun
from opsassay.core.schema.incident import Window

NS_PER_S = 1_000_000_000
SMALLEST_BUCKET_S, LARGEST_BUCKET_S = 2, 5
BUCKETS_AIMED_AT, BUCKETS_AT_MOST = 150, 600


class ServiceSignals(Noun):
    """The time series of one service, one value per bucket; None where the bucket has no request."""

    service: str
    requests_per_s: tuple[float, ...]
    error_share: tuple[float | None, ...]
    latency_p50_ms: tuple[float | None, ...]
    latency_p99_ms: tuple[float | None, ...]


class Signals(Noun):
    """Golden signals: all buckets of the normal window, then all of the abnormal one; *times_ns* are their starts, UTC.

    The order is the same for public data whose normal window is later.
    """

    bucket_s: int = LARGEST_BUCKET_S
    times_ns: tuple[int, ...] = ()
    services: tuple[ServiceSignals, ...] = ()


class CallEdge(Noun):
    """The number of calls from *caller* to *callee* in each window."""

    caller: str
    callee: str
    calls_normal: int
    calls_abnormal: int


class TopologyPayload(Noun):
    """Services, calls between them, and the *entry* service, which gets most requests from outside."""

    services: tuple[str, ...] = ()
    calls: tuple[CallEdge, ...] = ()
    entry: str | None = None


def linked_spans(traces: pl.LazyFrame, services: Sequence[str]) -> pl.DataFrame:
    """Return one row per span of *services* with the service of its parent; load generators are left out.

    *traces* has the datapack columns and ``period``. Columns of the result: period, service, parent_service (null without a
    parent in *services*), start_ns (i64), duration_ms (f64), failed (bool), is_request (bool). A request is a SERVER or
    CONSUMER span; in a recording without span kinds, a span without a parent in the same service.
    """
    schema = traces.collect_schema()
    kind = pl.col("attr.span_kind") if "attr.span_kind" in schema else pl.lit(None, pl.String)
    spans = traces.select(
        "period",
        "trace_id",
        "span_id",
        parent_span_id=pl.col("parent_span_id").fill_null(""),
        service=pl.col("service_name"),
        start_ns=_as_nanoseconds("time", schema),
        duration_ms=pl.col("duration").cast(pl.Float64) / 1e6,
        failed=_has_failed(schema),
        kind=kind.cast(pl.String).str.to_uppercase().str.strip_prefix("SPAN_KIND_"),
    ).filter(pl.col("service").is_in(list(services)))
    parents = spans.select("trace_id", parent_span_id="span_id", parent_service="service").unique(
        ["trace_id", "parent_span_id"], keep="any"
    )
    crosses = pl.col("parent_service").is_null() | (pl.col("parent_service") != pl.col("service"))
    known_kinds = pl.col("kind").is_in(["SERVER", "CONSUMER"])
    return (
        spans.join(parents, on=["trace_id", "parent_span_id"], how="left")
        .with_columns(is_request=pl.when(known_kinds.any()).then(known_kinds.fill_null(value=False)).otherwise(crosses))
        .drop("trace_id", "span_id", "parent_span_id", "kind")
        .collect()
    )


def topology(spans: pl.DataFrame, services: Sequence[str]) -> TopologyPayload:
    """Return the call graph over *services*: edges by parent and child spans of `linked_spans`."""
    calls = (
        spans.filter(pl.col("parent_service").is_not_null() & (pl.col("parent_service") != pl.col("service")))
        .group_by(caller="parent_service", callee="service")
        .agg(
            calls_normal=(pl.col("period") == "normal").sum().cast(pl.Int64),
            calls_abnormal=(pl.col("period") == "abnormal").sum().cast(pl.Int64),
        )
        .sort("caller", "callee")
    )
    from_outside = (
        spans.filter(pl.col("is_request") & pl.col("parent_service").is_null())
        .group_by("service")
        .agg(requests=pl.len())
        .sort(["requests", "service"], descending=[True, False])
    )
    return TopologyPayload(
        services=tuple(sorted(services)),
        calls=tuple(CallEdge(**row) for row in calls.to_dicts()),
        entry=from_outside.item(0, "service") if from_outside.height else None,
    )


def golden_signals(spans: pl.DataFrame, normal: Window, abnormal: Window) -> Signals:
    """Return rate, error share and latency of every service in buckets of 2 to 5 s (longer from 50 minutes on).

    *spans* come from `linked_spans`. A last bucket that the window does not fill is left out.
    """
    width_s = bucket_seconds(normal.seconds + abnormal.seconds)
    grid = pl.concat(
        [_bucket_starts("normal", normal, width_s), _bucket_starts("abnormal", abnormal, width_s)]
    ).with_row_index("place")
    requests = spans.filter("is_request")
    names = requests.select(pl.col("service").unique().sort())
    if not names.height or not grid.height:
        return Signals(bucket_s=width_s)
    window_start = pl.when(pl.col("period") == "normal").then(normal.start_ns).otherwise(abnormal.start_ns)
    measured = (
        requests.with_columns(bucket=(pl.col("start_ns") - window_start) // (width_s * NS_PER_S))
        .group_by("service", "period", "bucket")
        .agg(
            requests_per_s=pl.len() / width_s,
            error_share=pl.col("failed").mean(),
            latency_p50_ms=pl.col("duration_ms").quantile(0.5, "nearest"),
            latency_p99_ms=pl.col("duration_ms").quantile(0.99, "nearest"),
        )
    )
    series = (
        names.join(grid, how="cross")
        .join(measured, on=["service", "period", "bucket"], how="left")
        .with_columns(pl.col("requests_per_s").fill_null(0.0))
        .sort("service", "place")
        .group_by("service", maintain_order=True)
        .agg("requests_per_s", "error_share", "latency_p50_ms", "latency_p99_ms")
    )
    return Signals(
        bucket_s=width_s,
        times_ns=tuple(grid.get_column("bucket_start_ns").to_list()),
        services=tuple(ServiceSignals(**row) for row in series.to_dicts()),
    )


def bucket_seconds(total_s: float) -> int:
    """Return the bucket width in whole seconds for charts of *total_s* seconds."""
    bucket = min(max(math.ceil(total_s / BUCKETS_AIMED_AT), SMALLEST_BUCKET_S), LARGEST_BUCKET_S)
    return max(bucket, math.ceil(total_s / BUCKETS_AT_MOST))


def _bucket_starts(period: str, window: Window, width_s: int) -> pl.DataFrame:
    """Return number, period and start (ns) of each bucket of *width_s* seconds that fits *window* whole."""
    count = max(0, (window.end_ns - window.start_ns) // (width_s * NS_PER_S))
    return pl.select(bucket=pl.int_range(count, dtype=pl.Int64)).select(
        "bucket",
        period=pl.lit(period),
        bucket_start_ns=pl.col("bucket") * (width_s * NS_PER_S) + pl.lit(window.start_ns, pl.Int64),
    )


def _as_nanoseconds(column: str, schema: pl.Schema) -> pl.Expr:
    """Return the time *column* of a table with *schema* as an expression in ns since the epoch."""
    time = pl.col(column)
    return time.dt.timestamp("ns") if isinstance(schema[column], pl.Datetime) else time.cast(pl.Int64)


def _has_failed(schema: pl.Schema) -> pl.Expr:
    """Return the expression that a span has an error status, or an HTTP status from 500 on."""
    failed = pl.lit(value=False)
    if "attr.status_code" in schema:
        failed = failed | (pl.col("attr.status_code").str.to_uppercase().str.ends_with("ERROR"))
    if "attr.http.response.status_code" in schema:
        failed = failed | (pl.col("attr.http.response.status_code") >= 500)
    return failed.fill_null(value=False)
