"""Events and objects of a cluster in an ITBench-Lite scenario, as rows of logs: events, and changes of objects.

``k8s_events_raw.tsv`` and ``k8s_objects_raw.tsv`` have JSON under ``Body``, as OpenTelemetry's k8sobjects receiver writes
it (an object, or one under ``object``), or columns of the processed form. Read by documentation alone, as `itbench_lite`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

import polars as pl

from opsassay.core.errors import DatapackError
from opsassay.telemetry.importers.cases import at_ns, iso_ns
from opsassay.telemetry.severity import levels

LONGEST = 4_000
"""Most characters of a message, and of a changed value in it."""
CHANGING = frozenset({"managedFields", "resourceVersion", "generation", "uid", "creationTimestamp", "status"})
"""Fields that Kubernetes changes without an update of the object by a user."""
POD = r"^(.+?)(?:-[0-9a-f]{6,10}-[a-z0-9]{5}|-[a-z0-9]{5}|-\d+)$"
"""A pod's name: its workload's, and the suffix of a Deployment, a DaemonSet or a StatefulSet."""
FLAT_EVENT = {"object_kind": "kind", "object_name": "name", "namespace": "namespace"}


def event_rows(table: pl.DataFrame, name: str) -> pl.DataFrame:
    """Return the Kubernetes events in *table* as log rows: reason and message, by the workload of the object.

    Columns as the logs of `itbench_lite`. Events of type Warning are WARN. Raises DatapackError for another form of
    table.
    """
    rows = []
    for at, body, flat in _iterate_objects(table, name):
        about = (
            body.get("involvedObject")
            or body.get("regarding")
            or {FLAT_EVENT[k]: flat[k] for k in FLAT_EVENT if flat.get(k)}
        )
        reason, said = (
            body.get("reason", flat.get("reason")),
            body.get("message") or body.get("note") or flat.get("message"),
        )
        kind = str(body.get("type") or flat.get("event_kind") or "")
        happened = body.get("lastTimestamp") or body.get("eventTime") or flat.get("event_time") or at
        if about.get("name") and reason:
            text = f"event {about.get('kind')}/{about['name']}: {reason}: {said or ''}"
            rows.append(_make_row(happened, "WARN" if kind == "Warning" else "INFO", about, text))
    return _logs(rows)


def change_rows(table: pl.DataFrame, name: str) -> pl.DataFrame:
    """Return the history of the objects in *table* as log rows: the first state of each, then every changed field.

    Columns as the logs of `itbench_lite`; what changes by itself (status, versions) is left out. Items of a list go
    by their names. Raises DatapackError for a table of another form.
    """
    states: dict[tuple[str, str, str], Mapping[str, str]] = {}
    rows = []
    for at, body, _ in sorted(_iterate_objects(table, name), key=lambda one: one[0]):
        about = body.get("metadata") or {}
        kind, named = str(body.get("kind") or ""), str(about.get("name") or "")
        if not kind or not named:
            continue
        key = (str(about.get("namespace") or ""), kind, named)
        state = dict(_leaves({k: v for k, v in body.items() if k not in {"apiVersion", "kind", "metadata"}}))
        of = {"kind": kind, "name": named, "namespace": key[0]}
        if key not in states:
            text = f"object {kind}/{named}: " + ", ".join(f"{path}={value}" for path, value in state.items())
            rows.append(_make_row(at, "INFO", of, text))
        before = states.get(key, state)
        for path in sorted(state.keys() | before.keys()):
            old, new = before.get(path, "none"), state.get(path, "none")
            if old != new:
                rows.append(_make_row(at, "INFO", of, f"change {kind}/{named}: {path} was {old}, is {new}"))
        states[key] = state
    return _logs(rows)


def _iterate_objects(table: pl.DataFrame, name: str) -> Iterator[tuple[str, dict[str, Any], dict[str, Any]]]:
    """Yield (time, object, event columns) of each row of *table* with valid JSON; raises DatapackError naming *name*."""
    if not {"body", "objectname"} & set(table.columns):
        raise DatapackError(f"{name} has neither a column Body nor object_name; restore it from the data set.")
    flat_names = {key.replace("_", ""): key for key in (*FLAT_EVENT, "reason", "message", "event_kind", "event_time")}
    for row in table.iter_rows(named=True):
        try:
            body = json.loads(row.get("body") or "{}")
        except (ValueError, RecursionError):
            continue
        body = body.get("object", body) if isinstance(body, dict) else {}
        flat = {known: row[column] for column, known in flat_names.items() if row.get(column)}
        yield str(row.get("timestamp") or ""), body if isinstance(body, dict) else {}, flat


def _leaves(value: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """Yield (path, JSON) of each leaf of *value*, but of fields that change by themselves; list items go by their names."""
    if isinstance(value, dict) and value:
        for key in sorted(value.keys() - CHANGING):
            yield from _leaves(value[key], f"{path}.{key}" if path else str(key))
    elif isinstance(value, list) and value:
        for place, item in enumerate(value):
            known = item.get("name") if isinstance(item, dict) else None
            yield from _leaves(item, f"{path}[{known if known is not None else place}]")
    else:
        yield path, json.dumps(value)


def _make_row(time: Any, level: str, metadata: Mapping[str, Any], text: str) -> tuple[str, ...]:
    """Return one log row about the Kubernetes object of *metadata*: time, level, name, pod, kind, namespace, text."""
    name, kind = str(metadata["name"]), str(metadata.get("kind") or "")
    pod = name if kind == "Pod" else ""
    return str(time), level, name, pod, kind, str(metadata.get("namespace") or ""), text[:LONGEST]


def _logs(rows: list[tuple[str, ...]]) -> pl.DataFrame:
    """Return *rows* as a log table; the service is the workload of the object."""
    names = ("at", "level", "name", "pod", "kind", "namespace", "message")
    made = pl.DataFrame(rows, schema=dict.fromkeys(names, pl.String), orient="row")
    workload = pl.when(pl.col("kind") == "Pod").then(pl.col("name").str.extract(POD))
    return made.select(
        time=at_ns(iso_ns(pl.col("at"))),
        trace_id=pl.lit(None, pl.String),
        span_id=pl.lit(None, pl.String),
        level=levels(pl.lit(None, pl.String), pl.col("level")),
        service_name=pl.coalesce(workload, "name"),
        message="message",
        **{
            "attr.k8s.pod.name": pl.col("pod").replace("", None),
            "attr.k8s.namespace.name": pl.col("namespace").replace("", None),
        },
    )


def workload_of(pod: str) -> str:
    """Return the workload's name in that of *pod*, without its random suffix; *pod* itself when it has none."""
    found = re.match(POD, pod)
    return found[1] if found else pod
