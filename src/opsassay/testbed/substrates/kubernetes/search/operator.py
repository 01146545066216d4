"""The scripted operator of "side-effects", Table 16, on a cluster: it repairs what meets the eye and then stops.

Its blind spots are the point: it reads no policy, no budget and no latency, and sends no request to a service.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from datetime import UTC, datetime

from opsassay.core.errors import OpsAssayError
from opsassay.testbed.operations.search import Repair, repair_what_shows
from opsassay.testbed.substrates.kubernetes.api.client import Object
from opsassay.testbed.substrates.kubernetes.api.readings import backends
from opsassay.testbed.substrates.kubernetes.probes import SYSTEM_NAMESPACE
from opsassay.testbed.substrates.kubernetes.running import KubernetesSystem
from opsassay.testbed.substrates.kubernetes.search.baseline import ClusterBaseline

SETTLE_S, LOOK_EVERY_S = 30.0, 0.5
"""How long a rollout may take before it counts as a symptom."""
NO_IMAGE = ("ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull")
CRASHING = ("CrashLoopBackOff", "CreateContainerConfigError", "RunContainerError", "CreateContainerError")


def repair(running: KubernetesSystem, baseline: ClusterBaseline, settle_s: float = SETTLE_S) -> Repair:
    """Repair visible symptoms until healthy or none is left; a check lasts *settle_s* at most; return what was done."""
    return repair_what_shows(
        lambda: _wait_until_healthy(running, baseline, settle_s),
        lambda: [
            *_repair_selectors(running),
            *_repair_workloads(running, baseline),
            *_repair_taints(running),
            *_restart_api_server(running),
        ],
    )


def _wait_until_healthy(running: KubernetesSystem, baseline: ClusterBaseline, settle_s: float) -> bool:
    """Wait at most *settle_s* until the system is as in *baseline*; return whether it is."""
    deadline = time.monotonic() + settle_s
    while not healthy(running, baseline):
        if time.monotonic() > deadline:
            return False
        time.sleep(LOOK_EVERY_S)
    return True


def healthy(running: KubernetesSystem, baseline: ClusterBaseline) -> bool:
    """Return whether deployments of *baseline* are rolled out, services have backends, no taint evicts, /healthz ok."""
    try:
        return (
            all(_rolled_out(item) for item in running.api.list("Deployment", running.name))
            and not _list_empty_services(running)
            and not any(_evicting_taints(node) for node in running.api.list("Node"))
            and _is_healthy(running)
            and {name for kind, name in baseline.objects if kind == "Deployment"}
            <= {item["metadata"]["name"] for item in running.api.list("Deployment", running.name)}
        )
    except OpsAssayError:
        return False


def _rolled_out(item: Object) -> bool:
    """Return whether the rollout of the deployment *item* is complete and all its pods are ready."""
    status, desired = item.get("status", {}), item["spec"].get("replicas", 1)
    seen = status.get("observedGeneration", 0) >= item["metadata"].get("generation", 0)
    counts = [status.get(name, 0) for name in ("replicas", "updatedReplicas", "readyReplicas")]
    return bool(seen and counts == [desired] * 3)


def _list_empty_services(running: KubernetesSystem) -> list[str]:
    """Return the names of the services without a ready backend."""
    endpoints = {item["metadata"]["name"]: item for item in running.api.list("Endpoints", running.name)}
    services = [item["metadata"]["name"] for item in running.api.list("Service", running.name)]
    return [name for name in services if not backends(endpoints.get(name))[0]]


def _repair_selectors(running: KubernetesSystem) -> list[str]:
    """Set the selector app=NAME on services without ready backends; return a text on each repair."""
    done = []
    for name in _list_empty_services(running):
        service = running.api.get("Service", name, running.name)
        if service is not None and (service["spec"].get("selector") or {}) != {"app": name}:
            change = {"spec": {"selector": {"$patch": "replace", "app": name}}}
            running.api.patch("Service", name, change, running.name)
            done.append(f"patch service {name}: selector app={name}")
    return done


def _repair_workloads(running: KubernetesSystem, baseline: ClusterBaseline) -> list[str]:
    """Restore image or template, by *baseline*, of deployments whose pods lack an image or crash; return texts."""
    reasons: dict[str, set[str]] = {}
    for pod in running.api.list("Pod", running.name):
        waiting = [s.get("state", {}).get("waiting") or {} for s in pod["status"].get("containerStatuses") or ()]
        app = (pod["metadata"].get("labels") or {}).get("app", "")
        reasons.setdefault(app, set()).update(one.get("reason", "") for one in waiting)
    done = []
    for (kind, name), good in baseline.objects.items():
        seen = reasons.get(name, set())
        if kind != "Deployment" or running.api.get(kind, name, running.name) is None:
            continue
        if seen & set(NO_IMAGE):
            running.api.patch(kind, name, _images_patch(good), running.name)
            done.append(f"set image of {name} to the last that was good")
        elif seen & set(CRASHING):
            running.api.patch(kind, name, _restart_patch(good), running.name)
            done.append(f"restart {name} with its last good template")
    return done


def _images_patch(good: Mapping[str, Object]) -> Object:
    """Return the patch that restores the container images of the deployment *good*."""
    containers = good["spec"]["template"]["spec"]["containers"]
    images = [{"name": one["name"], "image": one["image"]} for one in containers]
    return {"spec": {"template": {"spec": {"containers": images}}}}


def _restart_patch(good: Mapping[str, Object]) -> Object:
    """Return the patch that restores the containers of the deployment *good* and restarts its pods."""
    now = {"kubectl.kubernetes.io/restartedAt": datetime.now(UTC).isoformat(timespec="seconds")}
    containers = [{"$patch": "replace"}, *good["spec"]["template"]["spec"]["containers"]]
    return {"spec": {"template": {"metadata": {"annotations": now}, "spec": {"containers": containers}}}}


def _repair_taints(running: KubernetesSystem) -> list[str]:
    """Remove the evicting taints of all nodes; return a text on each repaired node."""
    done = []
    for node in running.api.list("Node"):
        if evicting := _evicting_taints(node):
            rest = [taint for taint in node["spec"]["taints"] if taint not in evicting]
            running.api.patch("Node", node["metadata"]["name"], {"spec": {"taints": rest or None}}, patch_type="merge")
            done.append(f"untaint {node['metadata']['name']}")
    return done


def _evicting_taints(node: Object) -> list[Object]:
    """Return the NoExecute taints of *node*, without those that Kubernetes itself sets."""
    taints = node["spec"].get("taints") or ()
    return [t for t in taints if t["effect"] == "NoExecute" and not t["key"].startswith("node.kubernetes.io/")]


def _is_healthy(running: KubernetesSystem) -> bool:
    """Return whether the API server says that it is healthy."""
    return str(running.api.request("GET", "/healthz", tries=1)).strip() == "ok"


def _restart_api_server(running: KubernetesSystem) -> list[str]:
    """If the API server is not healthy, delete its pods, which restarts it; return a text on each."""
    try:
        if _is_healthy(running):
            return []
        pods = running.api.list("Pod", SYSTEM_NAMESPACE, "component=kube-apiserver")
        for pod in pods:
            running.api.delete("Pod", pod["metadata"]["name"], SYSTEM_NAMESPACE)
    except OpsAssayError:
        return []
    return [f"restart {pod['metadata']['name']}" for pod in pods]
