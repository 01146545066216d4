"""Reads and writes injection.json and causal_graph.json of the public form, as Truth and Annotation.

Two generations exist: `engine_config` as a list with `chaos_type` per entry, and an older one with a numeric
`fault_type` and `display_config` as JSON in a string.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from opsassay.core.errors import DatapackError, NotFoundError
from opsassay.core.schema.causal_graph import PUBLISHED, Annotation, CausalGraph, CausalNode
from opsassay.core.schema.faults import NO_FAULT, fault_type
from opsassay.core.schema.incident import Fault, Incident, Label, RootLabel, Truth
from opsassay.core.schema.validation_errors import problem, reason
from opsassay.telemetry.datapack import read_object

INJECTION, CAUSAL_GRAPH = "injection.json", "causal_graph.json"

_NUMBERED = (
    *("PodKill", "PodFailure", "ContainerKill", "MemoryStress", "CPUStress"),
    *("HTTPRequestAbort", "HTTPResponseAbort", "HTTPRequestDelay", "HTTPResponseDelay", "HTTPResponseReplaceBody"),
    *("HTTPResponsePatchBody", "HTTPRequestReplacePath", "HTTPRequestReplaceMethod", "HTTPResponseReplaceCode"),
    *("DNSError", "DNSRandom", "TimeSkew"),
    *("NetworkDelay", "NetworkLoss", "NetworkDuplicate", "NetworkCorrupt", "NetworkBandwidth", "NetworkPartition"),
    *("JVMLatency", "JVMReturn", "JVMException", "JVMGarbageCollector", "JVMCPUStress", "JVMMemoryStress"),
    *("JVMMySQLLatency", "JVMMySQLException", "JVMRuntimeMutator"),
)
"""Chaos types by their number in the older generation (rcabench); not the order of Table 5."""

UNKNOWN = "unknown"
"""The fault type of a case with known root causes and unknown faults."""

_WHERE = frozenset({"app", "chaos_type", "pod_name", "target_service", "target_host", "start_time", "end_time"})
"""Keys of an entry of engine_config that are fields of a Fault; the others become its parameters."""


def read_public_truth(folder: Path, incident: Incident) -> Truth:
    """Return the truth of *incident* that injection.json in *folder* states; raises DatapackError."""
    where = folder / INJECTION
    given = read_object(where)
    try:
        faults = _read_faults(given)
        roots = tuple(_read_root(entry) for entry in _as_list(given.get("ground_truth")))
    except (KeyError, TypeError, ValueError, AttributeError) as error:  # a ValidationError is a ValueError
        raise DatapackError(
            f"{where} cannot be understood: {reason(error)}; correct it or leave the case out."
        ) from error
    except NotFoundError as error:
        raise DatapackError(f"{where}: {error}") from error
    if not roots:
        roots = tuple(RootLabel(service=(fault.service,)) for fault in faults if fault.service)
    return Truth(id=incident.id, system=incident.system, faults=faults, roots=roots, public=given)


def public_injection(truth: Truth) -> dict[str, Any]:
    """Return the content of injection.json: as it was imported, else made from the faults of *truth*."""
    if truth.public:
        return truth.public
    types = {fault.type for fault in truth.faults}
    return {
        "fault_type": types.pop() if len(types) == 1 else "hybrid" if types else UNKNOWN if truth.roots else NO_FAULT,
        "start_time": iso_time(min(fault.start_ns for fault in truth.faults)) if truth.faults else None,
        "end_time": iso_time(max(fault.end_ns for fault in truth.faults)) if truth.faults else None,
        "engine_config": [
            {
                **fault.parameters,
                "app": fault.service,
                "chaos_type": fault.type,
                "pod_name": fault.pod,
                "target_service": fault.peer,
                **({"target_host": fault.host} if fault.host else {}),
                "start_time": iso_time(fault.start_ns),
                "end_time": iso_time(fault.end_ns),
            }
            for fault in truth.faults
        ],
        "ground_truth": [
            {level: list(names) for level, names in root.model_dump().items() if names} for root in truth.roots
        ],
    }


def read_graph(path: Path) -> Annotation:
    """Return the public causal graph in *path* as an annotation; raises DatapackError.

    Times of nodes are taken as s, ms, us or ns of UTC by their magnitude.
    """
    given = read_object(path)
    try:
        graph = CausalGraph.model_validate({key: value for key, value in given.items() if value is not None})
    except ValidationError as error:
        raise DatapackError(f"{path}: {problem(error)}; correct the file or leave the case out.") from error
    nodes = {
        name: tuple(map(_as_nanosecond_node, getattr(graph, name))) for name in ("nodes", "root_causes", "alarm_nodes")
    }
    return Annotation(
        label=Label.ATTRIBUTED if graph.root_causes else Label.UNEXPLAINED,
        reason=f"{PUBLISHED}{CAUSAL_GRAPH}",
        graph=graph.model_copy(update=nodes),
    )


def _read_faults(data: Mapping[str, Any]) -> tuple[Fault, ...]:
    """Return the faults in *data*, the content of an injection.json; raises ValueError."""
    entries, named = _entries(data), data.get("fault_type")
    if not entries and named in (NO_FAULT, UNKNOWN):
        return ()
    start_ns, end_ns = _nanoseconds(data["start_time"]), _nanoseconds(data["end_time"])
    if not entries:
        raise ValueError("neither engine_config nor display_config says what was broken")
    return tuple(
        Fault(
            type=_chaos_type(entry.get("chaos_type", named)),
            service=entry.get("app"),
            pod=entry.get("pod_name"),
            host=entry.get("target_host"),
            peer=entry.get("target_service"),
            parameters={key: value for key, value in entry.items() if key not in _WHERE and value is not None},
            start_ns=_nanoseconds(entry.get("start_time")) if entry.get("start_time") else start_ns,
            end_ns=_nanoseconds(entry.get("end_time")) if entry.get("end_time") else end_ns,
        )
        for entry in entries
    )


def _entries(data: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return one flat mapping per fault in *data*, the content of an injection.json of any format version."""
    engine = data.get("engine_config")
    if isinstance(engine, str):
        engine = json.loads(engine) if engine.strip().startswith("[") else None
    if isinstance(engine, list) and engine:
        return [dict(entry) for entry in engine]
    display = data.get("display_config")
    display = json.loads(display) if isinstance(display, str) and display.strip() else display
    if not isinstance(display, Mapping):
        return []
    point = display.get("injection_point") or {}
    rest = {key: value for key, value in display.items() if key != "injection_point"}
    service = point.get("app_name") or point.get("app_label") or point.get("source_service")
    return [{**rest, **point, "app": service or _find_first_root(data)}]


def _find_first_root(data: Mapping[str, Any]) -> str | None:
    """Return the first service of the ground truth in *data*, an injection.json; None without one."""
    roots = [service for entry in _as_list(data.get("ground_truth")) for service in _as_list(entry.get("service"))]
    return roots[0] if roots else None


def _chaos_type(value: Any) -> str:
    """Return the chaos type for *value*, its number or its name; raises ValueError, NotFoundError."""
    if isinstance(value, int) or (isinstance(value, str) and value.isdigit()):
        number = int(value)
        if not 0 <= number < len(_NUMBERED):
            raise ValueError(f"fault_type {number} is not one of 0 to {len(_NUMBERED) - 1}")
        value = _NUMBERED[number]
    return NO_FAULT if value == NO_FAULT else fault_type(str(value)).name


def _read_root(entry: Mapping[str, Any]) -> RootLabel:
    """Return *entry* of the ground truth as a label: at each level the names the root cause may have."""
    return RootLabel(**{level: tuple(_as_list(entry.get(level))) for level in RootLabel.model_fields})


def _as_list(value: Any) -> list[Any]:
    """Return *value* as a list: [] for an empty value, [*value*] for anything that is no list."""
    return list(value) if isinstance(value, list) else [value] if value else []


def _nanoseconds(value: Any) -> int:
    """Parse an ISO time (UTC without a zone) into ns since 1970; nine decimals are kept."""
    text = str(value).strip().replace("Z", "+00:00")
    head, dot, tail = text.partition(".")
    digits = tail[: len(tail) - len(tail.lstrip("0123456789"))] if dot else ""
    moment = datetime.fromisoformat(head + tail[len(digits) :])
    moment = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment
    seconds = (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(seconds=1)
    return seconds * 1_000_000_000 + int((digits + "000000000")[:9])


def iso_time(time_ns: int) -> str:
    """Return *time_ns*, ns since 1970, as an ISO time of UTC with no, six or nine decimals, as few as it needs."""
    seconds, rest = divmod(time_ns, 1_000_000_000)
    fraction = "" if rest == 0 else f".{rest // 1000:06d}" if rest % 1000 == 0 else f".{rest:09d}"
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S") + fraction + "+00:00"


def _as_nanosecond_node(node: CausalNode) -> CausalNode:
    """Return *node* with its time in ns; its unit (s, ms, us or ns) is recognised by magnitude."""
    if node.timestamp is None:
        return node
    scale = next((s for limit, s in ((10**11, 10**9), (10**14, 10**6), (10**17, 10**3)) if node.timestamp < limit), 1)
    return node.model_copy(update={"timestamp": node.timestamp * scale})
