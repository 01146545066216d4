"""Nezha (IntelligentDDS/Nezha): traces, logs and metrics as CSV, a file per minute, and a list of faults per day.

``construct_data/DATE/{trace,log,metric}`` is the system without a fault, ``rca_data/DATE/{trace,log,metric}`` with
faults, and ``rca_data/DATE/DATE-fault_list.json`` lists time, pod and type of each fault.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import cache, partial
from pathlib import Path
from typing import Any

import polars as pl

from opsassay.core.errors import DatapackError
from opsassay.core.schema.faults import NO_FAULT
from opsassay.core.schema.incident import Fault, Incident, RootLabel, Truth, Window
from opsassay.core.text import first_line
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
)
from opsassay.telemetry.schema import empty

MINUTES = 3
"""Number of files (minutes) that a fault affects: that of its injection and the two after it."""
QUIET_MINUTES = 10
"""Minutes of metrics before a fault that count as normal: the no-fault recording has few metrics or none."""
_MINUTE_NS = 60_000_000_000
"""Metrics are sampled once a minute; a sample describes the minute before it."""

_TYPES = {
    "return": "JVMReturn",
    "exception": "JVMException",
    "cpu_contention": "CPUStress",
    "cpu_consumed": "CPUStress",
    "network_delay": "NetworkDelay",
}
_METRICS = {
    "CpuUsage(m)": ("k8s.pod.cpu.usage", 1e-3),
    "CpuUsageRate(%)": ("k8s.pod.cpu_limit_utilization", 1e-2),
    "MemoryUsage(Mi)": ("k8s.pod.memory.working_set", 2.0**20),
    "MemoryUsageRate(%)": ("k8s.pod.memory_limit_utilization", 1e-2),
    "NetworkReceiveBytes": ("k8s.pod.network.io.receive", 1.0),
    "NetworkTransmitBytes": ("k8s.pod.network.io.transmit", 1.0),
    "PodWorkload(Ops)": ("http.server.request.rate", 1.0),
    "NodeCpuUsageRate(%)": ("k8s.node.cpu.utilization", 1e-2),
    "NodeMemoryUsageRate(%)": ("k8s.node.memory.utilization", 1e-2),
    "NodeNetworkReceiveBytes": ("k8s.node.network.io.receive", 1.0),
    **{
        f"Pod{side}LatencyP{share}(s)": (f"http.{side.lower()}.request.duration.p{share}", 1.0)
        for side in ("Client", "Server")
        for share in ("90", "95", "99")
    },
    **{f"LatencyP{share}(s)": (f"http.request.duration.p{share}", 1.0) for share in ("50", "90", "95", "99")},
}
"""OpenTelemetry-like name of each known column, and the factor to its unit (bytes, s, 1/s, shares).

Other columns keep their names. Columns without a pod are those of front_service.csv, measured at the system's entry.
"""

_LEVEL = r"\s(TRACE|DEBUG|INFO|WARN|ERROR|FATAL)\s"
_SEVERITY = r'(?i)"severity\\*"\s*:\s*\\*"([a-z]+)'


def import_nezha(source: Path, out: Path, on_case: OnCase | None = None) -> ImportReport:
    """Import every fault of the days in *source*, and one case without a fault per day, into the tree *out*.

    *source* is rca_data/DATE or any folder above it. The normal period is the day's no-fault recording; the abnormal
    one begins at ``inject_time``, which is UTC (``inject_timestamp`` is about eight hours off on some mornings and is
    not used), and is MINUTES files long. Normal metrics are those of the normal period and of the QUIET_MINUTES before
    the fault, without minutes of other faults. A fault whose files are missing is reported as failed. Raises UserError
    when *source* holds no list of faults, DatapackError for one that cannot be read. *on_case* gets name and outcome.
    """
    expected = (
        "expected rca_data/DATE with DATE-fault_list.json, or a folder above, and construct_data beside rca_data."
    )
    folders = folders_below(Path(source).absolute(), lambda folder: any(folder.glob("*fault_list.json")), expected)
    days = [path for folder in folders for path in sorted(folder.glob("*fault_list.json"))]
    return import_sources((case for day in days for case in _list_sources(day)), out, on_case)


def _list_sources(fault_list: Path) -> Iterator[Source]:
    """Yield a source for each fault in the file *fault_list*, and one for the day's recording without a fault."""
    day, root = fault_list.parent, fault_list.parent.parent.parent
    usual = root / "construct_data" / day.name
    normal = cache(lambda: _recording(usual, sorted(p.name[:5] for p in (usual / "trace").glob("*_trace.csv"))))
    try:
        hours: dict[str, list[dict[str, str]]] = json.loads(fault_list.read_bytes())
        faults = sorted((f for hour in hours.values() for f in hour), key=lambda f: f["inject_time"])
    except (ValueError, KeyError, AttributeError, TypeError) as error:
        raise DatapackError(f"{fault_list} is no list of faults ({first_line(error)}); restore it.") from error
    for fault in faults:
        name = f"{day.name} {fault['inject_time'][11:]}"
        read = partial(_read_case, name, day, fault, normal, _minutes_with_faults(faults))
        yield Source(name, case_id("nezha", name), read, truth_notes=partial(_truth_notes, fault))
    if usual.is_dir():
        name = f"{day.name} without a fault"
        yield Source(name, case_id("nezha", name), partial(_without_fault, name, day, normal))


def _truth_notes(fault: dict[str, str]) -> tuple[str, ...]:
    """Return the notes for the truth of *fault*: its entry in the list of faults, as text."""
    return (f"nezha: {json.dumps(fault, sort_keys=True)}",)


def _time_of_injection(fault: dict[str, str]) -> datetime:
    """Return when *fault* was injected, in UTC."""
    return datetime.fromisoformat(fault["inject_time"]).replace(tzinfo=UTC)


def _minutes_with_faults(faults: list[dict[str, str]]) -> pl.Expr:
    """Return the filter for metric rows whose time lies in the minutes in which any of *faults* acted."""
    at, lasting = pl.col("time").dt.epoch("ns"), (MINUTES + 1) * _MINUTE_NS
    starts = [int(_time_of_injection(fault).timestamp()) * 1_000_000_000 for fault in faults]
    return pl.any_horizontal(pl.lit(value=False), *(at.is_between(s, s + lasting, closed="left") for s in starts))


def _read_case(name: str, day: Path, fault: dict[str, str], normal: Any, disturbed: pl.Expr) -> ReadCase:
    """Read the case of one *fault* from the files of *day*; raises DatapackError when they are missing.

    *normal* returns the tables without a fault, by modality; *disturbed* is the filter of `_minutes_with_faults`.
    """
    begun = _time_of_injection(fault)
    minutes = [(begun + timedelta(minutes=i)).strftime("%H_%M") for i in range(MINUTES)]
    there = [minute for minute in minutes if (day / "trace" / f"{minute}_trace.csv").exists()]
    if not there:
        raise DatapackError(
            f"{day} has no trace of {minutes[0].replace('_', ':')}, when the fault began; this sample lacks it."
        )
    begun_ns = int(begun.timestamp()) * 1_000_000_000
    after = {
        modality: frame.filter(pl.col("time").dt.epoch("ns") >= begun_ns)
        for modality, frame in _recording(day, there).items()
    }
    pod = fault["inject_pod"]
    service, kind = service_of(pod), _TYPES.get(fault["inject_type"])
    system = _name_system(service)
    incident = _make_incident(case_id("nezha", name), system, normal(), after)
    where = _read_inner_labels(day, service, fault["inject_type"])
    label = RootLabel(service=(service,), pod=(pod,), container=(service,), **where)
    known = () if kind is None else (
        Fault(type=kind, service=service, pod=pod, start_ns=begun_ns, end_ns=begun_ns + MINUTES * 60 * 1_000_000_000),
    )  # fmt: skip
    notes = [f"{m.replace('_', ':')} is not in this sample" for m in minutes if m not in there]
    notes += (
        [] if known else [f"inject_type {fault['inject_type']} has no type in the catalogue: no fault kind is graded"]
    )
    notes += [] if after["logs"].height else ["there are no logs of these minutes"]
    truth = Truth(id=incident.id, system=system, faults=known, roots=(label,), notes=_truth_notes(fault))
    frames = _split_frames(day, incident, normal(), after)
    at, metrics, ends_ns = (
        pl.col("time").dt.epoch("ns"),
        _metrics(day, _find_entry_service(normal())),
        incident.abnormal.end_ns,
    )
    before = at.is_between(begun_ns - QUIET_MINUTES * _MINUTE_NS, begun_ns, closed="left") & ~disturbed
    during = at.is_between(begun_ns, min(ends_ns, begun_ns + MINUTES * _MINUTE_NS) + _MINUTE_NS, closed="left")
    frames["normal", "metrics"] = pl.concat(
        [frames["normal", "metrics"].filter(~disturbed), metrics.filter(before)]
    ).unique(maintain_order=True)
    frames["abnormal", "metrics"] = metrics.filter(during)
    return ReadCase(incident, truth, frames, {"namespace": system}, notes=tuple(notes))


def _without_fault(name: str, day: Path, normal: Any) -> ReadCase:
    """Return the case *name* of *day* without a fault: the halves of the tables that *normal* returns."""
    whole = normal()
    middle = whole["traces"].get_column("time").sort()[whole["traces"].height // 2]
    first = {modality: frame.filter(pl.col("time") < middle) for modality, frame in whole.items()}
    second = {modality: frame.filter(pl.col("time") >= middle) for modality, frame in whole.items()}
    system = _name_system(str(whole["traces"].get_column("service_name")[0]))
    incident = _make_incident(case_id("nezha", name), system, first, second)
    window = incident.abnormal
    nothing = Fault(type=NO_FAULT, service=None, start_ns=window.start_ns, end_ns=window.end_ns)
    note = "the second half of the no-fault recording stands for the abnormal period"
    truth = Truth(id=incident.id, system=system, faults=(nothing,), notes=(note,))
    return ReadCase(incident, truth, _split_frames(day, incident, first, second), {"namespace": system})


def service_of(pod: str) -> str:
    """Return the service of *pod*: its name without the hashes of replica set and pod."""
    return pod.rsplit("-", 2)[0] if pod.count("-") > 1 else pod


def _name_system(service: str) -> str:
    """Return the system that has *service*: ``ts`` (Train Ticket) or ``hipster``."""
    return "ts" if service.startswith("ts-") else "hipster"


def _read_inner_labels(day: Path, service: str, kind: str) -> dict[str, tuple[str, ...]]:
    """Return {"function" or "metric": (name,)}, the place of a *kind* of fault in *service*; {} if no file has it."""
    for path in sorted((day.parent.parent / "construct_data").glob("root_cause_*.json")):
        found = json.loads(path.read_bytes()).get(service, {}).get(kind)
        if found:
            return {"function" if kind in {"return", "exception"} else "metric": (found,)}
    return {}


def _recording(folder: Path, minutes: list[str]) -> dict[str, pl.DataFrame]:
    """Return the tables traces and logs of *minutes* (``HH_MM``) in *folder*; a missing file is left out.

    Some public files end in the middle of a quoted text that swallows fields: what is surplus in a row is cut off. Some
    repeat spans of the minute before: equal spans count once.
    """
    if not minutes:
        raise DatapackError(f"{folder} has no trace files; this sample lacks the no-fault recording.")
    traces = [_read_traces(p) for m in minutes if (p := folder / "trace" / f"{m}_trace.csv").exists()]
    logs = [_read_logs(p) for m in minutes if (p := folder / "log" / f"{m}_log.csv").exists()]
    return {
        "traces": pl.concat(traces).unique(maintain_order=True),
        "logs": pl.concat(logs) if logs else empty("logs").select(_LOG_COLUMNS),
    }


def _read_traces(path: Path) -> pl.DataFrame:
    """Return the spans in the CSV file *path*, in the columns of a datapack."""
    start, end = (pl.col(f"{side}TimeUnixNano").cast(pl.Int64) for side in ("Start", "End"))
    return read_csv(path).select(
        time=at_ns(start),
        trace_id="TraceID",
        span_id="SpanID",
        parent_span_id=pl.col("ParentID").replace("root", ""),
        span_name="OperationName",
        service_name=_service_of_pod(pl.col("PodName")),
        duration=(end - start).clip(lower_bound=0).cast(pl.UInt64),
        **{
            "attr.status_code": pl.lit("Unset"),
            "attr.k8s.pod.name": pl.col("PodName"),
            "attr.k8s.service.name": _service_of_pod(pl.col("PodName")),
        },
    )


_LOG_COLUMNS = ("time", "trace_id", "span_id", "level", "service_name", "message", "attr.k8s.pod.name")


def _read_logs(path: Path) -> pl.DataFrame:
    """Return the log lines in the CSV file *path*, in the columns of a datapack; broken rows are left out."""
    table = read_csv(path, truncate_ragged_lines=True)
    whole = table.filter(numbers("TimeUnixNano").is_not_null())
    return whole.select(
        time=at_ns(pl.col("TimeUnixNano").cast(pl.Int64)),
        trace_id="TraceID",
        span_id="SpanID",
        level=pl.coalesce(
            pl.col("Log").str.extract(_SEVERITY).str.to_uppercase(), pl.col("Log").str.extract(_LEVEL), pl.lit("INFO")
        ),
        service_name=_service_of_pod(pl.col("PodName")),
        message="Log",
        **{"attr.k8s.pod.name": pl.col("PodName")},
    )


def _service_of_pod(pod: pl.Expr) -> pl.Expr:
    """Return the expression for the service of *pod*: its name without the two random parts at its end."""
    return pod.str.replace(r"-[^-]+-[^-]+$", "")


def _split_frames(
    day: Path, incident: Incident, normal: dict[str, pl.DataFrame], abnormal: dict[str, pl.DataFrame]
) -> Frames:
    """Return the tables by (period, modality); metrics of the folder *day* are split by the windows of *incident*."""
    frames: Frames = {("normal", m): frame for m, frame in normal.items()}
    frames |= {("abnormal", m): frame for m, frame in abnormal.items()}
    metrics = _metrics(day, _find_entry_service(normal))
    for period, window in (("normal", incident.normal), ("abnormal", incident.abnormal)):
        within = pl.col("time").dt.epoch("ns").is_between(window.start_ns, window.end_ns, closed="left")
        frames[period, "metrics"] = metrics.filter(within)
    return frames


def _make_incident(
    id_: str, system: str, normal: dict[str, pl.DataFrame], abnormal: dict[str, pl.DataFrame]
) -> Incident:
    """Return the incident whose windows are the time ranges of the spans; raises DatapackError without spans."""
    windows = []
    for frames in (normal, abnormal):
        times = frames["traces"].get_column("time").dt.epoch("ns")
        if not len(times):
            raise DatapackError(f"{system} {id_} has no spans in one of its periods; this sample lacks them.")
        windows.append(Window(start_ns=int(str(times.min())), end_ns=int(str(times.max())) + 1))
    provenance = {"format": "nezha", "licence": "MIT"}
    return Incident(id=id_, system=system, normal=windows[0], abnormal=windows[1], provenance=provenance)


def _find_entry_service(normal: dict[str, pl.DataFrame]) -> str:
    """Return the service that receives users' requests: the one with most root spans."""
    roots = normal["traces"].filter(pl.col("parent_span_id") == "").get_column("service_name")
    return str(roots.mode().sort().first())


@cache
def _metrics(day: Path, entrance: str) -> pl.DataFrame:
    """Return time, metric, value, service_name and pod of every pod's metrics of *day*, with faults and without.

    The metrics of front_service.csv get the service *entrance*, since the file names none.
    """
    folders = [day / "metric", day.parent.parent / "construct_data" / day.name / "metric"]
    pods = [path for folder in folders for path in sorted(folder.glob("*_metric.csv"))]
    parts = [_unpivoted(path).with_columns(service_name=_service_of_pod(pl.col("attr.k8s.pod.name"))) for path in pods]
    fronts = [path for folder in folders if (path := folder / "front_service.csv").exists()]
    parts += [_unpivoted(path).with_columns(service_name=pl.lit(entrance)) for path in fronts]
    known = pl.concat(parts) if parts else empty("metrics").select(_METRIC_COLUMNS)
    return known.unique(["time", "metric", "service_name", "attr.k8s.pod.name"], keep="first", maintain_order=True)


_METRIC_COLUMNS = ("time", "metric", "value", "service_name", "attr.k8s.pod.name")


def _unpivoted(path: Path) -> pl.DataFrame:
    """Return the CSV file *path*, a column for each metric, as rows with _METRIC_COLUMNS; pod is null if it has none."""
    table = read_csv(path)
    columns = [c for c in table.columns if c not in {"Time", "TimeStamp", "PodName", "ServiceName"}]
    renamed = {c: _METRICS.get(c, (f"nezha.{c}", 1.0)) for c in columns}
    wide = table.select(
        time=at_ns(pl.col("TimeStamp").cast(pl.Int64) * 1_000_000_000),
        pod="PodName" if "PodName" in table.columns else pl.lit(None, pl.String),
        **{name: numbers(column) * factor for column, (name, factor) in renamed.items()},
    )
    long = wide.unpivot(index=["time", "pod"], variable_name="metric", value_name="value")
    return long.select(
        "time", "metric", "value", pl.lit("").alias("service_name"), pl.col("pod").alias("attr.k8s.pod.name")
    )
