"""Checks before annotation: spans in both windows, and enough memory for them or for a sample of their traces."""

from __future__ import annotations

import math
from dataclasses import dataclass

import polars as pl
import psutil

from opsassay.core.errors import DatapackError
from opsassay.telemetry.datapack import Datapack
from opsassay.telemetry.schema import PERIODS

BYTES_PER_SPAN = 300
"""Peak memory per span, measured from 1 to 10 million spans (benchmarks/causes_speed.py), rounded up."""

FEWEST_SPANS = 200_000
"""The fewest spans of a sample; if memory allows no more, the datapack is refused."""


@dataclass(frozen=True, eq=False, kw_only=True)
class SampledTraces(Datapack):
    """A datapack of which every *one_of*-th trace is read, with its spans and log lines; metrics are read whole.

    Which traces these are follows from their ids alone (the hash of polars).
    """

    whole: Datapack
    one_of: int

    def scan(self, period: str, modality: str) -> pl.LazyFrame:
        """Return the rows of *modality* in *period* that belong to sampled traces or to no trace."""
        table = self.whole.scan(period, modality)
        if "trace_id" not in table.collect_schema().names():
            return table
        trace = pl.col("trace_id").fill_null("")
        return table.filter((trace.hash(3) % self.one_of == 0) | (trace == ""))


def fit_in_memory(pack: Datapack, memory_mb: int | None = None) -> tuple[Datapack, tuple[str, ...]]:
    """Return (*pack*, ()), or (a sample of its traces, (a note,)) when its spans need too much memory.

    *memory_mb* is the limit beyond the 200 MB of the program itself; None: the memory that is free now. Raises
    DatapackError when a window holds no spans, and when no sample is possible: fewer than FEWEST_SPANS spans, or
    messages between traces.
    """
    spans = {period: pack.scan(period, "traces").select(pl.len()).collect().item() for period in PERIODS}
    for period, count in spans.items():
        if not count:
            raise DatapackError(
                f"{pack.path} has no spans in its {period} window, so nothing can be compared; record it again with load."
            )
    total = sum(spans.values())
    needed = total * BYTES_PER_SPAN
    room = memory_mb * 2**20 if memory_mb is not None else psutil.virtual_memory().available
    if needed <= room:
        return pack, ()
    one_of = math.ceil(needed / room)
    about = f"{total:,} spans, which need about {needed / 2**20:,.0f} MB of memory, and there are {room / 2**20:,.0f}"
    if total / one_of < FEWEST_SPANS or any(_has_links(pack, period) for period in PERIODS):
        raise DatapackError(
            f"{pack.path} has {about}: use fewer processes, a larger machine or a higher limits.memory_mb."
        )
    sample = SampledTraces(pack.path, pack.incident, pack.env, whole=pack, one_of=one_of)
    return sample, (f"One in {one_of} traces is read: there are {about}.",)


def _has_links(pack: Datapack, period: str) -> bool:
    """Return whether any span of *period* links to a span of another trace, as consumers of messages do."""
    table = pack.scan(period, "traces")
    if "attr.links" not in table.collect_schema().names():
        return False
    links = pl.col("attr.links").cast(pl.String).str.contains(":", literal=True)
    return bool(table.select(links.any()).collect().item())
