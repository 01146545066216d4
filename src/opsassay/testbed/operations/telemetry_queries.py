"""The answers of the observability tools: pure functions from live telemetry's tables to texts of bounded length."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import polars as pl

from opsassay.core.errors import UserError
from opsassay.core.schema.incident import Alert
from opsassay.core.text import json_text
from opsassay.telemetry.severity import ERROR_LEVELS
from opsassay.testbed.operations.arguments import CallTopology, Metrics, SearchLogs, Summarise, Traces

Tables = Mapping[str, pl.DataFrame]

SERIES_LIMIT, POINTS_LIMIT, CHILDREN_LIMIT = 40, 12, 40


def tell_alerts(alerts: Iterable[Alert]) -> str:
    """Return one line of text for each of *alerts*."""
    lines = [f"- {alert.severity or 'alert'}: {alert.message} [{alert.signal}]" for alert in alerts]
    return "\n".join(lines) or "No alert fires."


def tell_metrics(tables: Tables, query: Metrics, now_ns: int) -> str:
    """Return as text last, least, greatest and recent values per pod of the metric of *query*; without one, all names."""
    points = pl.concat(
        [_select_recent(tables[name], query.since_s, now_ns) for name in ("metrics", "metrics_sum")],
        how="diagonal_relaxed",
    )
    if query.service is not None:
        points = points.filter(pl.col("service_name") == query.service)
    if query.metric is None:
        return "\n".join(points["metric"].unique().sort().to_list()) or "No metric has arrived."
    chosen = points.filter(pl.col("metric") == query.metric)
    if chosen.is_empty():
        return (
            f"No readings of {query.metric!r} in the last {query.since_s:g} s; call it without a metric for the names."
        )
    value = pl.col("value")
    series = (
        chosen.sort("time")
        .group_by("service_name", "attr.k8s.pod.name", maintain_order=True)
        .agg(last=value.last(), low=value.min(), high=value.max(), recent=value.tail(POINTS_LIMIT))
        .sort("service_name", nulls_last=True)
        .head(SERIES_LIMIT)
    )
    lines = [
        f"{row['service_name'] or '-'} {row['attr.k8s.pod.name'] or ''}: last {row['last']:.4g}, "
        f"{row['low']:.4g}..{row['high']:.4g}; {' '.join(f'{one:.4g}' for one in row['recent'])}"
        for row in series.iter_rows(named=True)
    ]
    return "\n".join([query.metric, *lines])


def tell_traces(tables: Tables, query: Traces, now_ns: int) -> str:
    """Return as text the slowest or failed requests of the service of *query*, each with the spans below it."""
    spans = _select_recent(tables["traces"], query.since_s, now_ns)
    handled = spans.filter(
        (pl.col("service_name") == query.service) & pl.col("attr.span_kind").is_in(["Server", "Consumer"])
    )
    if query.failed:
        handled = handled.filter(pl.col("attr.status_code") == "Error")
    chosen = (
        handled.sort("duration", descending=True)
        .unique("trace_id", keep="first", maintain_order=True)
        .head(query.limit)
    )
    if chosen.is_empty():
        return f"{query.service} handled no {'failed ' if query.failed else ''}request in the last {query.since_s:g} s."
    return "\n\n".join(_tree(spans.filter(pl.col("trace_id") == trace)) for trace in chosen["trace_id"])


def tell_logs(tables: Tables, query: SearchLogs, now_ns: int) -> str:
    """Return as text the log records that match *query*, the latest last; raises UserError for an invalid pattern."""
    found = _select_recent(tables["logs"], query.since_s, now_ns)
    if query.service is not None:
        found = found.filter(pl.col("service_name") == query.service)
    if query.level is not None:
        found = found.filter(pl.col("level") == query.level)
    if query.pattern:
        try:  # Rust's regular expressions take linear time: no pattern of an agent can hang us
            found = found.filter(pl.col("message").str.contains(query.pattern))
        except pl.exceptions.PolarsError as error:
            raise UserError(f"{query.pattern!r} is no regular expression that can be searched for.") from error
    rows = found.sort("time").tail(query.limit).select("time", "service_name", "attr.k8s.pod.name", "level", "message")
    lines = [
        f"{time:%H:%M:%S} {pod or service} {level} {message[:300]}"
        for time, service, pod, level, message in rows.iter_rows()
    ]
    return "\n".join([f"{found.height} records, the last {len(lines)}:", *lines])


def tell_summary(tables: Tables, query: Summarise, now_ns: int) -> str:
    """Return requests, errors and latency of each service, and the most frequent error messages, as text."""
    spans = _select_recent(tables["traces"], query.since_s, now_ns)
    handled = spans.filter(pl.col("attr.span_kind").is_in(["Server", "Consumer"]))
    services = handled.group_by("service_name").agg(
        count=pl.len(),
        failed=(pl.col("attr.status_code") == "Error").sum(),
        p50=pl.col("duration").median() / 1e6,
        p99=pl.col("duration").quantile(0.99) / 1e6,
    )
    lines = [
        f"{service}: {count / query.since_s:.1f}/s, {failed / count:.0%} failed, p50 {p50:.0f} ms, p99 {p99:.0f} ms"
        for service, count, failed, p50, p99 in services.sort("service_name").iter_rows()
    ]
    errors = _select_recent(tables["logs"], query.since_s, now_ns).filter(pl.col("level").is_in(ERROR_LEVELS))
    common = (
        errors.group_by("service_name", "message")
        .len()
        .sort("len", "service_name", "message", descending=[True, False, False])
    )
    said = [f"{count} x {service}: {message[:200]}" for service, message, count in common.head(8).iter_rows()]
    return "\n".join([f"Last {query.since_s:g} s:", *lines, "Errors:", *(said or ["none"])])


def tell_topology(tables: Tables, query: CallTopology, now_ns: int) -> str:
    """Return as text each (caller, callee) pair of services with the number of calls and of failures."""
    spans = _select_recent(tables["traces"], query.since_s, now_ns).select(
        "trace_id", "span_id", "parent_span_id", "service_name", failed=pl.col("attr.status_code") == "Error"
    )
    callers = spans.select("trace_id", parent_span_id="span_id", caller="service_name")
    calls = (
        spans.join(callers, on=["trace_id", "parent_span_id"])
        .filter(pl.col("caller") != pl.col("service_name"))
        .group_by("caller", "service_name")
        .agg(count=pl.len(), failed=pl.col("failed").sum())
        .sort("caller", "service_name")
    )
    if query.service is not None:
        calls = calls.filter((pl.col("caller") == query.service) | (pl.col("service_name") == query.service))
    lines = [
        f"{caller} -> {callee}: {count} calls, {failed} failed"
        for caller, callee, count, failed in calls.head(SERIES_LIMIT * 4).iter_rows()
    ]
    return "\n".join(lines) or f"No call between services was traced in the last {query.since_s:g} s."


def as_json(result: object) -> str:
    """Return *result* as indented JSON text."""
    return json_text(result, indent=1)


def _select_recent(table: pl.DataFrame, since_s: float, now_ns: int) -> pl.DataFrame:
    """Return the rows of *table* from the *since_s* seconds before *now_ns*."""
    return table.filter(pl.col("time").cast(pl.Int64) >= now_ns - int(since_s * 1e9))


def _tree(spans: pl.DataFrame) -> str:
    """Return the spans of one trace as text, indented by depth: service, name, kind, ms, status."""
    rows = spans.sort("time").head(CHILDREN_LIMIT).to_dicts()
    known = {row["span_id"] for row in rows}
    children: dict[str, list[dict[str, object]]] = {}
    for row in rows:
        children.setdefault(row["parent_span_id"] if row["parent_span_id"] in known else "", []).append(row)
    lines: list[str] = []

    def walk(parent: str, depth: int) -> None:
        for row in children.get(parent, ()):
            status = row["attr.http.response.status_code"] or row["attr.status_code"]
            took_ms = int(str(row["duration"])) / 1e6
            lines.append(
                f"{'  ' * depth}{row['service_name']} {row['span_name']} {row['attr.span_kind']} {took_ms:.1f} ms {status}"
            )
            walk(str(row["span_id"]), depth + 1)

    walk("", 0)
    return "\n".join(lines)
