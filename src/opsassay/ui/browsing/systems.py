"""Running systems: live call graph, golden signals and alerts, from a recording that lasts while pages request it.

The injected fault is truth, shown only if requested.
"""

from __future__ import annotations

import tempfile
import threading
import time
from collections.abc import Collection, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

from opsassay.core.errors import NotFoundError, OpsAssayError
from opsassay.core.schema.incident import Alert, Window
from opsassay.core.text import plural
from opsassay.testbed.core.status import SystemStatus
from opsassay.ui.browsing.rows import View
from opsassay.ui.plain import plain

if TYPE_CHECKING:
    from opsassay.core.schema.system import System
    from opsassay.testbed.core.substrate import RunningSystem, Substrate
    from opsassay.testbed.operations.live import LiveAlerts, LiveTelemetry


USUAL_S = 10.0
"""Seconds after the first request whose signals are the baseline of alerts."""
RECENT_S = 10.0
"""Seconds before now over which signals are computed."""
IDLE_S = 15.0
"""Seconds without a request after which a recording ends."""
LONGEST_S = 600.0
"""Seconds after which a recording is restarted, to bound its size."""


@dataclass(eq=False)
class SystemWatch:
    """The recording of one running system; *closing* ends it."""

    system: RunningSystem
    definition: System
    telemetry: LiveTelemetry
    alerts: LiveAlerts
    closing: ExitStack
    since: float = field(default_factory=time.monotonic)
    looked: float = field(default_factory=time.monotonic)

    def is_over(self) -> bool:
        """Return whether to end the watch: unused for IDLE_S seconds, or LONGEST_S seconds old."""
        now = time.monotonic()
        return now - self.looked > IDLE_S or now - self.since > LONGEST_S


class SystemWatches:
    """The recordings of running systems of *substrate*, each started at the first request; thread-safe."""

    def __init__(self, substrate: Substrate) -> None:
        self._substrate, self._lock = substrate, threading.Lock()
        self._watches: dict[str, SystemWatch] = {}
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._close_idle, name="systems", daemon=True)
        self._thread.start()

    def names(self) -> list[str]:
        """Return the names of the running systems."""
        return self._substrate.names()

    def status(self, name: str) -> SystemStatus:
        """Return the current status of the system *name*; raises OpsAssayError."""
        return self._substrate.running(name).status()

    def watch_of(self, name: str) -> SystemWatch:
        """Return the recording of the running system *name*, started now if there is none; raises OpsAssayError."""
        with self._lock:
            watch = self._watches.get(name)
            if watch is None:
                watch = self._watches[name] = self._open_watch(name)
            watch.looked = time.monotonic()
            return watch

    def drop(self, name: str) -> None:
        """Stop recording the system *name*."""
        with self._lock:
            watch = self._watches.pop(name, None)
        if watch is not None:
            watch.closing.close()

    def close(self) -> None:
        """Stop recording all systems."""
        self._ended.set()
        for name in list(self._watches):
            self.drop(name)

    def _open_watch(self, name: str) -> SystemWatch:
        """Start recording telemetry and alerts of the running system *name*; return the recording."""
        from opsassay.testbed.operations.live import LiveAlerts, LiveTelemetry

        system = self._substrate.running(name)
        with ExitStack() as opening:
            folder = opening.enter_context(tempfile.TemporaryDirectory(prefix="opsassay-view-"))
            telemetry = opening.enter_context(LiveTelemetry(system.receiver, Path(folder) / f"view-{time.time_ns()}"))
            definition = system.definition()
            usual = Window(start_ns=telemetry.since_ns, end_ns=telemetry.since_ns + int(USUAL_S * 1e9))
            alerts = LiveAlerts(telemetry, definition.slo, usual)
            return SystemWatch(system, definition, telemetry, alerts, opening.pop_all())

    def _close_idle(self) -> None:
        """Stop, once a second until `close`, the recordings that are no longer used."""
        while not self._ended.wait(1.0):
            for name, watch in list(self._watches.items()):
                if watch.is_over():
                    self.drop(name)


def systems_view(watches: SystemWatches | None) -> View:
    """Return the page data of the list of running systems; *watches* is None where no system can run."""
    systems = [_current_state(watches, name) for name in watches.names()] if watches else []
    calm = sum(one["phase"] == "ready" and one["ready"] == one["replicas"] for one in systems)
    return {
        "answer": f"{plural(len(systems), 'system')} on this machine, {calm} of them ready with every replica."
        if systems
        else "No system runs on this machine.",
        "systems": systems,
    }


def _current_state(watches: SystemWatches, name: str) -> View:
    """Return replicas and request rate of system *name* as page data; its phase is the error when it has ended."""
    try:
        status = watches.status(name)
    except OpsAssayError as error:  # it may have ended since it was listed
        status = SystemStatus(name=name, phase=str(error))
    return {
        "name": plain(name, 80),
        "page": f"systems/{name}.html",
        "application": plain(status.system or "", 80),
        "phase": plain(status.phase, 200),
        "ready": status.ready,
        "replicas": status.replicas,
        "rate_rps": status.rate_rps,
    }


def system_view(watches: SystemWatches | None, name: str, *, reveal: bool) -> View:
    """Return the page data of system *name*, with injected faults only if *reveal*; raises OpsAssayError."""
    if watches is None:
        raise NotFoundError("running system", name, [])
    watch = watches.watch_of(name)
    try:
        status, (at_ns, firing) = watch.system.status(), watch.alerts.firing()
        signals = _recent_signals(watch.telemetry.tables()["traces"], at_ns)
    except OpsAssayError:
        watches.drop(name)
        raise
    learning_s = max(0.0, USUAL_S - (time.monotonic() - watch.since))
    alerts = [] if learning_s else [_alert_item(alert) for alert in firing]
    loud = {alert.service for alert in firing} if not learning_s else set()
    ready = f"{status.ready} of {status.replicas} replicas are ready" if status.replicas else status.phase
    state = (
        "what is usual is being learned"
        if learning_s
        else f"{plural(len(alerts), 'alert')} firing"
        if alerts
        else "no alert fires"
    )
    worst = max(signals, key=lambda row: (row["errors"], row["p99_ms"] or 0), default=None)
    said = f"; {worst['service']} fails {worst['errors']:.0%} of its requests" if worst and worst["errors"] > 0 else ""
    return {
        "answer": f"{plain(status.system or name, 80)}: {ready}, {state}{said}.",
        "name": plain(name, 80),
        "phase": plain(status.phase, 40),
        "ready": status.ready,
        "replicas": status.replicas,
        "not_ready": [plain(one, 80) for one in status.not_ready],
        "rate_rps": status.rate_rps,
        "signals": signals,
        "alerts": alerts,
        "graph": graph_of(watch.definition, {row["service"]: row for row in signals}, loud, status.not_ready),
        "revealed": reveal,
        "fault": plain(status.fault or "nothing", 300) if reveal else None,
        "usual": f"Alerts are against the first {USUAL_S:g} s after this page was opened.",
    }


def _recent_signals(traces: pl.DataFrame, at_ns: int) -> list[dict[str, Any]]:
    """Return rate, error share and latency per service of the RECENT_S seconds before *at_ns*, as rows."""
    if traces.is_empty():
        return []
    began = pl.col("time").cast(pl.Int64)
    kind = pl.col("attr.span_kind").cast(pl.String).str.to_uppercase().str.strip_prefix("SPAN_KIND_")
    failed = pl.col("attr.status_code").cast(pl.String).str.to_uppercase().str.ends_with("ERROR").fill_null(value=False)
    rows = (
        traces.filter(began.is_between(at_ns - int(RECENT_S * 1e9), at_ns), kind.is_in(["SERVER", "CONSUMER"]))
        .group_by(service="service_name")
        .agg(
            rate_rps=pl.len() / RECENT_S,
            errors=failed.mean(),
            p50_ms=pl.col("duration").cast(pl.Float64).quantile(0.5) / 1e6,
            p99_ms=pl.col("duration").cast(pl.Float64).quantile(0.99) / 1e6,
        )
        .sort("service")
    )
    return [row | {"service": plain(row["service"], 80)} for row in rows.to_dicts()]


def _alert_item(alert: Alert) -> Mapping[str, Any]:
    """Return *alert* as page data."""
    return {
        "service": plain(alert.service, 80),
        "signal": plain(alert.signal.replace("_", " "), 80),
        "value": alert.value,
        "threshold": alert.threshold,
        "message": plain(alert.message, 300),
    }


def watches_of_this_machine() -> SystemWatches | None:
    """Return the recordings of this machine's systems, None when no system can run here."""
    from opsassay.testbed.core.substrate import load_substrate

    with suppress(OpsAssayError, ImportError):
        return SystemWatches(load_substrate())
    return None


WIDTH, HEIGHT, GAP_X, GAP_Y = 132, 40, 56, 16


def graph_of(
    system: System, signals: Mapping[str, Mapping[str, Any]], alerting: Collection[str], not_ready: Collection[str]
) -> dict[str, Any]:
    """Return the nodes and edges of the call graph of *system*: pixel positions, and the state of each node.

    *signals* are by service; *alerting* and *not_ready* are names of services and replicas.
    """
    edges = sorted(system.calls() | system.uses())
    columns = _column_of_service([*system.services, *system.stores], edges, system.entries())
    rows: dict[int, int] = {}
    places, nodes = {}, []
    for name in [*system.services, *system.stores]:
        column = columns[name]
        rows[column] = rows.get(column, -1) + 1
        x, y = column * (WIDTH + GAP_X) + 2, rows[column] * (HEIGHT + GAP_Y) + 2
        places[name] = (x, y)
        row = signals.get(name, {})
        down = any(replica == name or replica.startswith(f"{name}-") for replica in not_ready)
        state = "down" if down else "loud" if name in alerting else "failing" if row.get("errors", 0) > 0 else "well"
        words = (
            f"{row['rate_rps']:.1f}/s, p99 {row['p99_ms']:.0f} ms"
            if row
            else "store"
            if name in system.stores
            else "quiet"
        )
        nodes.append(
            {"name": plain(name, 18), "x": x, "y": y, "state": state, "words": words, "store": name in system.stores}
        )
    lines = [
        {"x1": places[a][0] + WIDTH, "y1": places[a][1] + HEIGHT / 2, "x2": places[b][0], "y2": places[b][1] + HEIGHT / 2,
         "a": plain(a, 60), "b": plain(b, 60)}
        for a, b in edges if a in places and b in places
    ]  # fmt: skip
    return {
        "nodes": nodes,
        "lines": lines,
        "width": (max(columns.values(), default=0) + 1) * (WIDTH + GAP_X) - GAP_X + 4,
        "height": (max(rows.values(), default=0) + 1) * (HEIGHT + GAP_Y) - GAP_Y + 4,
    }


def _column_of_service(
    names: list[str], edges: Collection[tuple[str, str]], entries: Collection[str]
) -> dict[str, int]:
    """Return the column of each of *names*: its least number of calls from the entry services; 0 if never called."""
    columns, waiting = dict.fromkeys(entries, 0), list(entries)
    while waiting:
        name = waiting.pop(0)
        for caller, callee in edges:
            if caller == name and callee not in columns:
                columns[callee] = columns[name] + 1
                waiting.append(callee)
    return {name: columns.get(name, 0) for name in names}
