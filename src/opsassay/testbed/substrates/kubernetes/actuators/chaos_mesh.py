"""Faults of the catalogue as Chaos Mesh objects (chaos-mesh.org/v1alpha1), for clusters that have it. Pure, but `kinds`.

Which kinds there are is asked by discovery, and each object is tried on the server before it is made. Its
`duration` ends it in the cluster, beside our own undo. What the object's schema cannot say is refused: the status of an
aborted HTTP request, and faults of a JVM, which no service of ours runs on.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from opsassay.errors import RefusedError
from opsassay.model.incident import PlannedFault
from opsassay.testbed.substrates.kubernetes.api.client import Api, ApiError, Object
from opsassay.testbed.workload.runtime.settings import SERVICE_PORT

GROUP = "chaos-mesh.org/v1alpha1"


class Where(NamedTuple):
    """What a fault hits: one *pod* of *service* in *namespace*, and whom it calls (*callees*)."""

    namespace: str
    service: str
    pod: str
    callees: tuple[str, ...] = ()


def kinds(api: Api) -> frozenset[str]:
    """Return the kinds of Chaos Mesh that the cluster has, none where it is not installed."""
    try:
        listed = api.request("GET", f"/apis/{GROUP}")["resources"]
    except ApiError as error:
        if error.status == 404:
            return frozenset()
        raise
    return frozenset(item["kind"] for item in listed if "/" not in item["name"])


def manifest(fault: PlannedFault, where: Where, name: str, duration_s: float) -> Object:
    """Return the object *name* that does to *where* what *fault* says; raises RefusedError when none can."""
    if (maker := _MAKERS.get(fault.fault)) is None:
        raise RefusedError(f"Chaos Mesh has nothing that does what {fault.fault} means: {_why_not(fault.fault)}.")
    kind, specification = maker(fault.parameters, where)
    common = {"mode": "all", "selector": {"pods": {where.namespace: [where.pod]}}, "duration": f"{round(duration_s)}s"}
    return {
        "apiVersion": GROUP,
        "kind": kind,
        "metadata": {"name": name, "namespace": where.namespace},
        "spec": {**common, **specification},
    }


def _why_not(fault: str) -> str:
    if fault.startswith("JVM"):
        return "JVMChaos needs a Java process, and no service here is one"
    return "its abort closes the connection and has no status"


_Made = tuple[str, Object]
_Maker = Callable[[Mapping[str, Any], Where], _Made]


def _pod(action: str) -> _Maker:
    def make(_: Mapping[str, Any], where: Where) -> _Made:
        return "PodChaos", {
            "action": action,
            **({"containerNames": [where.service]} if action == "container-kill" else {}),
        }

    return make


def _cpu(parameters: Mapping[str, Any], _: Where) -> _Made:
    workers = {"workers": parameters["cores"], "load": round(parameters["load_percent"])}
    return "StressChaos", {"stressors": {"cpu": workers}}


def _memory(parameters: Mapping[str, Any], _: Where) -> _Made:
    return "StressChaos", {"stressors": {"memory": {"workers": 1, "size": f"{parameters['size_mb']}MB"}}}


def _network(action: str, detail: Callable[[Mapping[str, Any]], Object]) -> _Maker:
    """Return a maker of NetworkChaos; its direction "to" are the packets that the selected pod sends."""

    def make(parameters: Mapping[str, Any], where: Where) -> _Made:
        direction = {"from": "to", "to": "from", "both": "both"}[parameters["direction"]]
        peer = parameters.get("peer")
        found = {"action": action, "direction": direction, **detail(parameters)}
        if peer is not None or direction != "to":
            labels = {"labelSelectors": {"app": peer}} if peer else {}
            found["target"] = {"mode": "all", "selector": {"namespaces": [where.namespace], **labels}}
        return "NetworkChaos", found

    return make


def _http(target: str, detail: Callable[[Mapping[str, Any]], Object]) -> _Maker:
    def make(parameters: Mapping[str, Any], _: Where) -> _Made:
        found = {"target": target, "port": SERVICE_PORT, "path": "*", **detail(parameters)}
        if operation := parameters.get("operation"):
            found["method"], found["path"] = operation.split(maxsplit=1)
        return "HTTPChaos", found

    return make


def _body(parameters: Mapping[str, Any]) -> Object:
    if parameters["body_type"] != "empty":
        raise RefusedError("Chaos Mesh replaces a body by one that is fixed beforehand; use body_type empty.")
    return {"replace": {"body": base64.b64encode(b"").decode()}}


def _patch(parameters: Mapping[str, Any]) -> Object:
    return {"patch": {"body": {"type": "JSON", "value": json.dumps(json.loads(parameters["patch"]))}}}


def _dns(action: str) -> _Maker:
    def make(parameters: Mapping[str, Any], where: Where) -> _Made:
        asked = (parameters["hostname"],) if parameters.get("hostname") else where.callees
        patterns = [f"{name}.{where.namespace}.svc.cluster.local" for name in asked]
        return "DNSChaos", {"action": action, "patterns": patterns}

    return make


def _time(parameters: Mapping[str, Any], _: Where) -> _Made:
    return "TimeChaos", {"timeOffset": f"{round(parameters['offset_ms'])}ms"}


def _delay(parameters: Mapping[str, Any]) -> Object:
    return {"delay": f"{parameters['delay_ms']:g}ms"}


_MAKERS: Mapping[str, _Maker] = {
    "PodKill": _pod("pod-kill"),
    "PodFailure": _pod("pod-failure"),
    "ContainerKill": _pod("container-kill"),
    "CPUStress": _cpu,
    "MemoryStress": _memory,
    "HTTPRequestDelay": _http("Request", _delay),
    "HTTPResponseDelay": _http("Response", _delay),
    "HTTPResponseReplaceBody": _http("Response", _body),
    "HTTPResponsePatchBody": _http("Response", _patch),
    "HTTPRequestReplacePath": _http("Request", lambda p: {"replace": {"path": p["new_path"]}}),
    "HTTPRequestReplaceMethod": _http("Request", lambda p: {"replace": {"method": p["method"]}}),
    "HTTPResponseReplaceCode": _http("Response", lambda p: {"replace": {"code": p["code"]}}),
    "DNSError": _dns("error"),
    "DNSRandom": _dns("random"),
    "NetworkDelay": _network(
        "delay", lambda p: {"delay": {"latency": f"{p['delay_ms']:g}ms", "jitter": f"{p['jitter_ms']:g}ms"}}
    ),
    "NetworkLoss": _network("loss", lambda p: {"loss": {"loss": f"{p['loss_percent']:g}"}}),
    "NetworkDuplicate": _network("duplicate", lambda p: {"duplicate": {"duplicate": f"{p['duplicate_percent']:g}"}}),
    "NetworkCorrupt": _network("corrupt", lambda p: {"corrupt": {"corrupt": f"{p['corrupt_percent']:g}"}}),
    "NetworkBandwidth": _network(
        "bandwidth",
        lambda p: {"bandwidth": {"rate": f"{max(p['rate_bps'] // 8, 1)}bps", "limit": 20_971_520, "buffer": 10_000}},
    ),
    "NetworkPartition": _network("partition", lambda _: {}),
    "TimeSkew": _time,
}
"""From fault type to kind and specification; bits per second are bytes per second there."""
