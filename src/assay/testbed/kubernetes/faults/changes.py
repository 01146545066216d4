"""Faults through API objects: each is a few requests with the requests that take them back, which are in the cluster first.

The order of things: what stands is read, the undo is derived from it, a pod that will carry it out at the deadline is
started and waited for, and only then is anything changed. Undoing earlier is the same requests, sent from here; when one of
them fails, the pod stays and does it at the deadline.
"""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from assay.errors import AssayError, OperationError, RefusedError, StartError
from assay.testbed.kubernetes.api.client import (
    FIELD_MANAGER,
    PATCH_TYPES,
    Api,
    ApiError,
    DeniedError,
    Object,
)
from assay.testbed.kubernetes.api.kinds import KINDS
from assay.testbed.kubernetes.api.readings import owner_of, why_not_ready
from assay.testbed.kubernetes.manifests import roles
from assay.testbed.kubernetes.manifests.image import IMAGE
from assay.testbed.kubernetes.manifests.system import INSTANCE_LABEL, MANAGED, UID
from assay.testbed.kubernetes.pods.undo import DONE

UNDO_READY_TIMEOUT_S = 60.0
LOOK_EVERY_S = 0.2


@dataclass(frozen=True)
class Change:
    """One change of the cluster: an object that is made (*create*), patched, or removed (*delete*).

    What is removed is not made again by an undo: that is for pods, which their controller replaces.
    """

    kind: str
    name: str
    namespace: str | None
    create: Object | None = None
    patch: Any = None
    how: str = "merge"
    delete: bool = False


@dataclass(frozen=True)
class Request:
    """One request to the API, as the undo sends it."""

    method: str
    path: str
    body: Any = None
    content_type: str = "application/json"


def undo_of(api: Api, change: Change) -> Request | None:
    """Return the request that takes *change* back, from what stands now; None for a pod that is removed.

    Raises RefusedError when the change cannot be made, or not taken back.
    """
    standing, path = api.get(change.kind, change.name, change.namespace), _path(api, change)
    if change.create is not None:
        if standing is not None:
            raise RefusedError(
                f"{change.kind} {change.name} is there already; an injection never replaces what it did not make."
            )
        return Request("DELETE", path)
    if standing is None:
        raise RefusedError(f"There is no {change.kind} {change.name} to change.")
    if change.delete:
        if change.kind != "Pod" or owner_of(standing) is None:
            raise RefusedError(
                f"Nothing would make {change.kind} {change.name} again; only a controller's pod is removed."
            )
        return None
    if change.how != "merge":
        raise RefusedError("Only merge patches can be taken back; write the change as one.")
    return Request(
        "PATCH", f"{path}?fieldManager={FIELD_MANAGER}", _inverse(change.patch, standing), PATCH_TYPES["merge"]
    )


def _path(api: Api, change: Change) -> str:
    return api.path_of(change.kind, change.namespace, change.name)


def _inverse(patch: Any, standing: Any) -> Any:
    """Return the merge patch that restores what *patch* changes of *standing*; what was not there is removed again."""
    if not isinstance(patch, dict) or not isinstance(standing, dict):
        return standing
    return {key: _inverse(value, standing[key]) if key in standing else None for key, value in patch.items()}


@contextmanager
def injected(
    api: Api,
    changes: Sequence[Change],
    keeper: str,
    limit_s: float,
    *,
    image: str = IMAGE,
    on_ready: Callable[[], None] = lambda: None,
) -> Iterator[str]:
    """Make *changes* while the block runs; whatever becomes of this process they are undone within *limit_s*.

    *keeper* is the namespace where the undo waits, one that nobody who is graded can see; *on_ready* is called when it
    waits and nothing has changed yet. Yields the undo's name.
    """
    name = f"undo-{secrets.token_hex(4)}"
    undoing = [(change, request) for change in reversed(changes) if (request := undo_of(api, change)) is not None]
    requests, deadline = [request for _, request in undoing], time.time() + limit_s
    changed = [change for change, _ in reversed(undoing)]
    made = _undo_objects(name, keeper, changed, requests, deadline, image) if undoing else []
    try:
        for item in made:
            _create(api, item)
        if made:
            _wait_running(api, name, keeper)
        on_ready()
        for change in changes:
            _make(api, change)
        yield name
    finally:
        failed = [error for request in requests if (error := _failure(api, request)) is not None]
        if failed:
            left = max(deadline - time.time(), 0.0)
            raise OperationError(f"{failed[0]} The cluster itself undoes the injection within {left:.0f} s.")
        for item in reversed(made):
            with suppress(AssayError):
                api.delete(item["kind"], item["metadata"]["name"], item["metadata"].get("namespace"))


def _create(api: Api, item: Object) -> None:
    """Create *item*; a pod may have to wait until its account has a token, which old clusters give it a moment later."""
    deadline = time.monotonic() + UNDO_READY_TIMEOUT_S
    while True:
        try:
            api.create(item)
        except ApiError as error:
            if "token" not in str(error) or time.monotonic() > deadline:
                raise
            time.sleep(LOOK_EVERY_S)
        else:
            return


def _make(api: Api, change: Change) -> None:
    if change.create is not None:
        api.create(change.create)
    elif change.delete:
        api.request("DELETE", _path(api, change), query={"gracePeriodSeconds": "0"})
    else:
        api.patch(change.kind, change.name, change.patch, change.namespace, how=change.how)


def _failure(api: Api, request: Request) -> AssayError | None:
    """Send *request*, which undoes something; return what kept it from being done, None when it is."""
    try:
        api.request(request.method, request.path, request.body, content_type=request.content_type)
    except ApiError as error:
        return None if error.status in DONE else error
    except AssayError as error:
        return error
    return None


def _wait_running(api: Api, name: str, keeper: str) -> None:
    deadline = time.monotonic() + UNDO_READY_TIMEOUT_S
    while True:
        pod = api.get("Pod", name, keeper)
        if pod is not None and pod["status"].get("phase") == "Running":
            return
        if time.monotonic() > deadline:
            why = f"after {UNDO_READY_TIMEOUT_S:g} s ({'it is gone' if pod is None else why_not_ready(pod)})"
            raise StartError(f"The undo {name} does not run {why}; nothing was injected.")
        time.sleep(LOOK_EVERY_S)


def _undo_objects(
    name: str, keeper: str, changes: Sequence[Change], requests: Sequence[Request], deadline: float, image: str
) -> list[Object]:
    """Return the undo's order, its account with the rights that it needs, and its pod."""
    order = {
        "deadline": deadline,
        "requests": [
            {"method": r.method, "path": r.path, "body": r.body, "content_type": r.content_type} for r in requests
        ],
    }
    labels = {INSTANCE_LABEL: keeper, **MANAGED}
    here = {"name": name, "namespace": keeper, "labels": labels}
    subject = roles.account(name, keeper)
    found: list[Object] = [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": here},
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": here, "data": {"order.json": json.dumps(order)}},
    ]
    for number, change in enumerate(changes):
        found += _right(f"{name}-{number}", change, subject, labels)
    pod = {
        "serviceAccountName": name,
        "restartPolicy": "OnFailure",
        "terminationGracePeriodSeconds": 1,
        "securityContext": {"runAsUser": UID, "runAsGroup": UID},
        "volumes": [{"name": "order", "configMap": {"name": name}}],
        "tolerations": [{"operator": "Exists"}],
        "containers": [
            {
                "name": "undo",
                "image": image,
                "imagePullPolicy": "IfNotPresent",
                "args": ["undo"],
                "volumeMounts": [{"name": "order", "mountPath": "/etc/assay/undo"}],
                "resources": {"requests": {"cpu": "5m", "memory": "16Mi"}},
            }
        ],
    }
    return [*found, {"apiVersion": "v1", "kind": "Pod", "metadata": here, "spec": pod}]


def _right(name: str, change: Change, subject: Object, labels: dict[str, str]) -> list[Object]:
    """Return a role, and its binding to *subject*, for undoing one *change* and nothing else."""
    group, plural, namespaced = KINDS[change.kind]
    rule = {
        "apiGroups": [group.split("/")[1] if group.startswith("apis/") else ""],
        "resources": [plural],
        "resourceNames": [change.name],
        "verbs": ["delete" if change.create is not None else "patch"],
    }
    return roles.granted(name, change.namespace if namespaced else None, [rule], subject, labels)


def clear_cluster_roles(api: Api, keeper: str) -> None:
    """Remove the rights of undo pods in *keeper* that lie outside of namespaces: those that a killed injector left."""
    with suppress(DeniedError):  # who may not see them has made none
        for kind in ("ClusterRoleBinding", "ClusterRole"):
            for item in api.list(kind, selector=f"{INSTANCE_LABEL}={keeper}"):
                api.delete(kind, item["metadata"]["name"])
