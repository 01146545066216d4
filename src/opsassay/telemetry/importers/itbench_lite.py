"""ITBench-Lite: frozen incidents of ITBench, a folder ``Scenario-N`` with telemetry as TSV, alerts and the ground truth.

``otel_traces_raw.tsv`` and ``otel_logs_raw.tsv`` have the columns of OpenTelemetry's ClickHouse exporter (durations in ns,
maps printed by Python), ``metrics/pod_*_raw.tsv`` and ``metrics/service_*_raw.tsv`` a sample of Prometheus a row,
``alerts/*.json`` answers of Prometheus, ``ground_truth.yaml`` the groups of ITBench, flat or under ``spec``. Read by
documentation alone: github.com/itbench-hub/ITBench (components/recorders/clickhouse, which writes such files),
github.com/itbench-hub/ITBench-SRE-Agent (sre_tools/offline_incident_analysis and itbench_evaluations/loader.py, which read
them), and public descriptions of the data sets ibm-research/ITBench-Lite and ArtificialAnalysis/ITBench-AA.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import polars as pl

from opsassay.core.errors import DatapackError
from opsassay.core.schema.incident import Incident, RootLabel, Truth, Window
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
    read_csv,
    split_at,
)
from opsassay.telemetry.importers.itbench import (
    GroundTruth,
    compiled_filter,
    filters_of,
    fits_filter,
    ground_truth,
    read_spec,
    stem_of,
)
from opsassay.telemetry.importers.itbench_objects import POD, change_rows, event_rows
from opsassay.telemetry.schema import empty
from opsassay.telemetry.severity import levels

TRUTH, TRACES, LOGS = "ground_truth.yaml", "otel_traces_raw.tsv", "otel_logs_raw.tsv"
OBJECTS = {"k8s_events_raw.tsv": event_rows, "k8s_objects_raw.tsv": change_rows}
"""By file about Kubernetes objects, the function that makes log rows of it."""
_SYSTEM = "itbench-lite"
_QUIET = frozenset({"none", "info"})
_NS = 1_000_000_000


def import_itbench_lite(source: Path, out: Path, on_case: OnCase | None = None) -> ImportReport:
    """Import every scenario in *source* into the tree *out*: spans, logs, metrics, and root causes without a fault record.

    The normal period ends when the first alert of the application became active, since no file states when the fault
    began. A root cause is named by the services that its group's filters match, or those of the nearest groups along
    the propagations. Missing parts are in the notes of the report; a scenario without usable telemetry becomes a truth
    alone. Raises UserError when *source* holds no such scenario. *on_case* gets each case's name and outcome.
    """
    folders = folders_below(source, lambda f: (f / TRUTH).exists(), f"expected folders Scenario-N with {TRUTH}.")
    return import_sources(map(_source_of_folder, folders), out, on_case)


def _source_of_folder(folder: Path) -> Source:
    """Return the scenario in *folder* as a source that can be imported; its id does not reveal its answer."""
    # The scenario's number is a key to its public answer, so the id follows from the recording.
    recorded = next((folder / name for name in (TRACES, LOGS) if (folder / name).exists()), None)
    id_ = case_id(_SYSTEM, folder.name if recorded is None else file_digest(recorded))
    return Source(folder.name, id_, partial(_read_case, folder, id_), by_content=True)


def _read_case(folder: Path, id_: str) -> ReadCase:
    """Read truth and telemetry of the scenario in *folder*; raises DatapackError."""
    notes: list[str] = []
    spec = read_spec(folder / TRUTH, notes)
    if spec is None:
        raise DatapackError(f"{folder} has no ground truth that can be read: {'; '.join(notes)}.")
    found = ground_truth(folder.name, spec, TRUTH, notes)
    if not found.roots:
        raise DatapackError(f"{folder / TRUTH} names no root cause; correct it or leave the scenario out.")
    whole = {"traces": _traces(folder, notes), "logs": _read_logs(folder, notes), **_metrics(folder, notes)}
    alerts = _alerts(folder, notes)
    names = {name for table in whole.values() for name in table.get_column("service_name").drop_nulls().unique()}
    whole["logs"] = pl.concat([whole["logs"], *_objects(folder, notes)])
    roots = tuple(RootLabel(service=_services(found, root, sorted(names), notes)) for root in found.roots)
    faults = tuple(
        f"itbench-lite: {_describe_fault(fault)}" for fault in spec.get("fault") or () if isinstance(fault, dict)
    )
    truth = Truth(id=id_, system=_SYSTEM, roots=roots, notes=(f"itbench-lite: {folder.name}", *faults))
    incident, frames = _incident(id_, whole, alerts, notes)
    annotation = found.annotation.model_copy(update={"notes": tuple(notes)})
    return ReadCase(incident, truth, frames, {"namespace": _SYSTEM}, annotation, found.further, tuple(notes))


def _incident(
    id_: str, tables: Mapping[str, pl.DataFrame], alerts: list[tuple[int, str]], notes: list[str]
) -> tuple[Incident | None, Frames]:
    """Return the incident and its *tables* split at the first of *alerts*; (None, {}) and a note if none is within them."""
    times = pl.concat([table.get_column("time") for table in tables.values()]).dt.epoch("ns")
    if times.is_empty():
        notes.append("there is no telemetry: the truth is imported alone")
        return None, {}
    first, last = int(str(times.min())), int(str(times.max()))
    within = [(at, said) for at, said in alerts if first < at <= last]
    if not within:
        notes.append(
            "no alert became active within the telemetry, so it has no normal period: the truth is imported alone"
        )
        return None, {}
    cut = within[0][0]
    notes.append(
        "the normal period ends with the first alert, which comes after the fault: its end may be broken already"
    )
    frames = split_at(cut, tables)
    incident = Incident(
        id=id_,
        system=_SYSTEM,
        normal=Window(start_ns=first, end_ns=cut),
        abnormal=Window(start_ns=cut, end_ns=last + _NS),
        description="Alerts: " + ", ".join(dict.fromkeys(said for _, said in within[:20])),
        provenance={"format": _SYSTEM},
    )
    return incident, frames


def _traces(folder: Path, notes: list[str]) -> pl.DataFrame:
    """Return the spans in *folder*, Duration read as ns, none without a file; what is left out is added to *notes*."""
    table = _table(folder / TRACES, {"timestamp", "traceid", "spanid", "servicename"}, notes)
    if table is None:
        return empty("traces")
    span = _column_or_null(table, "spanattributes")
    status = _map_value(span, r"http\.(?:response\.)?status_code").cast(pl.UInt16, strict=False)
    return _drop_untimed_rows(
        table.select(
            time=at_ns(iso_ns(pl.col("timestamp"))),
            trace_id="traceid",
            span_id="spanid",
            parent_span_id=_column_or_null(table, "parentspanid").fill_null(""),
            span_name=_column_or_null(table, "spanname").fill_null(""),
            service_name="servicename",
            duration=_column_or_null(table, "duration")
            .cast(pl.Float64, strict=False)
            .fill_null(0)
            .cast(pl.UInt64, strict=False),
            **{
                "attr.span_kind": _title_case_column(table, "spankind", "SPAN_KIND_"),
                "attr.status_code": _title_case_column(table, "statuscode", "STATUS_CODE_"),
                "attr.http.response.status_code": status,
                "attr.http.request.method": _map_value(span, r"http\.(?:request\.)?method"),
            },
            **_kubernetes_columns(table),
        ),
        TRACES,
        notes,
    )


def _read_logs(folder: Path, notes: list[str]) -> pl.DataFrame:
    """Return the log table of *folder*, empty without a file; what is left out is added to *notes*."""
    table = _table(folder / LOGS, {"timestamp", "servicename", "body"}, notes)
    if table is None:
        return empty("logs")
    return _drop_untimed_rows(
        table.select(
            time=at_ns(iso_ns(pl.col("timestamp"))),
            trace_id=_column_or_null(table, "traceid"),
            span_id=_column_or_null(table, "spanid"),
            level=levels(_column_or_null(table, "severitynumber"), _column_or_null(table, "severitytext")),
            service_name="servicename",
            message=pl.col("body").fill_null(""),
            **_kubernetes_columns(table),
        ),
        LOGS,
        notes,
    )


def _objects(folder: Path, notes: list[str]) -> list[pl.DataFrame]:
    """Return events and changes of Kubernetes objects as log tables, [] without any; problems are added to *notes*."""
    found = [
        (name, rows_of(table, name))
        for name, rows_of in OBJECTS.items()
        if (folder / name).exists() and (table := _table(folder / name, set(), notes)) is not None
    ]
    return [_drop_untimed_rows(rows, name, notes) for name, rows in found]


def _metrics(folder: Path, notes: list[str]) -> dict[str, pl.DataFrame]:
    """Return modality to table, for gauges and counters; what is left out, such as buckets, is added to *notes*."""
    files = sorted(path for path in folder.rglob("*.tsv") if re.match(r"(pod|service)_", path.name))
    tables, buckets = [], 0
    for path in files:
        table = _table(path, {"metricname", "timestamp", "value"}, notes)
        if table is None:
            continue
        pod, service = _column_or_null(table, "podname"), _column_or_null(table, "servicename")
        sampled = table.select(
            time=at_ns(iso_ns(pl.col("timestamp"))),
            metric="metricname",
            value=numbers("value"),
            service_name=pl.coalesce(service, pod.str.extract(POD), pod).fill_null(""),
            **{
                "attr.k8s.pod.name": pod,
                "attr.k8s.namespace.name": _column_or_null(table, "namespace"),
                "attr.k8s.container.name": _map_value(_column_or_null(table, "tags"), "container"),
            },
        )
        kept = sampled.filter(~pl.col("metric").str.ends_with("_bucket"))
        buckets += sampled.height - kept.height
        tables.append(_drop_untimed_rows(kept, path.name, notes))
    if not tables:
        notes.append("there are no metrics")
        return {"metrics": empty("metrics"), "metrics_sum": empty("metrics_sum")}
    notes += [f"{buckets:,} samples of histogram buckets are left out"] if buckets else []
    rows, counter = pl.concat(tables), pl.col("metric").str.contains(r"_(total|count|sum)$")
    return {"metrics": rows.filter(~counter), "metrics_sum": rows.filter(counter)}


def _alerts(folder: Path, notes: list[str]) -> list[tuple[int, str]]:
    """Return (time in ns, "alert on service") of every alert with a service or severity, sorted by time.

    What is wrong with the file is added to *notes*.
    """
    found: set[tuple[int, str]] = set()
    for path in sorted(folder.rglob("alerts*.json")):
        try:
            payload = json.loads(path.read_bytes())
        except ValueError as error:
            notes.append(f"{path.name} is not JSON ({error})")
            continue
        data = payload.get("data", payload) if isinstance(payload, dict) else payload
        listed = data.get("alerts") if isinstance(data, dict) else data
        for alert in listed if isinstance(listed, list) else ():
            labels = alert.get("labels") or {} if isinstance(alert, dict) else {}
            service = labels.get("service_name") or labels.get("destination_canonical_service")
            at = pl.select(iso_ns(pl.lit(str(alert.get("activeAt") or "")))).item() if labels else None
            if at is not None and service and str(labels.get("severity", "")).lower() not in _QUIET:
                found.add((at, f"{labels.get('alertname')} on {service}"))
    return sorted(found)


def _services(truth: GroundTruth, root: str, names: list[str], notes: list[str]) -> tuple[str, ...]:
    """Return those of *names* that the group *root* matches, else those of the nearest groups along the propagations.

    Without any it is *root* itself. A root that matches nothing is added to *notes*.
    """
    edges = truth.annotation.graph.edges
    reached, front = {root}, [root]
    while front:
        matched = {name for group in front for name in _matching(truth.groups[group], names)}
        if matched:
            if root not in front:
                notes.append(f"the root {root!r} has no telemetry of its own: it is named by what it reaches first")
            return tuple(sorted(matched))
        front = [e.target for e in edges if e.source in front and e.target not in reached]
        reached |= set(front)
    notes.append(f"the root {root!r} and what it reaches match no service in the telemetry: it keeps its own name")
    return (root,)


def _matching(group: Mapping[str, Any], names: list[str]) -> set[str]:
    """Return those of *names* (services) that a filter of *group* matches, directly or as the name of a pod."""
    found: set[str] = set()
    for pattern in filters_of(group):
        meant, compiled = stem_of(pattern), compiled_filter(pattern)
        if meant in names:
            found.add(meant)
        elif meant and compiled is not None:  # what cannot be compiled is said in the notes of the ground truth
            found |= {name for name in names if fits_filter(compiled, name)}
    return found


def _describe_fault(fault: Mapping[str, Any]) -> str:
    """Return "mechanism, category, object, condition" of *fault*, without the parts that it lacks."""
    entity = fault.get("entity") if isinstance(fault.get("entity"), dict) else {}
    parts = (fault.get("fault_mechanism"), fault.get("category"), (entity or {}).get("name"), fault.get("condition"))
    return ", ".join(str(part) for part in parts if part)


def _table(path: Path, required: set[str], notes: list[str]) -> pl.DataFrame | None:
    """Return the TSV file *path*, column names in lower case without "_"; None, and a note, without the file.

    Raises DatapackError for a file that lacks one of *required*.
    """
    if not path.exists():
        notes.append(f"there is no {path.name}")
        return None
    table = read_csv(path, separator="\t")
    table = table.rename({name: name.replace("_", "").lower() for name in table.columns})
    if missing := sorted(required - set(table.columns)):
        raise DatapackError(f"{path} lacks the column {missing[0]!r}; restore it from the data set.")
    return table


def _column_or_null(table: pl.DataFrame, name: str) -> pl.Expr:
    """Return the column *name*, or nulls if *table* lacks it."""
    return pl.col(name) if name in table.columns else pl.lit(None, pl.String)


def _map_value(column: pl.Expr, name: str) -> pl.Expr:
    """Return the expression for one key of a map printed by Python, Go or as JSON; the regex *name* matches the key."""
    return column.str.extract(rf"(?:^|[\[{{ ,'\"]){name}['\"]?\s*:\s*['\"]?([^'\",\]\s}}]+)")


def _kubernetes_columns(table: pl.DataFrame) -> dict[str, pl.Expr]:
    """Return column name to expression for pod and namespace, from the resource attributes of *table*."""
    attributes = _column_or_null(table, "resourceattributes")
    return {f"attr.k8s.{level}.name": _map_value(attributes, rf"k8s\.{level}\.name") for level in ("pod", "namespace")}


def _title_case_column(table: pl.DataFrame, name: str, prefix: str) -> pl.Expr:
    """Return the expression for column *name* in title case without *prefix*: SPAN_KIND_SERVER becomes ``Server``."""
    return _column_or_null(table, name).str.replace(prefix, "", literal=True).str.to_titlecase()


def _drop_untimed_rows(table: pl.DataFrame, name: str, notes: list[str]) -> pl.DataFrame:
    """Return the rows of *table* that have a time; adds to *notes* how many rows of the file *name* have none."""
    missing = table.get_column("time").null_count()
    if missing:
        notes.append(f"{name}: {missing:,} rows have no time and are left out")
    return table.drop_nulls("time")
