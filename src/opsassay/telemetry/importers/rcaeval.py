"""RCAEval (RE1, RE2, RE3): a folder per run, ``SERVICE_FAULT/N``, with metrics as CSV and the time of the injection.

RE1 has ``data.csv``; RE2 and RE3 have ``simple_metrics.csv``, ``logs.csv`` and, for some systems, ``traces.csv``. A
metric column reads ``SERVICE_METRIC``; times are epoch seconds, those of spans microseconds, those of logs nanoseconds.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import polars as pl

from opsassay.core.errors import DatapackError
from opsassay.core.schema.incident import Fault, Incident, RootLabel, Truth, Window
from opsassay.telemetry import severity
from opsassay.telemetry.content import file_digest
from opsassay.telemetry.importers.cases import (
    ImportReport,
    OnCase,
    ReadCase,
    Source,
    at_ns,
    case_id,
    folders_below,
    import_sources,
    numbers,
    owner_and_metric,
    read_csv,
    split_at,
)
from opsassay.telemetry.schema import empty

_METRICS = ("simple_metrics.csv", "data.csv")
_INJECTED = "inject_time.txt"
_TYPES = {"cpu": "CPUStress", "mem": "MemoryStress", "delay": "NetworkDelay", "loss": "NetworkLoss"}


def import_rcaeval(source: Path, out: Path, on_case: OnCase | None = None) -> ImportReport:
    """Import every run in *source* into the tree *out*; rows before the injection are normal, later ones abnormal.

    Columns whose name has no service, and missing files, are in the notes of the report. For faults without a type in
    the catalogue (disk, socket, the code-level ones of RE3) only the service is recorded as the root cause. Raises
    UserError when *source* holds no such run. *on_case* gets each case's name and outcome.
    """
    expected = f"expected folders SERVICE_FAULT/N with {_INJECTED} and {' or '.join(_METRICS)}."
    return import_sources(
        _list_sources(folders_below(source, lambda f: (f / _INJECTED).exists(), expected)), out, on_case
    )


def _list_sources(folders: Iterator[Path]) -> Iterator[Source]:
    """Yield a source for each case folder in *folders*; its id is a hash, so it does not reveal the answer."""
    for folder in folders:
        name = "/".join(folder.parts[-3:])
        # The folder's name is the answer, so the id follows from the recording alone.
        metrics = next((folder / n for n in _METRICS if (folder / n).exists()), folder / _INJECTED)
        id_ = case_id("rcaeval", file_digest(metrics))
        yield Source(name, id_, partial(_read_case, folder, id_), by_content=True)


def _read_case(folder: Path, id_: str) -> ReadCase:
    """Return truth and telemetry of the case *id_* in *folder*; raises DatapackError."""
    service, _, fault = folder.parent.name.rpartition("_")
    if not service:
        raise DatapackError(f"{folder.parent.name} is not SERVICE_FAULT, so the truth of {folder} is not known.")
    injected_ns = _read_injection_ns(folder / _INJECTED)
    path = next((folder / n for n in _METRICS if (folder / n).exists()), None)
    if path is None:
        raise DatapackError(f"{folder} has neither {' nor '.join(_METRICS)}; restore it from the source.")
    metrics, notes = _read_metrics(path)
    whole = {"metrics": metrics, "traces": empty("traces"), "logs": empty("logs")}
    for modality, reader in (("traces", _traces), ("logs", _read_logs)):
        if (folder / f"{modality}.csv").exists():
            whole[modality] = reader(folder / f"{modality}.csv")
        else:
            notes.append(f"there is no {modality}.csv")
    system = folder.parent.parent.name.lower() or "rcaeval"
    frames = split_at(injected_ns, whole)
    if not frames["normal", "metrics"].height or not frames["abnormal", "metrics"].height:
        raise DatapackError(f"{path} has no rows on one side of {_INJECTED}; restore both from the source.")
    times = metrics.get_column("time").dt.epoch("ns")
    first, last = int(str(times.min())), int(str(times.max())) + 1_000_000_000
    incident = Incident(
        id=id_,
        system=system,
        normal=Window(start_ns=first, end_ns=injected_ns),
        abnormal=Window(start_ns=injected_ns, end_ns=last),
        provenance={"format": "rcaeval"},
    )
    kind = _TYPES.get(fault)
    if kind is None:
        notes.append(f"the fault {fault} has no type in the catalogue: no fault kind is graded")
    known = () if kind is None else (Fault(type=kind, service=service, start_ns=injected_ns, end_ns=last),)
    truth = Truth(
        id=id_, system=system, faults=known, roots=(RootLabel(service=(service,)),), notes=(f"rcaeval: {fault}",)
    )
    return ReadCase(incident, truth, frames, {"namespace": system}, notes=tuple(notes))


def _read_injection_ns(path: Path) -> int:
    """Read the file *path*, the time of the injection in epoch seconds; return it in ns; raises DatapackError."""
    text = path.read_text(encoding="utf-8").strip()
    try:
        return int(float(text) * 1e9)
    except ValueError as error:
        raise DatapackError(f"{path} holds {text[:40]!r} instead of epoch seconds; restore it.") from error


def _read_metrics(path: Path) -> tuple[pl.DataFrame, list[str]]:
    """Return (metric rows of the CSV file *path*, notes on what is left out)."""
    table = read_csv(path)
    if "time" not in table.columns:
        raise DatapackError(f"{path} has no column 'time'; restore it from the source.")
    columns = [c for c in table.columns if c not in {"time", "time.1"}]
    split = {c: owner_and_metric(c, "_") for c in columns}
    nameless = [c for c, (service, _) in split.items() if not service]
    named = [c for c in columns if c not in nameless]
    names = pl.DataFrame(
        {"column": named, "service_name": [split[c][0] for c in named], "metric": [split[c][1] for c in named]},
        schema=dict.fromkeys(("column", "service_name", "metric"), pl.String),
    )
    long = (
        table.select(at_ns(numbers("time") * 1e9).alias("time"), *(numbers(c).alias(c) for c in named))
        .unpivot(index="time", variable_name="column", value_name="value")
        .join(names, on="column", maintain_order="left")
        .select("time", "metric", pl.when(pl.col("value").is_finite()).then("value").alias("value"), "service_name")
    )
    unread = long.get_column("time").null_count()
    notes = [f"{path.name}: the column {c!r} names no service and is left out" for c in nameless]
    notes += [f"{path.name}: {unread} readings have no time and are left out"] if unread else []
    return long.drop_nulls("time"), notes


def _traces(path: Path) -> pl.DataFrame:
    """Return the spans in the file *path*, whose starts and durations are in microseconds, in the columns of a datapack."""
    table = read_csv(path)
    status = numbers("statusCode") if "statusCode" in table.columns else pl.lit(None, pl.Float64)
    return table.select(
        time=at_ns(numbers("startTime") * 1000),
        trace_id="traceID",
        span_id="spanID",
        parent_span_id="parentSpanID",
        span_name="operationName",
        service_name="serviceName",
        duration=(numbers("duration") * 1000).cast(pl.UInt64, strict=False).fill_null(0),
        **{"attr.http.response.status_code": status.cast(pl.UInt16, strict=False)},
    ).drop_nulls(["time", "trace_id", "span_id"])


def _read_logs(path: Path) -> pl.DataFrame:
    """Return the log lines in the CSV file *path*, in the columns of a datapack."""
    table = read_csv(path)
    given = pl.col("level") if "level" in table.columns else pl.lit(None, pl.String)
    found = pl.coalesce(given, pl.col("message").str.extract(severity.WORD)).fill_null("INFO")
    return table.select(
        time=at_ns(numbers("timestamp")),
        level=found.str.to_uppercase(),
        service_name="container_name",
        message=pl.col("message").fill_null(""),
    ).drop_nulls("time")
