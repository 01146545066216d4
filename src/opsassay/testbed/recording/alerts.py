"""Golden-signal alerts (error rate, p99 latency, traffic, saturation) over a stream of telemetry.

Rules are evaluated at every tick over a trailing window, each service against its own usual values from the start of the
stream. The alerts form an incident's description, and the first of them places the boundary of its windows.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

import polars as pl

from opsassay.core.schema.incident import Alert, Window
from opsassay.core.schema.system import Slo

TICK_S = 2.0
WINDOW_S = 10.0
MIN_COUNT = 8
MIN_ERRORS = 3
LATENCY_FLOOR_MS = 100.0
CPU_SHARE, MEMORY_SHARE = "container.cpu.limit_utilization", "container.memory.limit_utilization"
CPU_USED, CPU_WAITED = "container.cpu.usage", "container.cpu.runqueue.time"
SATURATION_READINGS = 3

_TICK_NS = int(TICK_S * 1e9)
_WINDOW_NS = int(WINDOW_S * 1e9)


def alerts(traces: pl.DataFrame, metrics: pl.DataFrame, slo: Slo, baseline_window: Window, end_ns: int) -> list[Alert]:
    """Return the first alert of every (service, signal) from the end of *baseline_window* to *end_ns*, by time.

    *traces* and *metrics* have the datapack's columns; *baseline_window* tells what is normal.
    Every TICK_S a tick looks at the requests that ended in the WINDOW_S before it. With count, errors and p99 (ms) of a
    service in them and u its `usual_values`, these fire:
        error_rate      count >= MIN_COUNT, errors >= MIN_ERRORS, errors / count > u.errors + slo.error_rate
        latency_p99_ms  count >= MIN_COUNT, p99 > min(max(LATENCY_FLOOR_MS, u.p99 * slo.latency_ratio), slo.latency_p99_ms)
        traffic_rps     u.count >= 2 * MIN_COUNT, count < u.count * slo.traffic_ratio
        saturation      least of three readings in a row of a pod's share of its CPU or memory limit > slo.saturation
    The rules are ours. Values are a share, ms, requests per second and a share; *end_ns* is UTC.
    """
    ticks = pl.DataFrame(
        {"tick": range(baseline_window.end_ns + _TICK_NS, end_ns + 1, _TICK_NS)}, schema={"tick": pl.Int64}
    )
    handled = _handled(traces)
    baseline = usual_values(traces, baseline_window)
    fired = [*_request_alerts(_windows(handled, ticks, baseline), slo), *_saturation_alerts(metrics, ticks, slo)]
    first: dict[tuple[str, str], Alert] = {}
    for alert in sorted(fired, key=lambda a: (a.time_ns, a.service, a.signal)):
        first.setdefault((alert.service, alert.signal), alert)
    return sorted(first.values(), key=lambda a: (a.time_ns, a.service, a.signal))


def firing(
    tables: Mapping[str, pl.DataFrame],
    slo: Slo,
    baseline: pl.DataFrame,
    at_ns: int,
    saturated_services: Collection[str] = (),
) -> list[Alert]:
    """Return the alerts that fire at *at_ns* (UTC), by the window that ends there, sorted by service and signal.

    The rules are those of `alerts`, over the datapack's *tables* traces, metrics and metrics_sum. *baseline* is the
    result of `usual_values` for a healthy time. For *saturated_services*, those of the last reading, time spent
    waiting for a processor counts as used, and their latest readings in the window hold even if they are late:
    neither a machine that lends less than the limit nor a late reading ends a saturation.
    """
    ticks = pl.DataFrame({"tick": [at_ns]}, schema={"tick": pl.Int64})
    recent = _handled(tables["traces"]).filter(pl.col("ended_ns").is_between(at_ns - _WINDOW_NS, at_ns, closed="left"))
    full = {alert.service: alert for alert in _still_saturated(tables, set(saturated_services), slo, at_ns)}
    full |= {alert.service: alert for alert in _saturation_alerts(tables["metrics"], ticks, slo)}
    found = [*_request_alerts(_windows(recent, ticks, baseline), slo), *full.values()]
    return sorted(found, key=lambda alert: (alert.service, alert.signal))


def usual_values(traces: pl.DataFrame, window: Window) -> pl.DataFrame:
    """Return the normal values of each service in the healthy *window*.

    Columns: service_name; usual_p99, ms; usual_errors, share of the requests; usual_count, requests in WINDOW_S
    seconds.
    """
    return (
        _handled(traces)
        .filter(pl.col("ended_ns").is_between(window.start_ns, window.end_ns, closed="left"))
        .group_by("service_name")
        .agg(
            usual_p99=pl.col("ms").quantile(0.99, "linear"),
            usual_errors=pl.col("failed").mean(),
            usual_count=pl.len() * WINDOW_S / window.seconds,
        )
    )


def describe(alerts: list[Alert]) -> str:
    """Return the incident description that an operator would get: one line per alert with UTC time and message."""
    if not alerts:
        return "No alert fired. Decide whether anything is wrong in the abnormal window, and if so what and why."
    lines = [f"- {_format_clock(alert.time_ns)} {alert.message}" for alert in alerts]
    return "\n".join(["These alerts fired (UTC):", *lines, "Find the root cause and how it spread."])


def _handled(traces: pl.DataFrame) -> pl.DataFrame:
    """Return one row for each request or message that a service handled: ended_ns, service_name, ms, failed."""
    return traces.filter(pl.col("attr.span_kind").is_in(["Server", "Consumer"])).select(
        ended_ns=pl.col("time").cast(pl.Int64) + pl.col("duration").cast(pl.Int64),
        service_name="service_name",
        ms=pl.col("duration") / 1e6,
        failed=pl.col("attr.status_code") == "Error",
    )


def _windows(handled: pl.DataFrame, ticks: pl.DataFrame, baseline: pl.DataFrame) -> pl.DataFrame:
    """Return a row per tick and service: *baseline*'s columns, and count (also 0), errors, p99 of *handled* before."""
    each = int(WINDOW_S / TICK_S)
    start = ticks.item(0, "tick") if ticks.height else 0
    # A request counts in each of the ticks whose window covers its end.
    first_tick = start + ((pl.col("ended_ns") - start) // _TICK_NS + 1) * _TICK_NS
    seen = (
        handled.with_columns(tick=pl.concat_list([first_tick + i * _TICK_NS for i in range(each)]))
        .explode("tick")
        .group_by("tick", "service_name")
        .agg(count=pl.len(), errors=pl.col("failed").sum(), p99=pl.col("ms").quantile(0.99, "linear"))
    )
    return (
        ticks.join(baseline, how="cross")
        .join(seen, on=["tick", "service_name"], how="left")
        .with_columns(pl.col("count", "errors").fill_null(0))
    )


def _request_alerts(windows: pl.DataFrame, slo: Slo) -> list[Alert]:
    """Return the alerts of *windows* on error rate, latency and traffic, one for each row over its limit.

    *windows*: tick, service_name, count, errors, p99 (ms), and usual_ columns of the normal time.
    """
    enough = pl.col("count") >= MIN_COUNT
    error_share = pl.col("errors") / pl.col("count")
    error_limit = pl.col("usual_errors") + slo.error_rate
    latency_limit = pl.min_horizontal(
        pl.max_horizontal(pl.lit(LATENCY_FLOOR_MS), pl.col("usual_p99") * slo.latency_ratio), pl.lit(slo.latency_p99_ms)
    )
    traffic_limit = pl.col("usual_count") * slo.traffic_ratio
    rules = {
        "error_rate": (
            enough & (pl.col("errors") >= MIN_ERRORS) & (error_share > error_limit),
            error_share,
            error_limit,
        ),
        "latency_p99_ms": (enough & (pl.col("p99") > latency_limit), pl.col("p99"), latency_limit),
        "traffic_rps": (
            (pl.col("usual_count") >= 2 * MIN_COUNT) & (pl.col("count") < traffic_limit),
            pl.col("count") / WINDOW_S,
            traffic_limit / WINDOW_S,
        ),
    }
    found = []
    for signal, (condition, value, threshold) in rules.items():
        rows = windows.filter(condition).select("tick", "service_name", value=value, threshold=threshold)
        found += [_make_alert(signal, *row) for row in rows.iter_rows()]
    return found


def _saturation_alerts(metrics: pl.DataFrame, ticks: pl.DataFrame, slo: Slo) -> list[Alert]:
    """Return an alert for each of *ticks* and service at which a pod's CPU or memory stays above the limit of *slo*."""
    start = ticks.item(0, "tick") if ticks.height else 0
    tick = start + ((pl.col("time").cast(pl.Int64) - start) // _TICK_NS + 1) * _TICK_NS
    rows = (
        metrics.filter(
            pl.col("metric").is_in([CPU_SHARE, MEMORY_SHARE]) & (pl.col("time").cast(pl.Int64) >= start - _WINDOW_NS)
        )
        .sort("time")
        .with_columns(
            level=pl.col("value").rolling_min(SATURATION_READINGS).over("metric", "service_name", "attr.k8s.pod.name"),
            tick=tick,
        )
        .filter((pl.col("level") > slo.saturation) & (pl.col("tick") >= start))
        .group_by("tick", "service_name")
        .agg(pl.col("level").max())
    )
    return [_make_alert("saturation", at, service, level, slo.saturation) for at, service, level in rows.iter_rows()]


def _still_saturated(tables: Mapping[str, pl.DataFrame], services: set[str], slo: Slo, at_ns: int) -> list[Alert]:
    """Return the alerts of those of *services* whose latest readings exceed the saturation limit of *slo*."""
    names = [CPU_SHARE, MEMORY_SHARE, CPU_USED, CPU_WAITED]
    recent = pl.col("time").cast(pl.Int64).is_between(at_ns - _WINDOW_NS, at_ns)
    of_them = pl.col("metric").is_in(names) & pl.col("service_name").is_in(list(services))
    columns = ["time", "metric", "value", "service_name", "attr.k8s.pod.name"]
    own = pl.concat([tables[name].filter(recent & of_them).select(columns) for name in ("metrics", "metrics_sum")])
    if own.is_empty():
        return []
    pod = ["service_name", "attr.k8s.pod.name"]
    wide = own.pivot("metric", index=["time", *pod], values="value", aggregate_function="last").sort("time")
    wide = wide.with_columns(pl.lit(None, pl.Float64).alias(name) for name in names if name not in wide.columns)
    seconds = pl.col("time").cast(pl.Int64).diff().over(pod) / 1e9
    more = pl.col(CPU_WAITED).diff().over(pod)
    waited = (pl.when(more < 0).then(CPU_WAITED).otherwise(more) / seconds).fill_null(0.0)  # a counter that began anew
    limit = (pl.col(CPU_USED) / pl.col(CPU_SHARE)).fill_nan(None).max().over(pod)
    rows = (
        wide.with_columns(cpu=pl.coalesce((pl.col(CPU_USED) + waited) / limit, CPU_SHARE))
        .group_by(pod)
        .agg(pl.col("cpu", MEMORY_SHARE).tail(SATURATION_READINGS).min())
        .with_columns(level=pl.max_horizontal("cpu", MEMORY_SHARE))
        .filter(pl.col("level") > slo.saturation)
        .group_by("service_name")
        .agg(pl.col("level").max())
    )
    return [_make_alert("saturation", at_ns, service, level, slo.saturation) for service, level in rows.iter_rows()]


def _make_alert(signal: str, time_ns: int, service: str, value: float, threshold: float) -> Alert:
    """Return the alert of *signal* at *service* at *time_ns*, with a message that states *value* and *threshold*."""
    words = {
        "error_rate": f"{service}: {value:.0%} of requests fail (limit {threshold:.0%})",
        "latency_p99_ms": f"{service}: p99 latency {value:.0f} ms (limit {threshold:.0f} ms)",
        "traffic_rps": f"{service}: traffic {value:.1f}/s (limit {threshold:.1f}/s)",
        "saturation": f"{service}: CPU or memory at {value:.0%} of its limit (limit {threshold:.0%})",
    }
    return Alert(
        time_ns=time_ns,
        service=service,
        signal=signal,
        value=float(value),
        threshold=float(threshold),
        message=words[signal],
    )


def _format_clock(time_ns: int) -> str:
    """Return the UTC time of day of *time_ns* as HH:MM:SS."""
    seconds = time_ns // 1_000_000_000 % 86_400
    return f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"
