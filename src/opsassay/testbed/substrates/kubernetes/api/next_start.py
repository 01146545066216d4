"""What pods will be given that start from now on, and which of those that run were started with something else.

Pure functions over mirrored objects. Templates are compared as the deployment controller does it, without the label by
which it tells its replica sets apart; a ConfigMap is given to a process once, when its container starts.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from opsassay.testbed.operations.protection import content_digest
from opsassay.testbed.substrates.kubernetes.api.client import Object
from opsassay.testbed.substrates.kubernetes.api.readings import is_ready, owner_of

READ_AT_START = ("ConfigMap", "PersistentVolumeClaim")
HASH_LABEL, RESTARTED = "pod-template-hash", "kubectl.kubernetes.io/restartedAt"
OF_THE_KUBELET = "node.kubernetes.io/"
"""Taints that a node has by its state are nobody's setting."""

Configured = dict[str, str]
Pending = defaultdict[str, tuple[str, ...]]


def next_start(
    objects: Mapping[str, Iterable[Object]], nodes: Iterable[Object] = ()
) -> tuple[Configured, dict[str, tuple[str, ...]]]:
    """Return {entity: digest of what new pods get}, {entity: ready pods started with something older}, by *objects*.

    *objects* are by kind; a node among *nodes* that accepts no pods counts as changed.
    """
    configured, pending = Configured(), Pending(tuple)
    pods = [pod for pod in objects["Pod"] if is_ready(pod)]
    _note_templates(objects["Deployment"], objects["ReplicaSet"], pods, configured, pending)
    _note_config_maps(objects["ConfigMap"], pods, configured, pending)
    _note_claims(objects["PersistentVolumeClaim"], pods, configured, pending)
    for node in nodes:
        if closed := _closed(node):
            name = f"Node {node['metadata']['name']} scheduling"
            configured[name], pending[name] = content_digest(closed), (node["metadata"]["name"],)
    return configured, dict(pending)


def _note_templates(
    deployments: Iterable[Object],
    replica_sets: Iterable[Object],
    pods: Iterable[Object],
    configured: Configured,
    pending: Pending,
) -> None:
    """Add each deployment's pod template to *configured*, and its ready pods of a former template to *pending*."""
    for deployment in deployments:
        workload = deployment["metadata"]["name"]
        name, template = f"Deployment {workload} template", _plain(deployment)
        configured[name] = content_digest(_plain(deployment, with_restarts=False))
        own = {one["metadata"]["name"]: one for one in replica_sets if owner_of(one) == ("Deployment", workload)}
        former = {("ReplicaSet", key) for key, one in own.items() if _plain(one) != template}
        if deployment["spec"].get("paused"):
            held = f"Deployment {workload} rollouts"
            configured[held], pending[held] = content_digest("paused"), (workload,)
        if stale := tuple(sorted(pod["metadata"]["name"] for pod in pods if owner_of(pod) in former)):
            pending[name] = stale


def _note_config_maps(maps: Iterable[Object], pods: Iterable[Object], configured: Configured, pending: Pending) -> None:
    """Add each ConfigMap to *configured*, and the pods that started before its last change to *pending*."""
    known = {one["metadata"]["name"]: one for one in maps}
    for key, one in known.items():
        content = json.dumps([one.get("data"), one.get("binaryData")], sort_keys=True)
        configured[f"ConfigMap {key}"] = content_digest(content)
    for pod in pods:
        started = _started(pod)
        for key in sorted(set(_maps_of(pod["spec"]))):
            if key not in known or started < _changed(known[key]):
                pending[f"ConfigMap {key}"] += (pod["metadata"]["name"],)


def _note_claims(claims: Iterable[Object], pods: Iterable[Object], configured: Configured, pending: Pending) -> None:
    """Add each volume claim to *configured*, and pods whose claim is deleted to *pending*."""
    kept = {one["metadata"]["name"]: one for one in claims if "deletionTimestamp" not in one["metadata"]}
    configured |= {f"PersistentVolumeClaim {key}": one["metadata"]["uid"] for key, one in kept.items()}
    for pod in pods:
        for volume in pod["spec"].get("volumes") or ():
            key = (volume.get("persistentVolumeClaim") or {}).get("claimName")
            if key is not None and key not in kept:
                pending[f"PersistentVolumeClaim {key}"] += (pod["metadata"]["name"],)


def _plain(workload: Object, *, with_restarts: bool = True) -> str:
    """Return the pod template of *workload* as JSON, without hash label, and restart time unless *with_restarts*."""
    template: dict[str, Any] = json.loads(json.dumps(workload["spec"]["template"]))
    metadata = template.setdefault("metadata", {})
    (metadata.get("labels") or {}).pop(HASH_LABEL, None)
    if not with_restarts:
        (metadata.get("annotations") or {}).pop(RESTARTED, None)
    return json.dumps(
        {**template, "metadata": {key: value for key, value in metadata.items() if value}}, sort_keys=True
    )


def _maps_of(spec: Mapping[str, Any]) -> Iterator[str]:
    """Yield the names of the ConfigMaps that a pod *spec* uses."""
    for container in (*(spec.get("initContainers") or ()), *(spec.get("containers") or ())):
        sources = [one.get("configMapRef") for one in container.get("envFrom") or ()]
        sources += [(one.get("valueFrom") or {}).get("configMapKeyRef") for one in container.get("env") or ()]
        yield from (source["name"] for source in sources if source)
    yield from (volume["configMap"]["name"] for volume in spec.get("volumes") or () if volume.get("configMap"))


def _started(pod: Object) -> str:
    """Return the ISO 8601 time when the first container of *pod* started; '' when unknown."""
    states = [one.get("state", {}).get("running") or {} for one in pod["status"].get("containerStatuses") or ()]
    return min((state["startedAt"] for state in states if "startedAt" in state), default="")


def _changed(item: Object) -> str:
    """Return the ISO 8601 time of the last write to *item*, by its managed fields."""
    metadata = item["metadata"]
    times: list[str] = [one["time"] for one in metadata.get("managedFields") or () if "time" in one]
    return max([str(metadata.get("creationTimestamp", "")), *times])


def _closed(node: Object) -> str:
    """Return the cordon and taints on *node* that keep pods away, as JSON without the kubelet's own; '' without any."""
    taints = [one for one in node["spec"].get("taints") or () if not one["key"].startswith(OF_THE_KUBELET)]
    closing = [one for one in taints if one["effect"] in {"NoSchedule", "NoExecute"}]
    unschedulable = bool(node["spec"].get("unschedulable"))
    return json.dumps([unschedulable, closing], sort_keys=True) if unschedulable or closing else ""
