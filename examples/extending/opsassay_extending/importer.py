"""An importer: folders with normal.csv and abnormal.csv of spans, without a truth."""

from pathlib import Path

import polars as pl

from opsassay.core.schema.incident import Incident, Window
from opsassay.telemetry.importers.cases import (
    ImportReport,
    OnCase,
    ReadCase,
    Source,
    at_ns,
    case_id,
    folders_below,
    import_sources,
    read_csv,
)
from opsassay.telemetry.schema import MODALITIES, PERIODS, conform, empty

COLUMNS = "time_ns,trace_id,span_id,parent_span_id,span_name,service_name,duration"


def import_span_table(source: Path, out: Path, on_case: OnCase | None = None) -> ImportReport:
    """Bring the folders in *source* into the tree *out*; each table has the columns COLUMNS, times in ns."""
    folders = folders_below(source, lambda folder: (folder / "normal.csv").exists(), "expected normal.csv.")
    cases = (Source(f.name, case_id("span-table", f.name), lambda f=f: _read(f)) for f in folders)
    return import_sources(cases, out, on_case)


def _read(folder: Path) -> ReadCase:
    frames = {(period, modality): empty(modality) for period in PERIODS for modality in MODALITIES}
    windows = {}
    for period in PERIODS:
        table = read_csv(folder / f"{period}.csv")
        times = table.get_column("time_ns").cast(pl.Int64)
        windows[period] = Window(start_ns=times.min(), end_ns=times.max())
        columns = [pl.exclude("time_ns", "duration"), pl.col("duration").cast(pl.UInt64)]
        spans = table.select(*columns, time=at_ns(pl.col("time_ns")))
        frames[period, "traces"] = conform(spans.lazy(), "traces", folder.name).collect()
    return ReadCase(Incident(id=case_id("span-table", folder.name), system="tables", **windows), None, frames)
