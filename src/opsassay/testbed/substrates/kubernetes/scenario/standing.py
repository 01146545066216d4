"""A namespace as it stands before a trial, kept in the cluster, and put back object by object after it.

What is kept are the kinds that a trigger or an agent may change. What others make there meanwhile goes too; what a
controller owns is its own, but for the replica sets that a trial has left.
"""

from __future__ import annotations

import base64
import gzip
import json
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress

from opsassay.core.errors import RefusedError
from opsassay.core.schema.cluster import LOOKING, AccessRule
from opsassay.testbed.substrates.kubernetes.api.client import Api, ApiError, DeniedError, Object
from opsassay.testbed.substrates.kubernetes.api.kinds import KINDS
from opsassay.testbed.substrates.kubernetes.api.next_start import OF_THE_KUBELET
from opsassay.testbed.substrates.kubernetes.api.readings import owner_of

KEPT = ("ConfigMap", "Service", "NetworkPolicy", "ResourceQuota", "Deployment", "ReplicaSet", "Pod")
"""Kinds in a namespace that are put back, in this order: what pods need comes before what makes them."""
BEFORE = "before"
"""What the secrets are called that hold it: settings may be secret."""
PART_BYTES = 700_000
"""An object of the API holds one MiB."""
OF_THE_SERVER = ("uid", "resourceVersion", "generation", "creationTimestamp", "managedFields", "selfLink")
OF_CONTROLLERS = ("deployment.kubernetes.io/", "control-plane.alpha.kubernetes.io/")
"""What annotations begin with that no person writes."""
ROLLED_OUT_WITHIN_S, LOOK_EVERY_S, TRIES = 150.0, 0.5, 5

Standing = dict[str, dict[str, Object]]
"""Objects by kind and name, without what the server and controllers note about them."""


def standing(api: Api, namespace: str) -> Standing:
    """Return {kind: {name: object}} of *namespace* and the nodes now, without kinds that this user may not list."""
    found: Standing = {}
    for kind in (*KEPT, "Node"):
        with suppress(DeniedError):
            found[kind] = _objects_of_kind(api, kind, namespace)
    return found


def _objects_of_kind(api: Api, kind: str, namespace: str) -> dict[str, Object]:
    """Return {name: what a user wrote} of the objects of *kind*, without those that controllers own."""
    there = {one["metadata"]["name"]: one for one in api.list(kind, namespace)}
    if kind == "Node":
        return {name: _scheduling_state(one) for name, one in there.items()}
    if kind == "ReplicaSet":  # how many pods it runs is its deployment's matter
        return {name: {"spec": {"template": one["spec"]["template"]}} for name, one in there.items()}
    stays = {name: one for name, one in there.items() if "deletionTimestamp" not in one["metadata"]}
    return {name: _as_written(one) for name, one in stays.items() if owner_of(one) is None}


def _scheduling_state(node: Object) -> Object:
    """Return the cordon and taints of *node*, without taints of the kubelet."""
    taints = [one for one in node["spec"].get("taints") or () if not one["key"].startswith(OF_THE_KUBELET)]
    return {"unschedulable": bool(node["spec"].get("unschedulable")), "taints": taints}


def _as_written(item: Object) -> Object:
    """Return *item* without its status and the metadata that the server sets."""
    metadata = {key: value for key, value in item["metadata"].items() if key not in OF_THE_SERVER}
    notes: Mapping[str, str] = metadata.pop("annotations", None) or {}
    notes = {key: text for key, text in notes.items() if not key.startswith(OF_CONTROLLERS)}
    rest = {key: value for key, value in item.items() if key not in ("metadata", "status", "kind", "apiVersion")}
    return {"metadata": {**metadata, **({"annotations": notes} if notes else {})}, **rest}


def keep_standing(api: Api, before: Standing, namespace: str, labels: Mapping[str, str]) -> None:
    """Store *before*, a result of `standing`, in Secrets of *namespace* with *labels*, in parts of limited size."""
    content = gzip.compress(json.dumps(before).encode())
    for number in range(0, len(content), PART_BYTES):
        part = base64.b64encode(content[number : number + PART_BYTES]).decode()
        metadata = {"name": f"{BEFORE}-{number // PART_BYTES:03}", "namespace": namespace, "labels": dict(labels)}
        about = {"parts": str(-(-len(content) // PART_BYTES))}
        body = {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {**metadata, "annotations": about},
            "data": {"part": part},
        }
        api.create(body)


def read_kept(api: Api, namespace: str) -> Standing | None:
    """Return what `keep_standing` stored in *namespace*; None if incomplete: then nothing was changed yet."""
    parts = sorted(
        (one for one in api.list("Secret", namespace) if one["metadata"]["name"].startswith(f"{BEFORE}-")),
        key=lambda one: str(one["metadata"]["name"]),
    )
    if not parts or len(parts) < int(parts[0]["metadata"]["annotations"]["parts"]):
        return None
    content = b"".join(base64.b64decode(one["data"]["part"]) for one in parts)
    found: Standing = json.loads(gzip.decompress(content))
    return found


def put_back(api: Api, namespace: str, before: Standing) -> None:
    """Restore the objects of *namespace* and the nodes to *before*, and wait for rollouts; raises OpsAssayError."""
    for kind in (one for one in KEPT if one in before and one != "ReplicaSet"):
        now = _objects_of_kind(api, kind, namespace)
        for name in now.keys() - before[kind].keys():
            api.delete(kind, name, namespace)
        for name, item in before[kind].items():
            if now.get(name) != item:
                _put(api, kind, namespace, name, item)
    for name, node in before.get("Node", {}).items():
        there = api.get("Node", name)
        if there is not None and _scheduling_state(there) != node:
            own = [one for one in there["spec"].get("taints") or () if one["key"].startswith(OF_THE_KUBELET)]
            api.patch("Node", name, {"spec": {**node, "taints": [*node["taints"], *own] or None}}, patch_type="merge")
    _await_rollouts(api, namespace, before)
    if "ReplicaSet" in before:
        for name in _objects_of_kind(api, "ReplicaSet", namespace).keys() - before["ReplicaSet"].keys():
            api.delete("ReplicaSet", name, namespace)


def _put(api: Api, kind: str, namespace: str, name: str, item: Object) -> None:
    """Replace the object *name* of *kind* by *item*, or create it."""
    body = {"apiVersion": api.version_of(kind), "kind": kind, **item}
    for attempt in range(TRIES):
        there = api.get(kind, name, namespace)
        try:
            if there is None:
                api.create(body)
            elif kind != "Pod":
                version = {"resourceVersion": there["metadata"]["resourceVersion"]}
                api.replace({**body, "metadata": {**body["metadata"], **version}})
            return
        except ApiError as error:
            if error.status not in (404, 409) or attempt == TRIES - 1:
                raise
        time.sleep(LOOK_EVERY_S)


def _await_rollouts(api: Api, namespace: str, before: Standing) -> None:
    """Wait until every deployment of *before* is rolled out, for a limited time; one that is late is ignored."""
    deadline = time.monotonic() + ROLLED_OUT_WITHIN_S
    while time.monotonic() < deadline:
        waiting = [one for one in api.list("Deployment", namespace) if not _rolled_out(one)]
        if not any(one["metadata"]["name"] in before.get("Deployment", {}) for one in waiting):
            return
        time.sleep(LOOK_EVERY_S)


def _rolled_out(deployment: Object) -> bool:
    """Return whether the rollout of *deployment* is complete."""
    status, count = deployment.get("status") or {}, deployment["spec"].get("replicas", 1)
    done: bool = status.get("observedGeneration", 0) >= deployment["metadata"].get("generation", 0) and all(
        status.get(key, 0) == count for key in ("replicas", "updatedReplicas", "readyReplicas")
    )
    return done


def differences(api: Api, namespace: str, before: Standing) -> list[str]:
    """Return a sentence for each object of *namespace* or node that differs from *before*; replica sets may be gone."""
    now, found = standing(api, namespace), []
    for kind, items in before.items():
        there = now.get(kind, {})
        found += [f"{kind} {name} is gone" for name in items.keys() - there.keys() if kind != "ReplicaSet"]
        found += [f"{kind} {name} is new" for name in there.keys() - items.keys() if kind != "Node"]
        found += [f"{kind} {name} is another one" for name in items.keys() & there.keys() if items[name] != there[name]]
    return sorted(found)


def require_kept(rules: Iterable[AccessRule], before: Standing, namespace: str) -> None:
    """Raise RefusedError if *rules* permit writes to kinds that *before* lacks, so that *namespace* is not restored."""
    kept_here = {KINDS[kind][1] for kind in before} | {"deployments/scale", "events", "pods/eviction"}
    for rule in rules:
        lost = sorted(set(rule.resources) - kept_here)
        if lost and set(rule.verbs) - LOOKING:
            raise RefusedError(
                f"The scenario grants writing {lost[0]}, and what is changed there in {namespace} cannot be put back; "
                "leave it out of cluster.access."
            )
