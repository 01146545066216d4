"""Reads a log of ``kubectl get KIND -w -o json`` as the states of a cluster over time.

The log is a stream of objects, or of watch events (``--output-watch-events``), which also report deletions. kubectl
writes no times: an event has the newest instant in its object, but not less than its predecessor's, or a ``time`` next
to its ``object``.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from opsassay.core.errors import DatapackError
from opsassay.evals.remediation.foreign.instants import instant_ns
from opsassay.testbed.core.probes import DepthReading, SystemReading
from opsassay.testbed.substrates.kubernetes.api.readings import (
    WORKLOADS,
    availability,
    control_plane,
    entities,
    is_critical,
    is_over,
    owner_of,
    populated,
    workload_of,
)

Key = tuple[str, str, str]
Objects = Mapping[Key, Mapping[str, Any]]
"""Objects by kind, namespace and name."""
_BETWEEN = re.compile(r"\s*")
_INSTANTS = frozenset({
    "creationTimestamp", "deletionTimestamp", "lastTransitionTime", "lastUpdateTime", "time", "startedAt", "finishedAt",
    "lastTimestamp", "eventTime", "renewTime", "endpoints.kubernetes.io/last-change-trigger-time",
})  # fmt: skip
SLICE_OF = "kubernetes.io/service-name"


class WatchEvent(NamedTuple):
    """One event of a watch: at *time_ns* the object *key* is *found*; None: it was deleted."""

    time_ns: int
    key: Key
    found: dict[str, Any] | None


def read_watch(path: Path) -> list[WatchEvent]:
    """Return the events of the Kubernetes watch log at *path*, in order; an incomplete last object is dropped.

    Raises DatapackError that names file and line for what is no object of Kubernetes, and for a watch that failed.
    """
    found: list[WatchEvent] = []
    newest = 0
    for line, value in _parse_stream(path):
        try:
            for deleted, said, item in _changes(value):
                newest = max(newest, said if said is not None else _newest_time(item))
                event = WatchEvent(newest, _key_of_item(item), None if deleted else item)
                if event.found is not None:
                    _require_readable(event)
                found.append(event)
        except (ValueError, KeyError, TypeError, IndexError, AttributeError, RecursionError) as error:
            raise DatapackError(f"{path}:{line}: no object of Kubernetes ({_first_line(error)}).") from error
    if not found:
        raise DatapackError(f"{path} holds no object; record it with `kubectl get pods -w -o json`.")
    return found


def _parse_stream(path: Path) -> Iterator[tuple[int, Any]]:
    """Yield (line number, value) for each JSON value in the file *path*, one after another."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise DatapackError(f"Cannot read {path} as UTF-8 ({_first_line(error)}); check the path.") from error
    decoder, at, line = json.JSONDecoder(), 0, 1
    while True:
        begins = _BETWEEN.match(text, at)
        assert begins is not None
        line += text.count("\n", at, begins.end())
        at = begins.end()
        if at == len(text):
            return
        try:
            value, end = decoder.raw_decode(text, at)
        except (ValueError, RecursionError) as error:
            if text.startswith("{", at) and "\n{" not in text[at:]:
                return  # kubectl was ended while it wrote
            raise DatapackError(
                f"{path}:{line}: no JSON ({_first_line(error)}); restore the file from a copy."
            ) from error
        yield line, value
        line += text.count("\n", at, end)
        at = end


def _changes(value: Any) -> Iterator[tuple[bool, int | None, dict[str, Any]]]:
    """Yield (is deleted, time in ns or None, object) for each object in the watch event or list *value*."""
    kind = value.get("type") if "object" in value else None
    if kind == "BOOKMARK":
        return
    item = value["object"] if kind is not None else value
    if kind == "ERROR" or item["kind"] == "Status":
        raise ValueError(f"the watch failed: {item.get('message', 'no reason given')}")
    said = value.get("time") if kind is not None else None
    for one in item["items"] if item["kind"].endswith("List") else (item,):
        yield kind == "DELETED", None if said is None else instant_ns(said), one


def _key_of_item(item: Mapping[str, Any]) -> Key:
    """Return (kind, namespace, name) of the object *item*; the default namespace if it has none."""
    meta = item["metadata"]
    return str(item["kind"]), str(meta.get("namespace", "default")), str(meta["name"])


def _newest_time(value: Any) -> int:
    """Return the newest timestamp (ns) in an object's fields at any depth, 0 without one."""
    if isinstance(value, list):
        return max(map(_newest_time, value), default=0)
    if not isinstance(value, dict):
        return 0
    times = [instant_ns(one) for name, one in value.items() if name in _INSTANTS and isinstance(one, str) and one]
    return max(
        [*times, *map(_newest_time, (one for one in value.values() if isinstance(one, (dict, list))))], default=0
    )


def _require_readable(event: WatchEvent) -> None:
    """Raise ValueError or the like if the object of *event* cannot be parsed; the caller adds file and line."""
    assert event.found is not None
    state_of({event.key: event.found}, ())


def state_of(objects: Objects, protected: Sequence[str]) -> SystemReading:
    """Return D1, D2 (of *protected* services; all if none) and D4 of a cluster with *objects*; values None if not shown."""
    of = {kind: [one for key, one in objects.items() if key[0] == kind] for kind in {key[0] for key in objects}}
    pods = [{"kind": "Pod", **one, "metadata": {"namespace": key[1], **one["metadata"]}}
            for key, one in objects.items() if key[0] == "Pod"]  # fmt: skip
    sets = _replica_sets(of.get("ReplicaSet", ()), pods)
    workloads = [dict(one) for kind in WORKLOADS for one in of.get(kind, ()) if owner_of(dict(one)) is None]
    workloads = [{**one, "metadata": {"namespace": "default", **one["metadata"]}} for one in workloads]
    ready = availability(pods, workloads or _assume_workloads(pods, sets), sets)
    nothing = DepthReading(None, (), 0)
    backed = _protected_endpoints(objects, protected)
    critical = any(is_critical(pod) for pod in pods)
    return SystemReading(
        DepthReading(*ready, 0) if pods or workloads else nothing,
        DepthReading(*populated(backed), 0) if backed else nothing,
        DepthReading(*control_plane(pods, replica_sets=sets), 0) if critical else nothing,
        entities(pods, sets) if pods else None,
    )


def _replica_sets(
    objects: Sequence[Mapping[str, Any]], pods: Sequence[dict[str, Any]]
) -> dict[tuple[str, str], dict[str, Any]]:
    """Return the ReplicaSets by (namespace, name); those not in *objects* are derived from pods' labels."""
    found = {}
    for pod in pods:
        owner, label = owner_of(pod), (pod["metadata"].get("labels") or {}).get("pod-template-hash")
        if owner is not None and label and owner[1].endswith(f"-{label}"):
            above = {"controller": True, "kind": "Deployment", "name": owner[1].removesuffix(f"-{label}")}
            found[pod["metadata"]["namespace"], owner[1]] = {"metadata": {"ownerReferences": [above]}}
    return found | {
        (str(one["metadata"].get("namespace", "default")), one["metadata"]["name"]): dict(one) for one in objects
    }


def _assume_workloads(
    pods: Sequence[dict[str, Any]], sets: Mapping[tuple[str, str], dict[str, Any]]
) -> list[dict[str, Any]]:
    """Return workloads inferred from *pods* and ReplicaSets (*sets*); their desired size is the present pods."""
    there = [pod for pod in pods if not is_over(pod) and "deletionTimestamp" not in pod["metadata"]]
    counts = Counter((workload_of(pod, sets), pod["metadata"]["namespace"]) for pod in there)
    return [
        {"kind": kind, "metadata": {"namespace": namespace, "name": name}, "spec": {"replicas": count}}
        for ((kind, name), namespace), count in counts.items() if kind not in ("Pod", "Job", "DaemonSet")
    ]  # fmt: skip


def _protected_endpoints(objects: Objects, protected: Sequence[str]) -> dict[str, dict[str, Any] | None]:
    """Return the Endpoints by name of the *protected* services, of all services when none is named."""
    found: dict[str, dict[str, Any] | None] = {}
    for (kind, _, name), one in objects.items():
        if kind == "Endpoints":
            found[name] = dict(one)
        elif kind == "EndpointSlice":
            service = (one["metadata"].get("labels") or {}).get(SLICE_OF, name)
            subset: dict[str, list[Any]] = {"addresses": [], "notReadyAddresses": []}
            for end in one.get("endpoints") or ():
                ready = (end.get("conditions") or {}).get("ready") is not False
                subset["addresses" if ready else "notReadyAddresses"] += end.get("addresses") or ()
            whole = found.setdefault(service, {"subsets": []})
            assert whole is not None
            whole["subsets"].append(subset)
    if not found:
        return {}
    return {name: found.get(name) for name in protected} if protected else found


def _first_line(error: BaseException) -> str:
    """Return the first line of the error's text; for a KeyError that the key is missing."""
    return (
        f"no {error}"
        if isinstance(error, KeyError)
        else (str(error) or type(error).__name__).splitlines()[0].rstrip(".")
    )
