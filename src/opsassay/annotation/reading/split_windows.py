"""A datapack whose windows meet where the fault began, for recordings whose abnormal window begins later than the fault."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl

from opsassay.core.schema.faults import NO_FAULT
from opsassay.core.schema.incident import Fault
from opsassay.telemetry.datapack import Datapack

LEAST_SHARE = 0.5
"""The normal window is not shortened below this share of its length."""


@dataclass(frozen=True, eq=False)
class SplitWindows(Datapack):
    """A datapack whose normal window ends with the beginning of the fault; what came after counts as abnormal."""

    def scan(self, period: str, modality: str) -> pl.LazyFrame:
        """Return the rows of table *modality* in *period*; a request that crosses the fault's start is abnormal."""
        normal = super().scan("normal", modality)
        late = pl.col("time").dt.epoch("ns") >= self.incident.normal.end_ns
        if "trace_id" in normal.collect_schema().names():
            met = super().scan("normal", "traces").filter(late).select("trace_id").unique()
            normal = normal.join(met.with_columns(met=pl.lit(value=True)), on="trace_id", how="left")
            late = pl.col("met").fill_null(value=False) | ((pl.col("trace_id").fill_null("") == "") & late)
        rest = pl.exclude("met")
        if period == "normal":
            return normal.filter(~late).select(rest)
        return pl.concat([normal.filter(late).select(rest), super().scan(period, modality)], how="diagonal")


def parted_at_fault(pack: Datapack, faults: Sequence[Fault]) -> Datapack:
    """Return *pack* with its windows split where the first of *faults* began, if late in the normal one; else *pack*."""
    began = min((f.start_ns for f in faults if f.type != NO_FAULT), default=None)
    whole, after = pack.incident.normal, pack.incident.abnormal
    least = whole.start_ns + int(LEAST_SHARE * (whole.end_ns - whole.start_ns))
    if whole.end_ns > after.start_ns:
        return pack  # overlapping windows have no line between them
    if began is None or not least <= began < min(whole.end_ns, after.end_ns):
        return pack
    windows = {
        "normal": whole.model_copy(update={"end_ns": began}),
        "abnormal": after.model_copy(update={"start_ns": began}),
    }
    return SplitWindows(pack.path, pack.incident.model_copy(update=windows), pack.env)
