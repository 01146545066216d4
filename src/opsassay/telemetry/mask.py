"""Masking: copies of an incident with less telemetry, to measure how answers depend on what is observed."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

import polars as pl
from pydantic import Field

from opsassay.core.errors import UserError
from opsassay.core.schema.base import Written
from opsassay.core.schema.incident import Incident, Window
from opsassay.telemetry.content import write_datapack
from opsassay.telemetry.datapack import Datapack
from opsassay.telemetry.schema import MODALITIES, PERIODS, empty

Modality = Literal["traces", "logs", "metrics", "metrics_sum", "metrics_histogram"]


class Mask(Written):
    """The telemetry to remove from a datapack."""

    drop: tuple[Modality, ...] = Field(default=(), description="tables that are left without rows")
    trace_fraction: float = Field(default=1.0, gt=0, le=1, description="share of whole traces that is kept")
    seed: int = Field(default=0, description="another seed keeps other traces")
    normal_s: float | None = Field(default=None, gt=0, description="keep the last seconds of the normal period")
    abnormal_s: float | None = Field(default=None, gt=0, description="keep the first seconds of the abnormal period")

    @property
    def words(self) -> str:
        """The mask as text, for names of experiment arms: ``traces``, ``traces+logs``, ``traces@0.1``, ``none``."""
        share = f"traces@{self.trace_fraction:g}" + (f"s{self.seed}" if self.seed else "")
        return "+".join((*self.drop, *((share,) if self.trace_fraction < 1 else ()))) or "none"


def apply(datapack: Datapack, mask: Mask, out: Path) -> Datapack:
    """Write a copy of *datapack* without the telemetry that *mask* hides to *out*, and return it.

    *out* must not exist. The id stays, so that the truth is still found; env.json gets the mask under "mask". Whole
    traces are kept or left out by a hash of trace_id and seed; logs and metrics are not sampled. Raises UserError when
    no span would be left in a period whose traces are kept, DatapackError for a damaged table and when *out* exists.
    """
    incident = _shorten_windows(datapack.incident, mask)
    frames: dict[tuple[str, str], pl.DataFrame] = {}
    for period in PERIODS:
        for modality in MODALITIES:
            if modality in mask.drop:
                frames[period, modality] = empty(modality)
                continue
            rows = _within(datapack.read(period, modality), period, datapack.incident, incident)
            frames[period, modality] = _sample_traces(rows, mask) if modality == "traces" else rows
        if "traces" not in mask.drop and frames[period, "traces"].is_empty():
            raise UserError(f"The mask leaves no spans in the {period} period of {datapack.path}; keep more of it.")
    write_datapack(out, frames, incident, {**datapack.env, "mask": mask.model_dump(mode="json")})
    return Datapack.open(out)


def seen_of(tables: Mapping[str, pl.DataFrame], mask: Mask) -> dict[str, pl.DataFrame]:
    """Return *tables* of a live system, by modality, without what *mask* hides; the mask's window lengths do not apply."""
    return {
        name: empty(name) if name in mask.drop else _sample_traces(table, mask) if name == "traces" else table
        for name, table in tables.items()
    }


def _shorten_windows(incident: Incident, mask: Mask) -> Incident:
    """Return *incident* with both windows as short as *mask* asks, and without alerts after them."""
    normal, abnormal = incident.normal, incident.abnormal
    if mask.normal_s is not None:
        start_ns = max(normal.start_ns, normal.end_ns - round(mask.normal_s * 1e9))
        normal = Window(start_ns=start_ns, end_ns=normal.end_ns)
    if mask.abnormal_s is not None:
        end_ns = min(abnormal.end_ns, abnormal.start_ns + round(mask.abnormal_s * 1e9))
        abnormal = Window(start_ns=abnormal.start_ns, end_ns=end_ns)
    alerts = incident.alerts
    if abnormal != incident.abnormal:
        alerts = tuple(alert for alert in alerts if alert.time_ns < abnormal.end_ns)
    return incident.model_copy(update={"normal": normal, "abnormal": abnormal, "alerts": alerts})


def _within(rows: pl.DataFrame, period: str, full: Incident, shortened: Incident) -> pl.DataFrame:
    """Return those of *rows*, of *period*, in the shorter window of *shortened*, a copy of the incident *full*.

    A public table whose times all lie outside the window is cut by its own time range.
    """
    old, new = (full.normal, shortened.normal) if period == "normal" else (full.abnormal, shortened.abnormal)
    if old == new or rows.is_empty():
        return rows
    time = pl.col("time").dt.epoch("ns")
    inside = rows.filter(time.is_between(old.start_ns, old.end_ns, closed="left"))
    if inside.is_empty():
        start_ns, end_ns = rows.select(start=time.min(), end=time.max() + 1).row(0)
        length_ns = new.end_ns - new.start_ns
        new = (
            Window(start_ns=end_ns - length_ns, end_ns=end_ns)
            if period == "normal"
            else Window(start_ns=start_ns, end_ns=start_ns + length_ns)
        )
    return rows.filter(time >= new.start_ns if period == "normal" else time < new.end_ns)


def _sample_traces(spans: pl.DataFrame, mask: Mask) -> pl.DataFrame:
    """Return the spans of the share of traces that *mask* keeps, chosen by a hash of trace id and seed."""
    if mask.trace_fraction == 1:
        return spans
    limit = int(mask.trace_fraction * 2**64)
    kept = [trace for trace in spans["trace_id"].drop_nulls().unique() if _rank(trace, mask.seed) < limit]
    return spans.filter(pl.col("trace_id").is_in(kept))


def _rank(trace_id: str, seed: int) -> int:
    """Return a hash in [0, 2**64) of *trace_id* and *seed*, the same on every machine."""
    return int.from_bytes(hashlib.blake2b(f"{seed}\0{trace_id}".encode(), digest_size=8).digest(), "big")
