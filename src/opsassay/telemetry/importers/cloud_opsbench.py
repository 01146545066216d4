"""Cloud-OpsBench: frozen incidents on Kubernetes, ``benchmark/SYSTEM/CATEGORY/N`` and the milestones of a diagnosis.

A case has ``metadata.json`` (namespace, query, result: fault_taxonomy, fault_object, root_cause), ``raw_data`` with
``metrics.csv`` (time, then COMPONENT-METRIC), ``logs.json`` (lines by service, each with its time and offset) and
``alert.json`` (time ranges), and cached answers of tools; ``process-label/SYSTEM/CATEGORY/N/milestone.json`` has the
milestones, ``golden-trajectory/SYSTEM/CATEGORY/N/path{1,2}.json`` ways of experts. Read from
github.com/LLM4Ops/Cloud-OpsBench: its README, and cases of benchmark/boutique and process-label.
"""

from __future__ import annotations

import json
import re
from functools import partial
from pathlib import Path
from typing import Any

import polars as pl

from opsassay.core.errors import DatapackError
from opsassay.core.schema.incident import Incident, RootLabel, Truth, Window
from opsassay.telemetry import severity
from opsassay.telemetry.content import file_digest
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
    iso_ns,
    numbers,
    owner_and_metric,
    read_csv,
    split_at,
)
from opsassay.telemetry.schema import empty

METADATA, MILESTONES = "metadata.json", "milestone.json"
TRAJECTORIES = ("path1.json", "path2.json")
_METRICS, _LOGS, _ALERTS = "metrics.csv", "logs.json", "alert.json"
_OF_NODES = "tcp_retans"
"""The metric that only nodes have, spelled as in the files."""
_NS = 1_000_000_000


def import_cloud_opsbench(source: Path, out: Path, on_case: OnCase | None = None) -> ImportReport:
    """Import every case in *source* into the tree *out*: metrics, logs, the root cause, experts' notes verbatim.

    The normal period ends with the first alert of the case. The root cause is the faulted object, without a fault
    record, since no case states when its fault began. A case without metrics becomes a truth without telemetry. Cached
    answers of tools, the cluster's objects and the source code are not imported. Raises UserError when *source* holds
    no such case. *on_case* gets each case's name and outcome.
    """
    expected = f"expected benchmark/SYSTEM/CATEGORY/N with {METADATA}."
    folders = folders_below(source, lambda f: (f / METADATA).exists(), expected)
    return import_sources(map(_source_of_folder, folders), out, on_case)


def _source_of_folder(folder: Path) -> Source:
    """Return the case in *folder* as a source that can be imported; its id does not reveal its answer."""
    # Category and number are a key to the public answer, so the id follows from the recording where there is one.
    system = folder.parent.parent.name
    recorded = next((p for p in (folder / "raw_data" / _METRICS, folder / "tool_cache.json") if p.exists()), None)
    known = f"{folder.parent.name}/{folder.name}" if recorded is None else file_digest(recorded)
    id_ = case_id("cloud-opsbench", system, known)
    read = partial(_read_case, folder, id_, f"cloud-opsbench-{system}")
    return Source("/".join(folder.parts[-3:]), id_, read, by_content=True)


def _read_case(folder: Path, id_: str, system: str) -> ReadCase:
    """Read the case in *folder*: its truth, and its telemetry if it has any; raises DatapackError."""
    notes: list[str] = []
    about = _read_json(folder / METADATA)
    result = about.get("result") if isinstance(about, dict) else None
    if not isinstance(result, dict) or not result.get("fault_object"):
        raise DatapackError(f"{folder / METADATA} names no fault_object in its result; restore it from the source.")
    kind, _, name = str(result["fault_object"]).rpartition("/")
    if kind != "app":
        notes.append(f"the root is no service but {result['fault_object']!r}")
    truth = Truth(
        id=id_,
        system=system,
        roots=(RootLabel(service=(name,)),),
        notes=(
            f"cloud-opsbench: {result.get('root_cause')} ({result.get('fault_taxonomy')}) of {result['fault_object']}",
        ),
        public=about,
    )
    further = _milestones(folder, notes) | _trajectories(folder)
    made = _incident(folder, id_, system, str(about.get("query", "")), notes)
    if made is None:
        return ReadCase(None, truth, further=further, notes=tuple(notes))
    env = {"namespace": str(about.get("namespace", ""))}
    return ReadCase(made[0], truth, made[1], env, further=further, notes=tuple(notes))


def _incident(folder: Path, id_: str, system: str, query: str, notes: list[str]) -> tuple[Incident, Frames] | None:
    """Return (incident described by *query*, tables); None, and a note, without metrics around the first alert."""
    raw = folder / "raw_data"
    if not (raw / _METRICS).exists():
        notes.append(f"there is no {_METRICS}: the truth is imported alone")
        return None
    logs, offset = _logs(raw / _LOGS, notes)
    metrics = _metrics(raw / _METRICS, offset, notes)
    begun = _find_first_alert_ns(raw / _ALERTS, offset)
    times = metrics.get_column("time").dt.epoch("ns")
    if begun is None or times.is_empty() or not int(str(times.min())) < begun <= int(str(times.max())):
        notes.append("no alert begins within the metrics, so there is no normal period: the truth is imported alone")
        return None
    first, last = int(str(times.min())), int(str(times.max())) + _NS
    notes.append(
        "the normal period ends with the first alert, which comes after the fault: its end may be broken already"
    )
    notes.append("there are no traces; cached answers of tools, objects of the cluster and source code are left out")
    within = pl.col("time").dt.epoch("ns").is_between(first, last)
    frames = split_at(begun, {"traces": empty("traces"), "logs": logs.filter(within), "metrics": metrics})
    incident = Incident(
        id=id_,
        system=system,
        normal=Window(start_ns=first, end_ns=begun),
        abnormal=Window(start_ns=begun, end_ns=last),
        description=query,
        provenance={"format": "cloud-opsbench"},
    )
    return incident, frames


def _metrics(path: Path, offset: str, notes: list[str]) -> pl.DataFrame:
    """Return the metrics table of the file *path*; a component with a metric that only nodes have is a node.

    *offset* is the UTC offset of the times; what is left out is added to *notes*.
    """
    table = read_csv(path)
    if "time" not in table.columns:
        raise DatapackError(f"{path} has no column 'time'; restore it from the source.")
    columns = [column for column in table.columns if column != "time"]
    split = {column: owner_and_metric(column, "-") for column in columns}
    notes += [f"{_METRICS}: the column {c!r} names no component and is left out" for c in columns if not split[c][0]]
    nodes = {component for component, metric in split.values() if metric == _OF_NODES}
    named = [column for column in columns if split[column][0]]
    names = pl.DataFrame(
        {
            "column": named,
            "metric": [split[c][1] for c in named],
            "service_name": ["" if split[c][0] in nodes else split[c][0] for c in named],
            "attr.k8s.node.name": [split[c][0] if split[c][0] in nodes else None for c in named],
        },
        schema=dict.fromkeys(("column", "metric", "service_name", "attr.k8s.node.name"), pl.String),
    )
    time = at_ns(iso_ns(pl.col("time") + pl.lit(offset)))
    return (
        table.select(time.alias("time"), *(numbers(column).alias(column) for column in named))
        .unpivot(index="time", variable_name="column", value_name="value")
        .join(names, on="column", maintain_order="left")
        .drop("column")
        .drop_nulls("time")
    )


def _logs(path: Path, notes: list[str]) -> tuple[pl.DataFrame, str]:
    """Return (log table, UTC offset of its times as text, which other files do not state); adds to *notes*."""
    payload = _read_json(path) if path.exists() else {}
    lines = (
        [(str(s), line) for s, said in payload.items() for line in _texts(said)] if isinstance(payload, dict) else []
    )
    table = pl.DataFrame(lines, schema={"service_name": pl.String, "line": pl.String}, orient="row")
    stamp = pl.col("line").str.extract(r"^(\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:?\d\d)?)")
    message = pl.col("line").str.replace(r"^\S+(?: \d\d:\d\d:\d\d\S*)?\s", "")
    made = table.select(
        time=at_ns(iso_ns(stamp)),
        level=pl.col("line").str.extract(severity.WORD).str.to_uppercase().fill_null("INFO"),
        service_name="service_name",
        message=message,
    )
    offsets = table.select(stamp.str.extract(r"([+-]\d\d:?\d\d)$")).to_series().drop_nulls()
    if offsets.is_empty():
        notes.append("no log line says its offset from UTC: all times are taken as UTC")
    untimed = made.get_column("time").null_count()
    notes += [f"{_LOGS}: {untimed:,} lines have no time and are left out"] if untimed else []
    return made.drop_nulls("time"), "" if offsets.is_empty() else str(offsets.mode().sort()[0])


def _texts(content: Any) -> list[str]:
    """Return the log lines in *content*: a list, a text, or a mapping of container to either."""
    if isinstance(content, dict):
        return [line for inner in content.values() for line in _texts(inner)]
    if isinstance(content, list):
        return [line for inner in content for line in _texts(inner)]
    return [line for line in str(content).splitlines() if line.strip()]


def _find_first_alert_ns(path: Path, offset: str) -> int | None:
    """Return the start of the earliest alert in *path*, ns of UTC, None without one; *offset* is the times' UTC offset."""
    payload = _read_json(path) if path.exists() else {}
    alerts = payload.get("alerts") if isinstance(payload, dict) else None
    ranges = [str(alert.get("time_range", "")) for alert in alerts or () if isinstance(alert, dict)]
    starts = [found[0] for text in ranges if (found := re.match(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d", text))]
    return None if not starts else int(pl.select(iso_ns(pl.lit(min(starts) + offset))).item())


def _milestones(folder: Path, notes: list[str]) -> dict[str, str]:
    """Return {file name: text} of milestones in process-label/ or *folder*; without any {}, and a note in *notes*."""
    parts = folder.absolute().parts
    beside = Path(*parts[:-4], "process-label", *parts[-3:], MILESTONES) if len(parts) > 4 else folder / MILESTONES
    path = next((path for path in (beside, folder / MILESTONES) if path.exists()), None)
    if path is None:
        notes.append(f"there is no {MILESTONES} in process-label")
        return {}
    _read_json(path)  # one that cannot be read fails the case
    return {MILESTONES: path.read_text(encoding="utf-8")}


def _read_json(path: Path) -> Any:
    """Return the JSON value in the file *path*; raises DatapackError."""
    try:
        return json.loads(path.read_bytes())
    except ValueError as error:
        raise DatapackError(f"{path} is not JSON ({error}); restore it from the source.") from error


def _trajectories(folder: Path) -> dict[str, str]:
    """Return file name to text of the experts' trajectories of the case, ``golden-trajectory-path1.json`` and so on."""
    parts = folder.absolute().parts
    of_case = Path(*parts[:-4], "golden-trajectory", *parts[-3:])
    found = {name: of_case / name for name in TRAJECTORIES if len(parts) > 4 and (of_case / name).exists()}
    return {f"golden-trajectory-{name}": path.read_text(encoding="utf-8") for name, path in found.items()}
