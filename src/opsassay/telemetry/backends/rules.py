"""Alerts and alerting rules as Prometheus lists them; the query of a rule is empty, as it is over spans and states."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from opsassay.core.schema.incident import Alert
from opsassay.telemetry.backends.encoding import exponent_text, number_text
from opsassay.telemetry.backends.series import Labels
from opsassay.telemetry.backends.views import View

_EPOCH = "1970-01-01T00:00:00Z"


def rfc3339(ns: int) -> str:
    """Return *ns*, nanoseconds since 1970, as RFC 3339 text with milliseconds, in UTC."""
    seconds, rest = divmod(ns, 10**9)
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{rest // 10**6:03d}Z"


def alert_labels(alert: Alert) -> Labels:
    """Return *alert*'s labels as Prometheus has them; alertname is its signal."""
    named = {"alertname": alert.signal, "service": alert.service, "severity": alert.severity or ""}
    return {name: value for name, value in named.items() if value}


def alert_annotations(alert: Alert) -> Labels:
    """Return *alert*'s annotations as Prometheus has them: its description."""
    return {"summary": alert.message, "threshold": number_text(float(alert.threshold))}


def alerts_of(alerts: Sequence[Alert]) -> dict[str, Any]:
    """Return the data of Prometheus' ``/api/v1/alerts`` for *alerts*."""
    return {"alerts": [_alert_as_json(alert) for alert in alerts]}


def rules_of(view: View) -> dict[str, Any]:
    """Return the data of Prometheus' ``/api/v1/rules``: a rule for each alert signal, with an empty query."""
    evaluated = rfc3339(view.now_ns) if view.now_ns else _EPOCH
    rules = [
        {
            "state": "firing" if firing else "inactive", "name": signal, "query": "", "duration": rule.for_s,
            "keepFiringFor": 0, "labels": {"severity": rule.severity} if rule.severity else {},
            "annotations": {"description": f"of a {rule.about}"} if rule.about else {}, "alerts": firing, "health": "ok",
            "evaluationTime": 0, "lastEvaluation": evaluated, "type": "alerting",
        }
        for signal, rule in sorted(view.rules.items())
        for firing in ([_alert_as_json(alert) for alert in view.alerts if alert.signal == signal],)
    ]  # fmt: skip
    group = {
        "name": view.kind, "file": view.kind, "rules": rules, "interval": 0, "limit": 0, "evaluationTime": 0,
        "lastEvaluation": evaluated,
    }  # fmt: skip
    return {"groups": [group] if rules else []}


def _alert_as_json(alert: Alert) -> dict[str, Any]:
    """Return *alert* as Prometheus' JSON of an active alert."""
    return {
        "labels": alert_labels(alert),
        "annotations": alert_annotations(alert),
        "state": "firing",
        "activeAt": rfc3339(alert.time_ns),
        "value": exponent_text(float(alert.value)),
    }
