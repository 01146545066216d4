"""Whether a datapack can be judged at all: spans in both windows, and memory to hold them."""

from __future__ import annotations

import polars as pl
import psutil

from opsassay.core.errors import DatapackError
from opsassay.telemetry.datapack import Datapack
from opsassay.telemetry.schema import PERIODS

BYTES_PER_SPAN = 700
"""Peak memory per span, measured from 1 to 10 million spans (benchmarks/causes_speed.py), rounded up."""


def require_readable(pack: Datapack, memory_mb: int | None = None) -> None:
    """Raise DatapackError when a window of *pack* holds no spans, or when they need more memory than there is.

    *memory_mb* is the cap; without one it is what the machine has free now.
    """
    spans = {period: pack.scan(period, "traces").select(pl.len()).collect().item() for period in PERIODS}
    for period, count in spans.items():
        if not count:
            raise DatapackError(
                f"{pack.path} has no spans in its {period} window, so nothing can be compared; record it again with load."
            )
    needed_mb = sum(spans.values()) * BYTES_PER_SPAN / 2**20
    room_mb = memory_mb if memory_mb is not None else psutil.virtual_memory().available / 2**20
    if needed_mb > room_mb:
        raise DatapackError(
            f"{pack.path} has {sum(spans.values()):,} spans, which need about {needed_mb:,.0f} MB of memory, and there are "
            f"{room_mb:,.0f}: use fewer processes, a larger machine or a higher limits.memory_mb."
        )
