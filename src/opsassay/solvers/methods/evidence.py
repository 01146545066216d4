"""SQL evidence for claims: statements over the ten tables of a datapack, the same for every method."""

from __future__ import annotations

from opsassay.core.schema.diagnosis import Evidence
from opsassay.telemetry.severity import ERROR_LEVELS

_ERROR = """("attr.status_code" = 'Error' OR "attr.http.response.status_code" >= 500)"""


def literal(text: str) -> str:
    """Return *text* as an SQL string literal."""
    return "'" + text.replace("'", "''") + "'"


def latency(service: str) -> Evidence:
    """Return SQL evidence: the mean span duration of *service*, normal against abnormal period."""
    return _compare_periods("traces", "avg(duration) / 1e6", "mean_ms", service, f"spans of {service} changed speed")


def error_spans(service: str) -> Evidence:
    """Return SQL evidence: the number of failed spans of *service*, normal against abnormal period."""
    expression = f"count(*) FILTER (WHERE {_ERROR})"
    return _compare_periods("traces", expression, "failed_spans", service, f"spans of {service} fail")


def error_logs(service: str) -> Evidence:
    """Return SQL evidence: the number of error log lines of *service*, normal against abnormal period."""
    expression = f"count(*) FILTER (WHERE level IN {ERROR_LEVELS})"
    return _compare_periods("logs", expression, "error_lines", service, f"{service} logs errors")


def span_count(service: str) -> Evidence:
    """Return SQL evidence: the number of spans of *service*, normal against abnormal period."""
    return _compare_periods("traces", "count(*)", "spans", service, f"{service} emits another number of spans")


def normal_span_count(service: str) -> Evidence:
    """Return SQL evidence: the number of spans of *service* in the normal period alone."""
    sql = f"SELECT count(*) AS normal_spans FROM normal_traces WHERE service_name = {literal(service)}"  # noqa: S608
    return Evidence(kind="trace", sql=sql, claim=f"{service} is part of the system")


def gauge(service: str, metric: str) -> Evidence:
    """Return SQL evidence: mean, minimum and maximum of *metric* of *service*, normal against abnormal period."""
    where = f"WHERE service_name = {literal(service)} AND metric = {literal(metric)}"
    columns = "avg(value) AS mean, min(value) AS lowest, max(value) AS highest"
    sql = " UNION ALL ".join(
        f"SELECT {literal(period)} AS period, {columns} FROM {period}_metrics {where}"  # noqa: S608 - quoted above
        for period in ("normal", "abnormal")
    )
    return Evidence(kind="metric", sql=sql, claim=f"{metric} of {service} left its normal range")


def calls(caller: str, callee: str, period: str) -> Evidence:
    """Return SQL evidence: number and mean duration of calls from *caller* to *callee* in *period*."""
    sql = (
        "SELECT count(*) AS calls, avg(callee.duration) / 1e6 AS mean_ms "  # noqa: S608 - names are quoted
        f"FROM {period}_traces AS callee JOIN {period}_traces AS caller "
        "ON callee.trace_id = caller.trace_id AND callee.parent_span_id = caller.span_id "
        f"WHERE caller.service_name = {literal(caller)} AND callee.service_name = {literal(callee)} "
        "HAVING count(*) > 0"
    )
    return Evidence(kind="trace", sql=sql, claim=f"{caller} calls {callee} and waits for it")


def _compare_periods(table: str, expression: str, unit: str, service: str, claim: str) -> Evidence:
    """Return evidence for *claim*: SQL of *expression* over *table* of *service*, as normal_UNIT and abnormal_UNIT."""
    where = f"WHERE service_name = {literal(service)}"
    parts = ", ".join(
        f"(SELECT {expression} FROM {period}_{table} {where}) AS {period}_{unit}"  # noqa: S608 - quoted above
        for period in ("normal", "abnormal")
    )
    return Evidence(kind="log" if table == "logs" else "trace", sql=f"SELECT {parts}", claim=claim)
