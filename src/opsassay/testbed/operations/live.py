"""The telemetry of a running system as it arrives: a recording session of its receiver, read while it is written."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import polars as pl

from opsassay.core.errors import OpsAssayError
from opsassay.core.schema.incident import Alert, Window
from opsassay.core.schema.run_folder import LIVE
from opsassay.core.schema.system import Slo
from opsassay.telemetry.otlp.logs import LogColumns
from opsassay.telemetry.otlp.metrics import MetricColumns
from opsassay.telemetry.otlp.requests import parse, unpack
from opsassay.telemetry.otlp.spool import Kind, frames_after, spool_path
from opsassay.telemetry.otlp.traces import TraceColumns
from opsassay.telemetry.schema import MODALITIES, empty
from opsassay.testbed.core.substrate import Receiver
from opsassay.testbed.recording.alerts import TICK_S, firing, usual_values
from opsassay.testbed.recording.baseline import user_requests

KEPT_S = 900.0
"""Seconds that the tables reach back."""
ARRIVAL_S = 2.0
"""Seconds after which telemetry has arrived, since replicas send twice a second; alerts are delayed by as much."""
_COLUMNS = {"traces": TraceColumns, "logs": LogColumns, "metrics": MetricColumns}


class LiveTelemetry:
    """The tables of the telemetry that *receiver* has accepted since the block was entered, spooled in *folder*.

    `tables` reads the new telemetry; threads may call it at the same time.
    """

    def __init__(self, receiver: Receiver, folder: Path) -> None:
        self._receiver, self._folder = receiver, folder
        self._offsets = dict.fromkeys(_COLUMNS, 0)
        self._columns: dict[str, Any] = {signal: make() for signal, make in _COLUMNS.items()}
        self._tables = {modality: empty(modality) for modality in MODALITIES}
        self._lock = threading.Lock()
        self._asked_ns = self.since_ns = 0
        self.clock_ahead_s = 0.0
        """Least seconds by which the receiver's clock is ahead of this machine's (negative: behind); set by `tables`."""

    def __enter__(self) -> Self:
        self._asked_ns = time.time_ns()
        self._receiver.open_session(self._folder, self._folder.name)
        self.since_ns = time.time_ns()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with suppress(OpsAssayError):  # nobody reads it any more, and what ended it is reported by whoever was at work
            self._receiver.close_session(self._folder.name)

    def arrived_ns(self) -> int:
        """Return the UTC time in ns up to which all telemetry has arrived."""
        return time.time_ns() - int(ARRIVAL_S * 1e9)

    def tables(self) -> dict[str, pl.DataFrame]:
        """Return {modality: table} of the telemetry that has arrived in the last minutes, in the datapack's columns.

        Histograms are cumulative, for `histogram_deltas`. Raises OpsAssayError when the receiver does not answer.
        """
        with self._lock:
            self._receiver.refresh(self._folder.name)
            for signal in _COLUMNS:
                self._read(signal)
            return dict(self._tables)

    def _read(self, signal: str) -> None:
        """Decode the new frames in the spool of *signal* (traces, metrics, logs) and append them to the tables."""
        columns = self._columns[signal]
        for end, frame in frames_after(spool_path(self._folder, signal), self._offsets[signal]):
            self._offsets[signal] = end
            if frame.kind == Kind.OPENED:  # between the asking and the answer, by our clock
                nearest_ns = min(max(frame.received_ns, self._asked_ns), self.since_ns)
                self.clock_ahead_s = (frame.received_ns - nearest_ns) / 1e9
            else:
                columns.add(parse(signal, unpack(frame.kind, frame.payload)), frame.received_ns)
        if not columns.rows:
            return
        batch = columns.take()
        for modality, fresh in (batch if isinstance(batch, dict) else {signal: batch}).items():
            oldest = time.time_ns() - int(KEPT_S * 1e9)
            both = pl.concat([self._tables[modality], fresh], how="diagonal_relaxed")
            self._tables[modality] = both.filter(pl.col("time").cast(pl.Int64) >= oldest)


class LiveAlerts:
    """The alert rules with *slo* over live *telemetry*, compared with the healthy period *usual*.

    The baseline is computed once, as soon as all telemetry of the period has arrived.
    """

    def __init__(self, telemetry: LiveTelemetry, slo: Slo, usual: Window) -> None:
        self._telemetry, self._slo, self._usual = telemetry, slo, usual
        self._baseline: pl.DataFrame | None = None
        self._saturated: frozenset[str] = frozenset()

    def firing(self) -> tuple[int, list[Alert]]:
        """Return (time_ns, alerts that fire then); time_ns is the latest UTC time whose telemetry has arrived.

        No alert fires before the telemetry of the baseline has arrived.
        """
        at_ns = self._telemetry.arrived_ns()
        tables = self._telemetry.tables()
        if at_ns < self._usual.end_ns:
            return at_ns, []
        if self._baseline is None:
            self._baseline = usual_values(tables["traces"], self._usual)
        found = firing(tables, self._slo, self._baseline, at_ns, self._saturated)
        self._saturated = frozenset(alert.service for alert in found if alert.signal == "saturation")
        return at_ns, found


__all__ = ["TICK_S", "LiveAlerts", "LiveTelemetry"]


SERVED_OVER_S, SERVED_SHARE, SERVED_WITHIN_NS = 6.0, 0.95, 1_500_000_000
"""Users are served when this share of the requests of the last seconds succeeded within this time."""


@contextmanager
def live_telemetry(
    receiver: Receiver, run_dir: Path, make: Callable[[Receiver, Path], LiveTelemetry] = LiveTelemetry
) -> Iterator[LiveTelemetry]:
    """Yield the telemetry that *receiver* gets during the block, as *make* reads it from files in *run_dir*.

    The files are removed at the end.
    """
    folder = run_dir / LIVE
    try:
        with make(receiver, folder) as telemetry:
            yield telemetry
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def users_are_served(telemetry: LiveTelemetry, seen_at: Collection[str] = ()) -> bool:
    """Return whether nearly all user requests of the last seconds succeeded in time; False without any.

    If the load generator sends no spans, those of the services *seen_at* count; True until they have sent one.
    """
    since = telemetry.arrived_ns() - int((SERVED_OVER_S - ARRIVAL_S) * 1e9)
    traces = telemetry.tables()["traces"]
    if seen_at and not traces["service_name"].is_in(list(seen_at)).any():
        return True
    sent = user_requests(traces, seen_at).filter(pl.col("time").cast(pl.Int64) >= since)
    good = sent.filter((pl.col("attr.status_code") != "Error") & (pl.col("duration") < SERVED_WITHIN_NS))
    return sent.height > 0 and good.height >= SERVED_SHARE * sent.height
