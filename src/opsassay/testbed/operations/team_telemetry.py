"""The telemetry of a trial on a project that sends its own to its team's backends: read there as it arrives."""

from __future__ import annotations

import time
from pathlib import Path
from types import TracebackType
from typing import Self

import polars as pl

from opsassay.core.errors import OpsAssayError
from opsassay.core.schema.background import Background
from opsassay.core.schema.incident import Window
from opsassay.core.schema.system import System
from opsassay.telemetry.schema import empty
from opsassay.testbed.core.substrate import Receiver
from opsassay.testbed.operations.live import KEPT_S, LiveTelemetry
from opsassay.testbed.recording.backends import LAG_S, merged, read_backends, require_backends

STEP_S, PATIENCE_S = 3.0, 60.0
"""How much is read at once, and for how long a backend may fail before the trial does."""
READ = ("traces", "logs", "metrics", "metrics_sum")
"""Histograms are not read: those of a backend are of other windows than ours."""


class TeamTelemetry(LiveTelemetry):
    """The tables of *receiver* and of the backends of *system*, which a thread reads while the block runs, LAG_S late."""

    def __init__(self, receiver: Receiver, folder: Path, system: System) -> None:
        super().__init__(receiver, folder)
        self.system = system
        self.failure: OpsAssayError | None = None
        """Why the backends have not been read for PATIENCE_S."""
        self._held = {modality: empty(modality) for modality in READ}
        self._watch = _BackendWatch(self)
        self._read_to_ns = 0

    def __enter__(self) -> Self:
        require_backends(self.system)
        super().__enter__()
        self._read_to_ns = self.since_ns
        self._watch.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._watch.__exit__(kind, error, trace)
        super().__exit__(kind, error, trace)

    def arrived_ns(self) -> int:
        """Return the UTC time in ns up to which the backends have been read."""
        return min(self._read_to_ns, super().arrived_ns())

    def tables(self) -> dict[str, pl.DataFrame]:
        """Return {modality: table} as `LiveTelemetry`; raises OpsAssayError when the backends cannot be read."""
        if self.failure is not None:
            raise self.failure
        own = super().tables()
        return {**own, **{name: merged(name, own[name], held, self.system) for name, held in self._held.items()}}

    def read_on(self) -> None:
        """Read what the backends hold since the last time, but of the last LAG_S; raises OpsAssayError."""
        now_ns = time.time_ns()
        window = Window(start_ns=self._read_to_ns, end_ns=now_ns - int(LAG_S * 1e9))
        if window.end_ns <= window.start_ns:
            return
        found, _ = read_backends(self.system, window)
        recent = pl.col("time").cast(pl.Int64) >= now_ns - int(KEPT_S * 1e9)
        both = {name: pl.concat([held, found[name]], how="diagonal_relaxed") for name, held in self._held.items()}
        self._held = {name: table.filter(recent) for name, table in both.items()}
        self._read_to_ns = window.end_ns


class _BackendWatch(Background):
    """Has *telemetry* read on every STEP_S."""

    def __init__(self, telemetry: TeamTelemetry) -> None:
        super().__init__("backends")
        self._telemetry = telemetry

    def work(self) -> None:
        """Read until the block ends; what fails is tried again, and is the telemetry's failure after PATIENCE_S."""
        well = time.monotonic()
        while self.pause(STEP_S):
            try:
                self._telemetry.read_on()
                well, self._telemetry.failure = time.monotonic(), None
            except OpsAssayError as error:
                if time.monotonic() - well >= PATIENCE_S:
                    self._telemetry.failure = error
