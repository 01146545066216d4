"""What is seen of a trial's system while it lasts, on whatever stage: its live telemetry, and whether users are served."""

from __future__ import annotations

import shutil
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

import polars as pl

from opsassay.core.schema.run_folder import LIVE
from opsassay.testbed.core.substrate import Receiver
from opsassay.testbed.operations.live import LiveTelemetry

SERVED_OVER_S, SERVED_SHARE, SERVED_WITHIN_NS = 6.0, 0.95, 1_500_000_000
"""Users are served when of the last seconds' requests so many were answered, and so soon."""


@contextmanager
def live_telemetry(receiver: Receiver, run_dir: Path) -> Iterator[LiveTelemetry]:
    """Read what *receiver* accepts while the block runs; nothing of it stays in *run_dir*."""
    folder = run_dir / LIVE
    try:
        with LiveTelemetry(receiver, folder) as telemetry:
            yield telemetry
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def users_are_served(telemetry: LiveTelemetry, entries: Collection[str]) -> bool:
    """Return whether nearly all requests of the last seconds were answered well and in time."""
    since = time.time_ns() - int(SERVED_OVER_S * 1e9)
    handled = telemetry.tables()["traces"].filter(
        pl.col("service_name").is_in(list(entries))
        & (pl.col("attr.span_kind") == "Server")
        & (pl.col("time").cast(pl.Int64) >= since)
    )
    good = handled.filter((pl.col("attr.status_code") != "Error") & (pl.col("duration") < SERVED_WITHIN_NS))
    return handled.height > 0 and good.height >= SERVED_SHARE * handled.height
