"""The undo of an injection as objects: a job of two pods that waits in the cluster, its order, and rights for that alone.

The pods keep to nodes of their own. One whose node is lost is given up after a few seconds, and the job makes another one
elsewhere; the first to carry the order out removes it, and the job then makes no more. All requests may be sent twice.
"""

from __future__ import annotations

import json
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from opsassay.core.errors import StartError
from opsassay.testbed.substrates.kubernetes.api.client import Api, ApiError, Object
from opsassay.testbed.substrates.kubernetes.api.kinds import KINDS, group_in
from opsassay.testbed.substrates.kubernetes.api.readings import why_not_ready
from opsassay.testbed.substrates.kubernetes.manifests import roles
from opsassay.testbed.substrates.kubernetes.manifests.system import INSTANCE_LABEL, MANAGED, UID

ORDER = "order.json"
"""The key of the ConfigMap that holds the requests of an undo."""
PODS = 2
UNDO_READY_TIMEOUT_S = 60.0
LOOK_EVERY_S = 0.2
LOST_AFTER_S = 5
"""How long a pod of the undo stays bound to a node that the cluster has lost."""
TOLERATED: list[Object] = [
    *(
        {"key": f"node.kubernetes.io/{key}", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": LOST_AFTER_S}
        for key in ("not-ready", "unreachable")
    ),
    {"operator": "Exists", "effect": "NoExecute"},
    *(
        {"key": key, "operator": "Exists", "effect": "NoSchedule"}
        for key in (
            "node.kubernetes.io/unschedulable", "node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/master",
        )
    ),
]  # fmt: skip
"""Nothing but the loss of its node takes a pod of the undo away (the first toleration that fits counts); another one may go
to a node that is cordoned or the control plane's, and to none that is lost."""
RETRIES = 1_000_000
"""A job of which so many pods may fail is not given up."""


@dataclass(frozen=True)
class UndoRequest:
    """One request to the API about the object *name* of *kind*, as the undo sends it."""

    method: str
    path: str
    kind: str
    name: str
    namespace: str | None
    body: Any = None
    content_type: str = "application/json"


def undo_objects(
    name: str,
    undo_namespace: str,
    requests: Sequence[UndoRequest],
    deadline: float,
    image: str,
    avoid: Collection[str],
    path: str,
) -> list[Object]:
    """Return the objects of the undo *name*: account, ConfigMap with *requests*, rights, and a job that sends them.

    It is in *undo_namespace*, sends them at *deadline* (s since the epoch) and runs on no node of *avoid*; *path* is
    the API path of the ConfigMap.
    """
    order = {
        "deadline": deadline,
        "path": path,
        "requests": [
            {"method": r.method, "path": r.path, "body": r.body, "content_type": r.content_type} for r in requests
        ],
    }
    labels = {INSTANCE_LABEL: undo_namespace, **MANAGED}
    here = {"name": name, "namespace": undo_namespace, "labels": labels}
    subject = roles.account(name, undo_namespace)
    found: list[Object] = [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": here},
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": here, "data": {ORDER: json.dumps(order)}},
        *roles.granted(name, undo_namespace, [_rule("ConfigMap", name, ["get", "delete"])], subject, labels),
    ]
    for number, request in enumerate(requests):
        place = request.namespace if KINDS[request.kind][2] else None
        rule = _rule(request.kind, request.name, [request.method.lower()])
        found += roles.granted(f"{name}-{number}", place, [rule], subject, labels)
    template = {"metadata": {"labels": {"app": name, **labels}}, "spec": _make_pod(name, image, avoid)}
    job = {"parallelism": PODS, "backoffLimit": RETRIES, "template": template}
    return [*found, {"apiVersion": "batch/v1", "kind": "Job", "metadata": here, "spec": job}]


def _rule(kind: str, name: str, verbs: list[str]) -> Object:
    """Return the RBAC rule that grants *verbs* on the one object *name* of *kind*."""
    group, plural, _ = KINDS[kind]
    return {"apiGroups": [group_in(group)], "resources": [plural], "resourceNames": [name], "verbs": verbs}


def _make_pod(name: str, image: str, avoid: Collection[str]) -> Object:
    """Return the pod spec of the undo job *name*; its pods prefer different nodes and avoid those of *avoid*."""
    apart = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": name}}}
    affinity: Object = {
        "podAntiAffinity": {
            "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 100, "podAffinityTerm": apart}]
        }
    }
    if avoid:
        others = [{"key": "metadata.name", "operator": "NotIn", "values": [node]} for node in sorted(avoid)]
        affinity["nodeAffinity"] = {
            "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchFields": others}]}
        }
    container = {
        "name": "undo",
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "args": ["undo"],
        "volumeMounts": [{"name": "order", "mountPath": "/etc/opsassay/undo"}],
        "resources": {"requests": {"cpu": "5m", "memory": "16Mi"}},
    }
    return {
        "serviceAccountName": name,
        "restartPolicy": "OnFailure",
        "terminationGracePeriodSeconds": 1,
        "securityContext": {"runAsUser": UID, "runAsGroup": UID},
        "volumes": [{"name": "order", "configMap": {"name": name}}],
        "tolerations": TOLERATED,
        "affinity": affinity,
        "containers": [container],
    }


def start(api: Api, objects: Sequence[Object]) -> None:
    """Create the *objects* of an undo, the job last, and wait until its pods run; raises StartError with the reason."""
    *others, job = objects
    for item in others:
        api.create(item)
    _await_admission(api, job)
    api.create(job)
    _await_pods(api, job["metadata"]["name"], job["metadata"]["namespace"])


def _await_admission(api: Api, job: Object) -> None:
    """Try to create a pod of *job* by dry runs until it is admitted; raises the server's error.

    Only a missing service account token, which old clusters make late, is waited for.
    """
    metadata = {"name": job["metadata"]["name"], "namespace": job["metadata"]["namespace"]}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": job["spec"]["template"]["spec"]}
    deadline = time.monotonic() + UNDO_READY_TIMEOUT_S
    while True:
        try:
            api.request("POST", api.path_of("Pod", metadata["namespace"]), pod, query={"dryRun": "All"})
        except ApiError as error:
            if "token" not in str(error) or time.monotonic() > deadline:
                raise
            time.sleep(LOOK_EVERY_S)
        else:
            return


def _await_pods(api: Api, name: str, undo_namespace: str) -> None:
    """Wait until all pods of the undo job *name* run; raises StartError with what they wait for."""
    deadline = time.monotonic() + UNDO_READY_TIMEOUT_S
    while True:
        pods = api.list("Pod", undo_namespace, f"app={name}")
        waiting = [why_not_ready(pod) for pod in pods if pod["status"].get("phase") != "Running"]
        if len(pods) >= PODS and not waiting:
            return
        if time.monotonic() > deadline:
            why = waiting[0] if waiting else f"{len(pods)} of {PODS} pods are there"
            raise StartError(
                f"The undo {name} does not run after {UNDO_READY_TIMEOUT_S:g} s ({why}); nothing was injected."
            )
        time.sleep(LOOK_EVERY_S)
