"""Faults of the catalogue as Chaos Mesh objects (chaos-mesh.org/v1alpha1), for clusters that have it. Pure, but `kinds`.

Which kinds there are is asked by discovery, and each object is tried on the server before it is made. Its
`duration` ends it in the cluster, beside our own undo. What the object's schema cannot say has no
maker: the status of an aborted HTTP request, and faults of a JVM, which no service of ours runs on.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from opsassay.core.errors import RefusedError
from opsassay.core.schema.incident import PlannedFault
from opsassay.testbed.substrates.kubernetes.api.client import Api, ApiError, Object
from opsassay.testbed.workload.runtime.settings import SERVICE_PORT

GROUP = "chaos-mesh.org/v1alpha1"


class Where(NamedTuple):
    """What a fault hits: one *pod* of *service* in *namespace*, and whom it calls (*callees*)."""

    namespace: str
    service: str
    pod: str
    callees: tuple[str, ...] = ()


WORKERS = 4
"""Burners where a plan gives no number: more than a container usually may use."""
_Made = tuple[str, Object]
ChaosMaker = Callable[[Mapping[str, Any], Where], _Made]
"""Makes kind and specification of the object of one fault type from its parameters."""


def kinds(api: Api) -> frozenset[str]:
    """Return the kinds of Chaos Mesh that the cluster has, none where it is not installed."""
    try:
        listed = api.request("GET", f"/apis/{GROUP}")["resources"]
    except ApiError as error:
        if error.status == 404:
            return frozenset()
        raise
    return frozenset(item["kind"] for item in listed if "/" not in item["name"])


def manifest(maker: ChaosMaker, fault: PlannedFault, where: Where, name: str, duration_s: float) -> Object:
    """Return the object *name* by which *maker* does to *where* what *fault* says; raises RefusedError when it cannot."""
    kind, specification = maker(fault.parameters, where)
    common = {"mode": "all", "selector": {"pods": {where.namespace: [where.pod]}}, "duration": f"{round(duration_s)}s"}
    return {
        "apiVersion": GROUP,
        "kind": kind,
        "metadata": {"name": name, "namespace": where.namespace},
        "spec": {**common, **specification},
    }


def pod_chaos(action: str) -> ChaosMaker:
    """Return the maker of a PodChaos that does *action*."""

    def make(_: Mapping[str, Any], where: Where) -> _Made:
        return "PodChaos", {
            "action": action,
            **({"containerNames": [where.service]} if action == "container-kill" else {}),
        }

    return make


def cpu_chaos(parameters: Mapping[str, Any], _: Where) -> _Made:
    """Return burners in the container."""
    workers = {"workers": parameters.get("cores") or WORKERS, "load": round(parameters["load_percent"])}
    return "StressChaos", {"stressors": {"cpu": workers}}


def memory_chaos(parameters: Mapping[str, Any], _: Where) -> _Made:
    """Return memory that is allocated in the container: *size_mb*, or nearly all that its limit leaves."""
    size = f"{parameters['size_mb']}MB" if parameters.get("size_mb") else "95%"
    return "StressChaos", {"stressors": {"memory": {"workers": 1, "size": size}}}


def network_chaos(action: str, detail: Callable[[Mapping[str, Any]], Object]) -> ChaosMaker:
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


def http_chaos(target: str, detail: Callable[[Mapping[str, Any]], Object]) -> ChaosMaker:
    """Return the maker of an HTTPChaos on *target*, Request or Response, with the *detail* of its parameters."""

    def make(parameters: Mapping[str, Any], _: Where) -> _Made:
        found = {"target": target, "port": SERVICE_PORT, "path": "*", **detail(parameters)}
        if operation := parameters.get("operation"):
            found["method"], found["path"] = operation.split(maxsplit=1)
        return "HTTPChaos", found

    return make


def replaced_body(parameters: Mapping[str, Any]) -> Object:
    """Return what empties a body; raises RefusedError for another one."""
    if parameters["body_type"] != "empty":
        raise RefusedError("Chaos Mesh replaces a body by one that is fixed beforehand; use body_type empty.")
    return {"replace": {"body": base64.b64encode(b"").decode()}}


def patched_body(parameters: Mapping[str, Any]) -> Object:
    """Return what merges keys into a body."""
    return {"patch": {"body": {"type": "JSON", "value": json.dumps(json.loads(parameters["patch"]))}}}


def dns_chaos(action: str) -> ChaosMaker:
    """Return the maker of a DNSChaos that does *action* to look-ups of the host name, or of all callees."""

    def make(parameters: Mapping[str, Any], where: Where) -> _Made:
        asked = (parameters["hostname"],) if parameters.get("hostname") else where.callees
        patterns = [f"{name}.{where.namespace}.svc.cluster.local" for name in asked]
        return "DNSChaos", {"action": action, "patterns": patterns}

    return make


def time_chaos(parameters: Mapping[str, Any], _: Where) -> _Made:
    """Return what shifts the clock."""
    return "TimeChaos", {"timeOffset": f"{round(parameters['offset_ms'])}ms"}


def delayed(parameters: Mapping[str, Any]) -> Object:
    """Return what delays a request or response."""
    return {"delay": f"{parameters['delay_ms']:g}ms"}


def latency(parameters: Mapping[str, Any]) -> Object:
    """Return what delays packets."""
    return {"delay": {"latency": f"{parameters['delay_ms']:g}ms", "jitter": f"{parameters['jitter_ms']:g}ms"}}


def bandwidth(parameters: Mapping[str, Any]) -> Object:
    """Return what limits a rate; bits per second are bytes per second there."""
    rate = f"{max(parameters['rate_bps'] // 8, 1)}bps"
    return {"bandwidth": {"rate": rate, "limit": 20_971_520, "buffer": 10_000}}
