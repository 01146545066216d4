"""Faults through API objects: each is a few requests with the requests that take them back, which are in the cluster first.

The order of things: what stands is read, the undo is derived from it, pods that will carry it out at the deadline are
started and waited for, and only then is anything changed. Undoing earlier is the same requests, sent from here; when one of
them fails, the pods stay and do it at the deadline.
"""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from opsassay.core.errors import OperationError, OpsAssayError, RefusedError
from opsassay.testbed.substrates.kubernetes.actuators import undoing
from opsassay.testbed.substrates.kubernetes.actuators.undoing import UndoRequest
from opsassay.testbed.substrates.kubernetes.agent.undo import CONFLICT, GONE
from opsassay.testbed.substrates.kubernetes.api.client import (
    FIELD_MANAGER,
    PATCH_TYPES,
    Api,
    ApiError,
    DeniedError,
    Object,
)
from opsassay.testbed.substrates.kubernetes.api.readings import owner_of
from opsassay.testbed.substrates.kubernetes.manifests.image import IMAGE
from opsassay.testbed.substrates.kubernetes.manifests.system import INSTANCE_LABEL

UNDO = "undo-"
"""What the names of undos begin with."""
CONFLICTS, PAUSE_S = 10, 0.2
"""How often a request is sent that the server did not get between the writes of others."""


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


def undo_of(api: Api, change: Change) -> UndoRequest | None:
    """Return the request that undoes *change*, by the present state; None for deleting a pod of a controller.

    Raises RefusedError when the change cannot be made or undone.
    """
    standing, path = api.get(change.kind, change.name, change.namespace), _path_of_change(api, change)
    if change.create is not None:
        if standing is not None:
            raise RefusedError(
                f"{change.kind} {change.name} is there already; an injection never replaces what it did not make."
            )
        return UndoRequest("DELETE", path, change.kind, change.name, change.namespace)
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
    if "resourceVersion" in (change.patch.get("metadata") or {}):
        raise RefusedError(
            "A change that names a version of its object cannot be taken back; leave resourceVersion out."
        )
    return UndoRequest(
        "PATCH", f"{path}?fieldManager={FIELD_MANAGER}", change.kind, change.name, change.namespace,
        _inverse(change.patch, standing), PATCH_TYPES["merge"],
    )  # fmt: skip


def _path_of_change(api: Api, change: Change) -> str:
    """Return the API path of the object that *change* changes."""
    return api.path_of(change.kind, change.namespace, change.name)


def _inverse(patch: Any, present: Any) -> Any:
    """Return the merge patch that turns *present*, after *patch*, back into *present*."""
    if not isinstance(patch, dict) or not isinstance(present, dict):
        return present
    return {key: _inverse(value, present[key]) if key in present else None for key, value in patch.items()}


@contextmanager
def injected(
    api: Api,
    changes: Sequence[Change],
    undo_namespace: str,
    limit_s: float,
    *,
    image: str = IMAGE,
    avoid: Collection[str] = (),
    on_ready: Callable[[], None] = lambda: None,
) -> Iterator[str]:
    """Make *changes* for the block and yield the name of their undo, a job in the cluster for when this process dies.

    It acts within *limit_s*, later only when all nodes of its pods are lost. *undo_namespace* is where it runs, out
    of the agent's sight, on no node of *avoid*, which are those that break. *on_ready* is called once it runs,
    before the changes.
    """
    name = f"{UNDO}{secrets.token_hex(4)}"
    requests = [request for change in reversed(changes) if (request := undo_of(api, change)) is not None]
    deadline, order = time.time() + limit_s, api.path_of("ConfigMap", undo_namespace, name)
    made = undoing.undo_objects(name, undo_namespace, requests, deadline, image, avoid, order) if requests else []
    try:
        if made:
            undoing.start(api, made)
        on_ready()
        for change in changes:
            _make_change(api, change)
        yield name
    finally:
        failed = [error for request in requests if (error := _failure(api, request)) is not None]
        if failed:
            left = max(deadline - time.time(), 0.0)
            raise OperationError(f"{failed[0]} The cluster itself undoes the injection within {left:.0f} s.")
        for item in reversed(made):
            with suppress(OpsAssayError):
                api.delete(item["kind"], item["metadata"]["name"], item["metadata"].get("namespace"))


def _make_change(api: Api, change: Change) -> None:
    """Create, delete or patch the object of *change*."""
    if change.create is not None:
        api.create(change.create)
    elif change.delete:
        api.request("DELETE", _path_of_change(api, change), query={"gracePeriodSeconds": "0"})
    else:
        api.patch(change.kind, change.name, change.patch, change.namespace, patch_type=change.how)


def _failure(api: Api, request: UndoRequest) -> OpsAssayError | None:
    """Send the undo *request*, again on conflicts; return the error if it fails, None if done or the object is gone."""
    for attempt in range(CONFLICTS):
        try:
            api.request(request.method, request.path, request.body, content_type=request.content_type)
        except ApiError as error:
            if error.status == GONE:
                return None
            if error.status != CONFLICT or attempt == CONFLICTS - 1:
                return error
            time.sleep(PAUSE_S)
        except OpsAssayError as error:
            return error
        else:
            return None
    raise AssertionError("the last attempt returns")


def carry_out(api: Api, undo_namespace: str) -> None:
    """Send the requests of every undo that waits in *undo_namespace*; raises the error of one that fails."""
    for item in api.list("ConfigMap", undo_namespace):
        if undoing.ORDER not in (item.get("data") or {}) or not item["metadata"]["name"].startswith(UNDO):
            continue
        for one in json.loads(item["data"][undoing.ORDER])["requests"]:
            request = UndoRequest(one["method"], one["path"], "", "", None, one["body"], one["content_type"])
            if (error := _failure(api, request)) is not None:
                raise error


def clear_cluster_roles(api: Api, undo_namespace: str) -> None:
    """Delete the ClusterRoles and bindings that killed injectors left for undo jobs in *undo_namespace*."""
    with suppress(DeniedError):  # who may not see them has made none
        for kind in ("ClusterRoleBinding", "ClusterRole"):
            for item in api.list(kind, selector=f"{INSTANCE_LABEL}={undo_namespace}"):
                api.delete(kind, item["metadata"]["name"])
