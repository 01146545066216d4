"""Serves the telemetry and alerts of a running system by the APIs of Prometheus, Loki and trace backends."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from opsassay.core.schema.incident import Window
from opsassay.telemetry.backends.serving import ApiServer
from opsassay.telemetry.backends.views import AlertingRule, View, live
from opsassay.telemetry.mask import seen_of
from opsassay.telemetry.otlp.metrics import histogram_deltas
from opsassay.testbed.core.substrate import RunningSystem
from opsassay.testbed.operations.alert_watch import AlertWatch
from opsassay.testbed.operations.live import LiveAlerts, LiveTelemetry
from opsassay.testbed.operations.noise import SCRAPE
from opsassay.testbed.operations.state_alerts import DEFINITIONS
from opsassay.testbed.operations.telemetry_view import TelemetryView

USUAL_S = 20.0
"""For a system without a trial, the first seconds are the baseline of its alerts."""
PATIENCE_S = 60.0
_HISTOGRAMS = "metrics_histogram"
_RULES: dict[str, AlertingRule] = {
    signal: AlertingRule(definition.for_s, definition.severity, definition.about)
    for signal, definition in DEFINITIONS.items()
} | {SCRAPE: AlertingRule(0.0, "warning", "pod")}


def live_apis(view: TelemetryView, watch: AlertWatch | None) -> ApiServer:
    """Return a server of Prometheus, Loki and trace APIs over *view*, with the firing alerts of *watch*."""

    def now() -> View:
        """Return the telemetry until now, as the mask leaves it, with the alerts that fire."""
        tables = seen_of(view.telemetry.tables(), view.mask)
        if (points := tables.get(_HISTOGRAMS)) is not None and "series" in points.columns:
            tables[_HISTOGRAMS] = histogram_deltas(points, 0)
        alerts, rules = (view.with_others(watch.firing), _RULES) if watch is not None else ((), {})
        return live(tables, view.telemetry.since_ns, time.time_ns(), alerts, rules)

    return ApiServer.live(now)


@contextmanager
def apis_of(running: RunningSystem) -> Iterator[ApiServer]:
    """Evaluate alerts of the *running* system in the with block; yield the server of its telemetry APIs."""
    with TemporaryDirectory(prefix="opsassay-apis-") as made:
        folder = Path(made)
        with LiveTelemetry(running.receiver, folder) as telemetry:
            usual = Window(start_ns=telemetry.since_ns, end_ns=telemetry.since_ns + int(USUAL_S * 1e9))
            alerts = LiveAlerts(telemetry, running.definition().slo, usual)
            with AlertWatch(alerts, folder, patience_s=PATIENCE_S) as watch:
                yield live_apis(TelemetryView(telemetry, alerts), watch)
