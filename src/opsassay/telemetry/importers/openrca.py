"""OpenRCA (microsoft/OpenRCA): a day of telemetry per folder, ``telemetry/YYYY_MM_DD/{metric,trace,log}``.

``record.csv`` lists the failures (component, timestamp, reason); ``query.csv`` has the questions. The systems name their
columns differently; COLUMNS lists the names that are read.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import polars as pl

from opsassay.core.errors import DatapackError
from opsassay.core.schema.incident import Fault, Incident, RootLabel, Truth, Window
from opsassay.telemetry import severity
from opsassay.telemetry.importers.cases import (
    Frames,
    ImportReport,
    OnCase,
    ReadCase,
    Source,
    at_ns,
    case_id,
    folders_below,
    import_sources,
    numbers,
    read_csv,
    split_at,
)
from opsassay.telemetry.schema import SCHEMA, empty

BEFORE_S, AFTER_S = 1800, 600
"""Seconds of the normal period before a failure, and of the abnormal period after it; queries cover half an hour."""

ZONE = ZoneInfo("Asia/Shanghai")
"""The time zone of the days' folders; timestamps are epoch seconds or milliseconds."""

_REASONS = (
    ("network latency", "NetworkDelay"),
    ("network delay", "NetworkDelay"),
    ("packet loss", "NetworkLoss"),
    ("network loss", "NetworkLoss"),
    ("packet corruption", "NetworkCorrupt"),
    ("process termination", "PodKill"),
    ("jvm out of memory", "JVMMemoryStress"),
    ("jvm cpu", "JVMCPUStress"),
    ("cpu", "CPUStress"),
    ("memory", "MemoryStress"),
)
"""The first entry whose text is part of a reason gives the fault type; other reasons have none."""


def import_openrca(source: Path, out: Path, on_case: OnCase | None = None) -> ImportReport:
    """Import every failure of record.csv in the systems of *source* into the tree *out*.

    Two failures within the abnormal period of one are one incident with two root causes. Missing files, and files with
    unknown columns, are in the notes of the report; a failure without any telemetry is reported as failed.
    *on_case* gets each name and outcome. Raises UserError without a record.csv, DatapackError if it lacks a column.
    """
    expected = "expected a system's folder with record.csv and telemetry/YYYY_MM_DD."
    systems = list(folders_below(source, lambda f: (f / "record.csv").exists(), expected))
    return import_sources((case for system in systems for case in _list_sources(system)), out, on_case)


def _list_sources(system: Path) -> Iterator[Source]:
    """Yield a source for each incident of the folder *system*: a failure, or several in one abnormal period."""
    records = read_csv(system / "record.csv")
    lacking = {"component", "timestamp", "reason"} - set(records.columns)
    if lacking:
        raise DatapackError(f"{system / 'record.csv'} lacks {', '.join(sorted(lacking))}; restore it from the source.")
    rows = records.with_columns(at_s=numbers("timestamp")).drop_nulls("at_s").sort("at_s").to_dicts()
    name = f"openrca-{system.name.lower()}"
    until = float("-inf")
    for row in rows:
        if row["at_s"] < until:
            continue  # part of the incident before
        until = row["at_s"] + AFTER_S
        together = [other for other in rows if row["at_s"] <= other["at_s"] < until]
        moment = datetime.fromtimestamp(row["at_s"], UTC)
        case = f"{name} {moment:%Y-%m-%d %H:%M:%S}"
        read = partial(_read_case, system, name, case, together)
        yield Source(case, case_id("openrca", case), read, truth_notes=partial(_truth_notes, together))


def _truth_notes(records: list[dict[str, Any]]) -> tuple[str, ...]:
    """Return the notes for the truth of *records*: component and reason of each."""
    return tuple(f"openrca: {row['component']}: {row['reason']}" for row in records)


def _read_case(system: Path, name: str, case: str, records: list[dict[str, Any]]) -> ReadCase:
    """Read the case *case* of the system *name*: *records*, its failures, and telemetry; raises DatapackError."""
    id_, begun_s = case_id("openrca", case), float(records[0]["at_s"])
    begun_ns, second = int(begun_s * 1e9), 1_000_000_000
    day = system / "telemetry" / datetime.fromtimestamp(begun_s, ZONE).strftime("%Y_%m_%d")
    if not day.is_dir():
        raise DatapackError(f"{system} has no telemetry/{day.name} for the failure of {case}; this sample lacks it.")
    incident = Incident(
        id=id_,
        system=name,
        normal=Window(start_ns=begun_ns - BEFORE_S * second, end_ns=begun_ns),
        abnormal=Window(start_ns=begun_ns, end_ns=begun_ns + AFTER_S * second),
        provenance={"format": "openrca", "licence": "MIT"},
    )
    frames, notes = _read_frames(day, incident)
    if not any(frame.height for frame in frames.values()):
        raise DatapackError(f"{day} has no rows around the failure of {case}; restore it from the source.")
    faults = [_make_fault(row, incident.abnormal.end_ns) for row in records]
    notes += [f"the reason {row['reason']!r} has no type" for row, f in zip(records, faults, strict=True) if f is None]
    truth = Truth(
        id=id_,
        system=name,
        faults=tuple(f for f in faults if f) if all(faults) else (),
        roots=tuple(root_label(row["component"]) for row in records),
        notes=_truth_notes(records),
    )
    return ReadCase(incident, truth, frames, {"namespace": name}, notes=tuple(notes))


def _make_fault(row: dict[str, Any], end_ns: int) -> Fault | None:
    """Return the failure *row* of record.csv as a fault that lasts until *end_ns*; None when its reason has no type."""
    kind = reason_type(str(row["reason"]))
    if kind is None:
        return None
    place = root_label(row["component"])
    pod = place.pod[0] if place.pod else None
    return Fault(type=kind, service=place.service[0], pod=pod, start_ns=int(row["at_s"] * 1e9), end_ns=end_ns)


def reason_type(reason: str) -> str | None:
    """Return the chaos type for *reason*, as record.csv words it; None when the catalogue has none."""
    return next((kind for part, kind in _REASONS if part in reason.lower()), None)


def root_label(component: str) -> RootLabel:
    """Return the root label of *component*: a pod ``cart2-0`` counts as the service ``cart`` too."""
    named = pl.DataFrame({"service_name": [component]}, schema={"service_name": pl.String})
    service, pod = named.select(**_place_ids()).select("service_name", "attr.k8s.pod.name").row(0)
    return RootLabel(service=(service,), pod=(pod,) if pod else ())


COLUMNS: dict[str, dict[str, tuple[str, ...]]] = {
    "trace": {
        "time": ("timestamp", "startTime"),
        "trace_id": ("trace_id", "traceId"),
        "span_id": ("span_id", "id"),
        "parent_span_id": ("parent_span", "parent_id", "pid"),
        "service_name": ("cmdb_id",),
        "span_name": ("operation_name", "serviceName", "dsName", "callType"),
        "duration": ("duration", "elapsedTime"),
        "status": ("status_code", "success"),
    },
    "log": {"time": ("timestamp",), "service_name": ("cmdb_id",), "message": ("value",)},
    "metric": {
        "time": ("timestamp", "startTime"),
        "service_name": ("cmdb_id", "service", "serviceName", "tc"),
        "metric": ("kpi_name", "name"),
        "value": ("value",),
    },
}
"""By kind of file, our column to the names that systems give it."""

NS_PER_DURATION = {"parent_span": 1_000, "parent_id": 1_000_000, "pid": 1_000_000}
"""The unit of span durations in ns, by the name of the parent column: us in Market, ms in Bank and Telecom.

Source: spans of the public files. A Market span of 49,877 whose children start up to 50 ms after it, in milliseconds of
epoch, lasts 49.9 ms. `_odd_durations` checks each file for the same.
"""

FACTOR = 30
"""Largest ratio, in the median, of a trace's longest span and the time between its first and last start."""

FEWEST_TRACES = 5
"""Least number of traces with several starts for which units are checked."""

_OPTIONAL = {"trace": {"span_name", "status", "parent_span_id"}, "log": set(), "metric": {"metric", "value"}}


def _read_frames(day: Path, incident: Incident) -> tuple[Frames, list[str]]:
    """Return (tables of *day* within the incident's windows, notes on what is missing or odd)."""
    notes: list[str] = []
    parts: dict[str, list[pl.DataFrame]] = {"traces": [], "logs": [], "metrics": []}
    start_s, end_s = incident.normal.start_ns / 1e9, incident.abnormal.end_ns / 1e9
    for kind, modality in (("trace", "traces"), ("log", "logs"), ("metric", "metrics")):
        files = sorted((day / kind).glob("*.csv"))
        notes += [] if files else [f"{day.name}/{kind} has no files"]
        for path in files:
            table = _within(path, kind, start_s, end_s)
            if isinstance(table, str):
                notes.append(table)
            else:
                read = {"trace": _traces, "log": _fill_log_columns, "metric": _metrics}[kind](table)
                notes += _odd_durations(read, path.name) if kind == "trace" else []
                parts[modality].append(read.with_columns(**_place_ids()))
    whole = {m: pl.concat(found, how="diagonal_relaxed") if found else empty(m) for m, found in parts.items()}
    known = {m: table.select([c for c in table.columns if c in SCHEMA[m]]) for m, table in whole.items()}
    return split_at(incident.abnormal.start_ns, known), notes


def _within(path: Path, kind: str, start_s: float, end_s: float) -> pl.DataFrame | str:
    """Return the rows of the CSV *path* from *start_s* to *end_s* (epoch) as COLUMNS[*kind*], or why it cannot be read."""
    try:
        lazy = pl.scan_csv(path, infer_schema=False)
        given = lazy.collect_schema().names()
    except (pl.exceptions.PolarsError, OSError) as error:
        return f"{path.parent.name}/{path.name} cannot be read as CSV ({str(error).splitlines()[0]})"
    chosen = {ours: next((n for n in names if n in given), None) for ours, names in COLUMNS[kind].items()}
    lacking = sorted(ours for ours, name in chosen.items() if name is None and ours not in _OPTIONAL[kind])
    if lacking:
        return f"{path.parent.name}/{path.name} has no column for {', '.join(lacking)} and is left out"
    stamp = numbers(str(chosen["time"]))
    seconds = pl.when(stamp > 1e11).then(stamp / 1000).otherwise(stamp)  # milliseconds or seconds
    picked = [pl.col(name).alias(ours) for ours, name in chosen.items() if name is not None and ours != "time"]
    used = {name for name in chosen.values() if name}
    unit = next((ns for column, ns in NS_PER_DURATION.items() if column in given), 1_000_000)
    picked += [pl.lit(unit).alias("ns_per_duration")] if kind == "trace" else []
    others = [pl.col(c) for c in given if c not in used and kind == "metric" and chosen["value"] is None]
    return (
        lazy.select(*picked, *others, time=seconds)
        .filter(pl.col("time").is_between(start_s, end_s, closed="left"))
        .with_columns(time=at_ns((pl.col("time") * 1e9).round()))
        .collect(engine="streaming")
    )


def _traces(table: pl.DataFrame) -> pl.DataFrame:
    """Return *table* as spans; the parent column's name tells the system, and by that the unit of durations."""
    have = set(table.columns)
    status = pl.col("status").str.to_lowercase() if "status" in have else pl.lit(None, pl.String)
    failed = ~status.is_in(["0", "200", "ok", "true", "0.0"]) & status.is_not_null()
    return table.with_columns(
        duration=(numbers("duration") * pl.col("ns_per_duration"))
        .clip(lower_bound=0)
        .cast(pl.UInt64, strict=False)
        .fill_null(0),
        parent_span_id=pl.col("parent_span_id").replace("None", "").fill_null("")
        if "parent_span_id" in have
        else pl.lit(""),
        span_name=pl.col("span_name") if "span_name" in have else pl.lit(""),
        **{"attr.status_code": pl.when(failed).then(pl.lit("Error")).otherwise(pl.lit("Unset"))},
    )


def _odd_durations(spans: pl.DataFrame, name: str) -> list[str]:
    """Return a note if durations in the file *name* do not fit the starts in their traces, as in another unit; else []."""
    start = pl.col("time").dt.epoch("ns")
    traces = spans.group_by("trace_id").agg(apart=start.max() - start.min(), longest=pl.col("duration").max())
    ratios = traces.filter(pl.col("apart") > 0).select(pl.col("longest") / pl.col("apart")).to_series()
    ratio = ratios.median()
    if ratios.len() < FEWEST_TRACES or not isinstance(ratio, float) or 1 / FACTOR <= ratio <= FACTOR:
        return []
    return [
        f"trace/{name}: the longest span of a trace lasts {ratio:.2g} times what lies between its first and last start"
    ]


def _place_ids() -> dict[str, pl.Expr]:
    """Return column to expression for service, pod and node, by the ids of Market; an id of another system is a service.

    ``node-6`` is a node, ``node-6.ad2-0`` a pod on it; ``ad-0`` and ``ad2-0`` are pods of ``ad``, as
    ``ad-0.source.ad.db`` is; ``ad-grpc`` and ``ad.ts:8088`` are the service ``ad``. A node is a service too, so that it
    can be named.
    """
    given = pl.col("service_name")
    bare = (
        given.str.replace(r"^node-\d+\.", "")
        .str.replace(r"\.(?:source|destination)\..*$", "")
        .str.replace(r"2?(?:-grpc|-http|\.[a-z]+:\d+)$", "")
    )
    is_pod = bare.str.contains(r"-\d+$") & ~bare.str.contains(r"^node-\d+$")
    return {
        "service_name": pl.when(is_pod).then(bare.str.replace(r"2?-\d+$", "")).otherwise(bare),
        "attr.k8s.pod.name": pl.when(is_pod).then(bare),
        "attr.k8s.node.name": given.str.extract(r"^(node-\d+)(?:\.|$)"),
    }


def _fill_log_columns(table: pl.DataFrame) -> pl.DataFrame:
    """Return log rows in the columns of a datapack; the level is found in the message, else INFO."""
    found = pl.col("message").str.extract(severity.WORD)
    return table.with_columns(level=found.str.to_uppercase().fill_null("INFO"), message=pl.col("message").fill_null(""))


def _metrics(table: pl.DataFrame) -> pl.DataFrame:
    """Return *table* as metric rows; each measurement column of a wide file, such as request rate, is a metric."""
    if "value" in table.columns and "metric" in table.columns:
        return table.with_columns(value=numbers("value"))
    wide = [c for c in table.columns if c not in {"time", "service_name", "metric"}]
    return table.unpivot(wide, index=["time", "service_name"], variable_name="metric", value_name="value").with_columns(
        value=numbers("value")
    )
