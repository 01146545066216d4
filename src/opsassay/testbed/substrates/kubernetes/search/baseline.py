"""The clean baseline of a cluster: what stood before the first candidate, restored and verified between two.

With the system's own objects it holds what App. H.4 adds to the reset: budgets, quotas, limit ranges, webhooks, what is
said of nodes, and the static pods of the control plane. A candidate may touch nothing outside of it (`candidates.py`).
"""

from __future__ import annotations

import copy
import time
from collections.abc import Mapping
from typing import Any, NamedTuple

from opsassay.core.errors import OperationError, OpsAssayError
from opsassay.testbed.substrates.kubernetes.api.client import Api, ApiError, Object
from opsassay.testbed.substrates.kubernetes.endpoints.probing import send_probe
from opsassay.testbed.substrates.kubernetes.probes import SYSTEM_NAMESPACE
from opsassay.testbed.substrates.kubernetes.running import KubernetesSystem

RESTORED = (
    "Deployment", "Service", "ConfigMap", "NetworkPolicy", "PodDisruptionBudget", "ResourceQuota", "LimitRange",
)  # fmt: skip
"""The kinds whose objects in the system's namespace a reset brings back, or removes."""
WEBHOOKS = ("validatingwebhookconfigurations", "mutatingwebhookconfigurations")
CONFIG_HASH = "kubernetes.io/config.hash"
READY_TIMEOUT_S, PROBE_TIMEOUT_S, LOOK_EVERY_S = 180.0, 3.0, 0.5
OF_THE_SERVER = ("resourceVersion", "uid", "creationTimestamp", "generation", "managedFields", "selfLink")
OF_CONTROLLERS = ("deployment.kubernetes.io/revision", "kubectl.kubernetes.io/last-applied-configuration")

Key = tuple[str, str]
"""Kind and name."""


class ClusterBaseline(NamedTuple):
    """Objects by kind and name, and what is compared of the rest of the cluster, by what it is."""

    objects: Mapping[Key, Object]
    cluster: Mapping[str, Any]


def take_baseline(running: KubernetesSystem) -> ClusterBaseline:
    """Return the present objects of the *running* system, and the cluster's state, to which a reset later returns."""
    found = objects_in(running.api, running.name)
    return ClusterBaseline({key: normal(item) for key, item in found.items()}, rest_of(running.api))


def objects_in(api: Api, namespace: str) -> dict[Key, Object]:
    """Return {(kind, name): object} of those in *namespace* that a reset restores."""
    return {
        (kind, item["metadata"]["name"]): {**item, "kind": kind, "apiVersion": api.version_of(kind)}
        for kind in RESTORED
        for item in api.list(kind, namespace)
    }


def rest_of(api: Api) -> dict[str, Any]:
    """Return the state outside the namespace that must not change: webhooks, cordons and taints, static pods."""
    webhooks: list[Any] = []
    for plural in WEBHOOKS:
        items = api.request("GET", f"/apis/admissionregistration.k8s.io/v1/{plural}")["items"]
        webhooks += sorted((plural, item["metadata"]["name"], item["metadata"].get("generation", 0)) for item in items)
    nodes = {
        item["metadata"]["name"]: [item["spec"].get("unschedulable", False), item["spec"].get("taints") or []]
        for item in api.list("Node")
    }
    pods = api.list("Pod", SYSTEM_NAMESPACE)
    static = {p["metadata"]["name"]: (p["metadata"].get("annotations") or {}).get(CONFIG_HASH) for p in pods}
    return {
        "webhooks": webhooks,
        "nodes": nodes,
        "static pods": {name: value for name, value in static.items() if value},
    }


def normal(item: Object) -> Object:
    """Return a copy of *item* without status and the fields that server and controllers set, for comparison."""
    made = {key: value for key, value in copy.deepcopy(item).items() if key != "status"}
    metadata = {key: value for key, value in made["metadata"].items() if key not in OF_THE_SERVER}
    annotations = {k: v for k, v in (metadata.pop("annotations", None) or {}).items() if k not in OF_CONTROLLERS}
    made["metadata"] = {**metadata, **({"annotations": annotations} if annotations else {})}
    return made


def restore(running: KubernetesSystem, baseline: ClusterBaseline, target_url: str) -> None:
    """Restore all objects to *baseline* and verify that, also that *target_url* answers; raises OperationError."""
    api, found = running.api, objects_in(running.api, running.name)
    for kind, name in found.keys() - baseline.objects.keys():
        api.delete(kind, name, running.name)
    for key, desired in baseline.objects.items():
        if key not in found:
            api.create(dict(desired))
        elif normal(found[key]) != desired:
            version = found[key]["metadata"]["resourceVersion"]
            api.replace({**desired, "metadata": {**desired["metadata"], "resourceVersion": version}})
    verify(running, baseline, target_url)


def verify(running: KubernetesSystem, baseline: ClusterBaseline, target_url: str) -> None:
    """Wait until nothing differs from *baseline* and *target_url* answers 200; raises OperationError when late."""
    deadline = time.monotonic() + READY_TIMEOUT_S
    while (wrong := difference(running, baseline, target_url)) is not None:
        if time.monotonic() > deadline:
            raise OperationError(f"The clean baseline did not come back in {READY_TIMEOUT_S:g} s: {wrong}.")
        time.sleep(LOOK_EVERY_S)


def difference(running: KubernetesSystem, baseline: ClusterBaseline, target_url: str) -> str | None:
    """Return the first difference from *baseline* (object, cluster, readiness, *target_url* not at 200), else None."""
    try:
        found = {key: normal(item) for key, item in objects_in(running.api, running.name).items()}
        for key in sorted(found.keys() | baseline.objects.keys()):
            if found.get(key) != baseline.objects.get(key):
                return f"{' '.join(key)} differs"
        rest = rest_of(running.api)
        if changed := [name for name, value in baseline.cluster.items() if rest[name] != value]:
            return f"{', '.join(changed)} of the cluster differ"
        status = running.status()
        if status.not_ready or status.phase != "ready":
            return f"{', '.join(status.not_ready) or 'the system'} is not ready"
        answer = send_probe(running.api, running.watch_namespace, target_url, PROBE_TIMEOUT_S)
    except ApiError as error:
        return str(error)
    except OpsAssayError as error:
        return f"the cluster cannot be asked ({error})"
    return None if answer["status"] == 200 else f"{target_url} is answered with {answer['status'] or answer['error']}"
