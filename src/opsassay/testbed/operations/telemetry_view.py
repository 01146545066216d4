"""An operator's view of a running system: the tools that query its telemetry while it arrives."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from opsassay.core.schema.incident import Alert
from opsassay.telemetry.mask import Mask, seen_of
from opsassay.testbed.operations import arguments as args
from opsassay.testbed.operations import telemetry_queries
from opsassay.testbed.operations.live import LiveTelemetry
from opsassay.testbed.operations.state_alerts import AlertSource
from opsassay.testbed.operations.tool_session import Tool

Look = args.Alerts | args.Metrics | args.Traces | args.SearchLogs | args.Summarise | args.CallTopology

LOOKS: Mapping[str, Tool] = {
    "alerts": Tool(args.Alerts),
    "metrics": Tool(args.Metrics),
    "traces": Tool(args.Traces),
    "search_logs": Tool(args.SearchLogs),
    "summarise": Tool(args.Summarise),
    "topology": Tool(args.CallTopology),
}
"""The query tools by name; every system that sends telemetry has them."""


@dataclass
class TelemetryView:
    """Answers queries of a system's live *telemetry*, without the parts that *mask* hides, and of the *alerts*."""

    telemetry: LiveTelemetry
    alerts: AlertSource
    mask: Mask = field(default_factory=Mask)
    besides: Callable[[], Iterable[Alert]] = tuple
    """Returns further alerts that fire but by which the trial is not judged, such as noise."""

    def with_others(self, alerts: Iterable[Alert]) -> list[Alert]:
        """Return *alerts* together with those that are not judged, such as noise, sorted by service and signal."""
        return sorted((*alerts, *self.besides()), key=lambda alert: (alert.service, alert.signal))

    def answer_query(self, query: Look) -> str:
        """Return the answer to *query* as text; raises OpsAssayError when there is no telemetry."""
        if isinstance(query, args.Alerts):
            return telemetry_queries.tell_alerts(self.with_others(self.alerts.firing()[1]))
        tables, now_ns = seen_of(self.telemetry.tables(), self.mask), time.time_ns()
        if isinstance(query, args.CallTopology):
            return telemetry_queries.tell_topology(tables, query, now_ns)
        if isinstance(query, args.Metrics):
            return telemetry_queries.tell_metrics(tables, query, now_ns)
        if isinstance(query, args.Traces):
            return telemetry_queries.tell_traces(tables, query, now_ns)
        if isinstance(query, args.SearchLogs):
            return telemetry_queries.tell_logs(tables, query, now_ns)
        return telemetry_queries.tell_summary(tables, query, now_ns)
