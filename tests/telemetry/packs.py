"""Small datapacks with a known content, the same bytes each time; `from telemetry.packs import make_pack`."""

import itertools
import json
import shutil
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import polars as pl

from opsassay.core.schema.causal_graph import Annotation, CausalEdge, CausalGraph, CausalNode
from opsassay.core.schema.incident import Alert, Fault, Incident, Label, RootLabel, Truth, Window
from opsassay.telemetry.datapack import Datapack, opaque_id, write_datapack
from opsassay.telemetry.injection import iso_time, public_injection
from opsassay.telemetry.tree import Tree

START_NS = int(datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC).timestamp()) * 1_000_000_000 + 123_456_789
SECOND = 1_000_000_000
CHAIN = ("frontend", "cart", "store")


def make_frames(
    *,
    services: Sequence[str] = CHAIN,
    error_in: str | None = None,
    slow_in: str | None = None,
    silent: str | None = None,
    traces: int = 60,
    seconds: int = 60,
    own_ms: int = 10,
    slow_ms: int = 400,
) -> dict[tuple[str, str], pl.DataFrame]:
    """Return all ten tables of a chain in which services[0] calls services[1] and so on.

    Each period has *traces* traces spread evenly over *seconds* seconds, the abnormal one directly after the normal
    one. A trace has one server span per service, each the child of its caller's, under a client span of
    `loadgenerator`. Every service takes *own_ms* itself and waits for its callee. In the abnormal period *error_in*
    answers 500, and so do all its callers (an ERROR log each); *slow_in* takes *slow_ms* longer, and with it all its
    callers; *silent* sends no spans, and neither do its callees. Metrics: container.cpu.usage (gauge) per service
    every 10 s, http.requests (sum), http.server.duration (histogram) once per period.
    """
    frames = {}
    for period in ("normal", "abnormal"):
        begin_ns = START_NS + (seconds * SECOND if period == "abnormal" else 0)
        broken = period == "abnormal"
        chain = list(services)
        if broken and silent is not None:
            chain = chain[: chain.index(silent)]
        spans, logs = [], []
        for index in range(traces):
            rows = _trace(
                index, period, chain, begin_ns + index * seconds * SECOND // traces,
                error_in=error_in if broken else None, slow_in=slow_in if broken else None,
                own_ms=own_ms, slow_ms=slow_ms,
            )  # fmt: skip
            spans += rows
            logs += [_log(row) for row in rows if row["service_name"] != "loadgenerator"]
        frames[period, "traces"] = pl.DataFrame(spans, schema_overrides=_SPAN_TYPES)
        frames[period, "logs"] = pl.DataFrame(logs, infer_schema_length=None)
        frames |= _metrics(period, services, begin_ns, seconds, traces)
    return {table: _timed(frame) for table, frame in frames.items()}


def make_incident(seed: str = "pack", seconds: int = 60, system: str = "chain") -> Incident:
    """Return the description that fits `make_frames(seconds=seconds)`; the id follows from *seed*."""
    boundary_ns = START_NS + seconds * SECOND
    return Incident(
        id=opaque_id(seed),
        system=system,
        normal=Window(start_ns=START_NS, end_ns=boundary_ns),
        abnormal=Window(start_ns=boundary_ns, end_ns=boundary_ns + seconds * SECOND),
        alerts=(
            Alert(
                time_ns=boundary_ns + 3 * SECOND, service="frontend", signal="error_rate", value=0.5, threshold=0.1,
                message="half of the requests fail",
            ),
        ),
        description="Users report that requests fail.",
    )  # fmt: skip


def make_pack(path: Path, *, seed: str = "pack", env: dict | None = None, **knobs) -> Datapack:
    """Write a datapack without truth to *path* and open it; *knobs* are those of `make_frames`."""
    incident = make_incident(seed, knobs.get("seconds", 60))
    write_datapack(path, make_frames(**knobs), incident, {"namespace": "chain"} if env is None else env)
    return Datapack.open(path)


def make_truth(incident: Incident, *, service: str = "store", fault: str = "HTTPResponseAbort") -> Truth:
    """Return the truth that *fault* was injected into *service*, 1.5 s and 1 ns after the abnormal window begins.

    It ended 0.3 s before the window does, so that no instant of truth is one of the windows'.
    """
    start_ns = incident.abnormal.start_ns + 3 * SECOND // 2 + 1
    return Truth(
        id=incident.id,
        system=incident.system,
        faults=(
            Fault(
                type=fault, service=service, pod=f"{service}-0", parameters={"code": 503}, start_ns=start_ns,
                end_ns=incident.abnormal.end_ns - 3 * SECOND // 10,
            ),
        ),
        roots=(RootLabel(service=(service,), pod=(f"{service}-0",)),),
        isolation="namespaces",
        secret="0" * 32,
        recovered=True,
    )  # fmt: skip


def make_annotation(incident: Incident, services: Sequence[str] = CHAIN) -> Annotation:
    """Return an annotation in which the last service of the chain is the root and the first one the alarm."""
    nodes = [
        CausalNode(component=f"service|{name}", state=("ERRORING",), timestamp=incident.abnormal.start_ns + index)
        for index, name in enumerate(reversed(services))
    ]
    pairs = itertools.pairwise(nodes)
    return Annotation(
        label=Label.ATTRIBUTED,
        reason="one path",
        graph=CausalGraph(
            nodes=tuple(nodes),
            edges=tuple(CausalEdge(source=a.component, target=b.component, rule="calls") for a, b in pairs),
            root_causes=(nodes[0],),
            alarm_nodes=(nodes[-1],),
            component_to_service={f"service|{name}": name for name in services},
        ),
        thresholds={"z": 3.0},
    )


def make_tree(root: Path, count: int = 2, **knobs) -> Tree:
    """Write a tree of *count* annotated incidents (error in store) with a ledger each."""
    tree = Tree(root)
    for number in range(count):
        incident = make_incident(f"tree {number}", knobs.get("seconds", 60))
        tree.write_truth(make_truth(incident))
        tree.write_annotation(incident.id, make_annotation(incident))
        tree.write_ledger(incident.id, pl.DataFrame({"call": ["a", "b"], "added_ns": [5, 7]}))
        frames = make_frames(error_in="store", **knobs)
        write_datapack(tree.incident_path(incident.id), frames, incident, {"namespace": "chain"})
    return tree


def make_public(path: Path, *, injection: dict | None = None, graph: dict | None = None, **knobs) -> Path:
    """Write a datapack in the public form (no incident.json; injection.json and, if given, causal_graph.json)."""
    pack = make_pack(path, **{"error_in": "store", **knobs})
    if injection is None:
        injection = public_injection(make_truth(pack.incident))
    (path / "incident.json").unlink()
    (path / "injection.json").write_text(json.dumps(injection))
    if graph is not None:
        (path / "causal_graph.json").write_text(json.dumps(graph))
    return path


def old_injection(number: int, pack: Incident | None = None) -> dict:
    """Return injection.json of the older generation: a numeric fault_type and display_config as text."""
    incident = pack or make_incident()
    start_ns, end_ns = incident.abnormal.start_ns, incident.abnormal.end_ns
    return {
        "fault_type": number,
        "display_config": json.dumps(
            {
                "duration": 4,
                "injection_point": {"app_name": "store", "method": "GET", "route": "/get"},
                "namespace": "chain",
            }
        ),
        "engine_config": json.dumps({"name": "HTTP", "children": {}}),
        "start_time": iso_time(start_ns),
        "end_time": iso_time(end_ns),
        "ground_truth": {"service": ["store"], "span": ["GET /get"]},
    }


def copied(pack: Datapack, path: Path) -> Path:
    """Return a copy of *pack* at *path* that a test may damage."""
    shutil.copytree(pack.path, path)
    return path


_SPAN_TYPES = {"duration": pl.UInt64, "attr.http.response.status_code": pl.UInt16}


def _timed(frame):
    """Return *frame* with its integers of nanoseconds as times."""
    time = pl.from_epoch("time_ns", time_unit="ns").dt.replace_time_zone("UTC").alias("time")
    return frame.select(time, pl.exclude("time_ns"))


def _trace(index, period, chain, time_ns, *, error_in, slow_in, own_ms, slow_ms):
    trace_id = f"{period}-{index:05d}"
    failing = set(chain[: chain.index(error_in) + 1]) if error_in in chain else set()
    rows = [_span(trace_id, "loadgenerator", "", time_ns, "Client", bool(failing))]
    for depth, service in enumerate(chain):
        parent = rows[-1]["span_id"]
        rows.append(_span(trace_id, service, parent, time_ns + (depth + 1) * 1_000_000, "Server", service in failing))
    below_ms = 0
    for row in reversed(rows):
        below_ms += own_ms + (slow_ms if row["service_name"] == slow_in else 0)
        row["duration"] = below_ms * 1_000_000
    return rows


def _span(trace_id, service, parent, time_ns, kind, failing):
    return {
        "time_ns": time_ns,
        "trace_id": trace_id,
        "span_id": f"{trace_id}/{service}",
        "parent_span_id": parent,
        "span_name": f"GET /{service}",
        "attr.span_kind": kind,
        "service_name": service,
        "duration": 0,
        "attr.status_code": "Error" if failing else "Unset",
        "attr.k8s.pod.name": f"{service}-0",
        "attr.k8s.service.name": service,
        "attr.k8s.namespace.name": "chain",
        "attr.http.request.method": "GET",
        "attr.http.response.status_code": 500 if failing else 200,
    }


def _log(row):
    failing = row["attr.status_code"] == "Error"
    return {
        "time_ns": row["time_ns"],
        "trace_id": row["trace_id"],
        "span_id": row["span_id"],
        "level": "ERROR" if failing else "INFO",
        "service_name": row["service_name"],
        "message": f"{row['span_name']} answered {row['attr.http.response.status_code']}",
        "attr.k8s.pod.name": row["attr.k8s.pod.name"],
    }


def _metrics(period, services, begin_ns, seconds, traces):
    gauges = [
        {"time_ns": begin_ns + at * SECOND, "metric": "container.cpu.usage", "value": 0.25, "service_name": service,
         "attr.k8s.pod.name": f"{service}-0"}
        for service in services
        for at in range(0, seconds, 10)
    ]  # fmt: skip
    sums = [
        {"time_ns": begin_ns, "metric": "http.requests", "value": float(traces), "service_name": service}
        for service in services
    ]
    histograms = [
        {"time_ns": begin_ns, "metric": "http.server.duration", "service_name": service, "count": float(traces),
         "sum": 10.0 * traces, "min": 10.0, "max": 10.0}
        for service in services
    ]  # fmt: skip
    return {
        (period, "metrics"): pl.DataFrame(gauges),
        (period, "metrics_sum"): pl.DataFrame(sums),
        (period, "metrics_histogram"): pl.DataFrame(histograms),
    }
