"""Objects put on a real cluster for a moment and read back as its API server has them, defaults and children included.

Every namespace that the objects name is a fresh one under a random prefix, as are the names of objects that lie in none.
All of it carries a label and the process that made it: what a killed process left is removed by the next one.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from typing import Any

from tests.kubernetes.compliance.prefixes import (
    MARK,
    Key,
    ReadObject,
    annotations_in,
    controller_of,
    key_of,
    ours,
    plain,
    prefixed,
)

from opsassay.core.errors import LostError, OperationError, OpsAssayError, StartError
from opsassay.testbed.substrates.kubernetes.api.client import Api, ApiError, DeniedError, Object
from opsassay.testbed.substrates.kubernetes.api.owners import OWNER, owner_is_dead, this_process

MARKED_KINDS = ("ClusterRole", "Namespace")
"""The kinds outside of namespaces that are made here, in the order in which they are removed."""
CHILD_KINDS = {
    "Deployment": ("ReplicaSet", "Pod"),
    "ReplicaSet": ("Pod",),
    "StatefulSet": ("Pod",),
    "DaemonSet": ("Pod",),
    "Job": ("Pod",),
    "CronJob": ("Job", "Pod"),
}
NAMESPACE_LABELS = {"pod-security.kubernetes.io/enforce": "privileged"}
"""Worlds may hold what a cluster's own level would refuse; no pod of them can be started."""
SETTLE_TIMEOUT_S = 60.0
"""How long a namespace may take to get its service account, and a controller to make what an object asks for."""
REMOVE_TIMEOUT_S = 180.0
LEFT_AFTER_S = 2 * 3600.0
"""What is older than this was left by somebody who is gone, wherever that was: reading back takes seconds."""
LOOK_EVERY_S = 0.3


class ReadBack:
    """Reads objects back from the cluster of *api*; with *children*, those that its controllers make of them too."""

    def __init__(self, api: Api, *, children: bool) -> None:
        self.api, self._children = api, children

    def take(self, objects: Sequence[Mapping[str, Any]]) -> list[ReadObject]:
        """Return *objects*, then their children, as the server has them, without what tells one making from another.

        Nothing of it is there afterwards, as far as the cluster answers. Raises StartError that names the object which
        the cluster refuses, or of which its controllers make nothing, and why.
        """
        with standing(self.api, objects) as prefix:
            made = [self._created(prefixed(one, prefix)) for one in objects]
            keys = [key_of(one) for one in made]
            deadline = time.monotonic() + SETTLE_TIMEOUT_S
            while True:
                found = self._listed(made)
                waiting = [why for key in keys if (why := _unsettled(found.get(key), key, children=self._children))]
                if not waiting:
                    given = [found[key] for key in keys]
                    made_of_it = _descendants(found, keys) if self._children else []
                    return plain(prefix, given, made_of_it, annotations_in(list(objects)))
                if time.monotonic() > deadline:
                    raise StartError(f"{self.api.context} takes a world and makes nothing of it: {waiting[0]}.")
                time.sleep(LOOK_EVERY_S)

    def _created(self, manifest: Object) -> Object:
        """Create *manifest*; a namespace gets the account of its pods a moment after itself."""
        manifest = {**manifest, "apiVersion": self.api.version_of(manifest["kind"])}
        deadline = time.monotonic() + SETTLE_TIMEOUT_S
        while True:
            try:
                return {**self.api.create(manifest), "kind": manifest["kind"]}
            except (ApiError, DeniedError) as error:
                if not lacks_account(str(error)) or time.monotonic() > deadline:
                    raise refused(self.api, manifest, error) from error
            time.sleep(LOOK_EVERY_S)

    def _listed(self, made: Sequence[Object]) -> dict[Key, Object]:
        """Return what stands where *made* was put, by key."""
        found: dict[Key, Object] = {}
        asked: dict[tuple[str, str | None], None] = {}
        for one in made:
            kind, namespace = one["kind"], one["metadata"].get("namespace")
            if namespace is None:
                item = self.api.get(kind, one["metadata"]["name"])
                found |= {key_of({**item, "kind": kind}): {**item, "kind": kind}} if item else {}
                continue
            kinds = (kind, *CHILD_KINDS.get(kind, ())) if self._children else (kind,)
            asked |= dict.fromkeys((each, namespace) for each in kinds)
        for kind, namespace in asked:
            items = [{**item, "kind": kind} for item in self.api.list(kind, namespace)]
            found |= {key_of(item): item for item in items}
        return found


@contextmanager
def standing(api: Api, objects: Sequence[Mapping[str, Any]], kinds: Sequence[str] = MARKED_KINDS) -> Iterator[str]:
    """Make a namespace for each that *objects* name and yield the prefix of them all; asks the cluster to end all of it.

    That is what of *kinds*, which lie in no namespace, is labelled with the prefix. Raises StartError when a namespace is
    refused, and LostError when what was made could not be removed.
    """
    prefix = f"opsassay-{secrets.token_hex(4)}"
    names = dict.fromkeys(prefixed(one, prefix)["metadata"].get("namespace") for one in objects)
    before_pod_security = _has_pod_security_policies(api)
    try:
        for name in filter(None, names):
            marks = ours(prefix)
            labels = {**marks["labels"], **NAMESPACE_LABELS}
            space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, **marks, "labels": labels}}
            for one in (space, *(_any_pod(name) if before_pod_security else ())):
                try:
                    api.create(one)
                except (ApiError, DeniedError) as error:
                    raise refused(api, one, error) from error
        yield prefix
    except BaseException as error:
        try:
            remove(api, prefix, kinds)
        except OpsAssayError as left:
            error.add_note(str(left))
        raise
    remove(api, prefix, kinds)


def remove(api: Api, prefix: str, kinds: Sequence[str] = MARKED_KINDS) -> None:
    """Ask the cluster to end all that was made under *prefix*, without waiting; an API that is away is asked again."""
    deadline = time.monotonic() + REMOVE_TIMEOUT_S
    while True:
        try:
            for kind in kinds:
                with suppress(DeniedError):  # who may not list them has made none
                    for item in api.list(kind, selector=f"{MARK}={prefix}"):
                        _end(api, kind, item)
            return
        except LostError as error:
            if time.monotonic() > deadline:
                raise LostError(
                    f"What was made under {prefix} may still be on {api.context}; the next test there "
                    f"removes it: {error}"
                ) from error
        time.sleep(LOOK_EVERY_S)


def clear_left_behind(api: Api, kinds: Sequence[str] = MARKED_KINDS) -> list[str]:
    """Remove what of *kinds* processes that are gone left on the cluster; return the names."""
    found = []
    for kind in kinds:
        with suppress(DeniedError):  # who may not list them has left none
            for item in api.list(kind, selector=MARK):
                if owner_is_dead(item) or _is_old(item):
                    _end(api, kind, item)
                    found.append(item["metadata"]["name"])
    return found


def await_removal(api: Api, timeout_s: float = REMOVE_TIMEOUT_S) -> None:
    """Wait until nothing is left of what this process made; raises OperationError that names what stays."""
    deadline = time.monotonic() + timeout_s
    while left := _own(api):
        if time.monotonic() > deadline:
            raise OperationError(f"Asked to go, and still on {api.context} after {timeout_s:g} s: {', '.join(left)}.")
        time.sleep(LOOK_EVERY_S)


def refused(api: Api, manifest: Object, error: OpsAssayError) -> StartError:
    """Return in one sentence that the cluster of *api* refuses to take *manifest* of a world, and why."""
    kind, metadata = manifest["kind"], manifest["metadata"]
    where = f"{kind} {metadata.get('namespace', '')}/{metadata['name']}".replace(" /", " ")
    said = " ".join(str(error).split()).rstrip(".")
    more = (
        "; worlds of roles need the right to `escalate` them" if "attempting to grant RBAC permissions" in said else ""
    )
    return StartError(f"{api.context} refuses {where} of a world, so nothing is graded: {said}{more}.")


def _has_pod_security_policies(api: Api) -> bool:
    """Tell whether the server is old enough to have what labels of namespaces came after."""
    try:
        listed = api.request("GET", "/apis/policy/v1beta1")["resources"]
    except ApiError as error:
        if error.status != 404:
            raise
        return False
    return any(one["name"] == "podsecuritypolicies" for one in listed)


def _any_pod(namespace: str) -> list[Object]:
    """Return what lets controllers make any pod in *namespace*, where a label of it does not say so."""
    group = "rbac.authorization.k8s.io"
    metadata = {"name": "opsassay-any-pod", "namespace": namespace}
    rule = {"apiGroups": ["policy"], "resources": ["podsecuritypolicies"], "verbs": ["use"]}
    subjects = [
        {"apiGroup": group, "kind": "Group", "name": "system:serviceaccounts"},
        {"apiGroup": group, "kind": "User", "name": "system:kube-controller-manager"},
    ]
    reference = {"apiGroup": group, "kind": "Role", "name": metadata["name"]}
    return [
        {"apiVersion": f"{group}/v1", "kind": "Role", "metadata": metadata, "rules": [rule]},
        {
            "apiVersion": f"{group}/v1",
            "kind": "RoleBinding",
            "metadata": metadata,
            "roleRef": reference,
            "subjects": subjects,
        },
    ]


def lacks_account(answer: str) -> bool:
    """Tell whether a pod was refused since the account that it gets by default is not there yet."""
    said = answer.lower()
    return "serviceaccount" in said.replace(" ", "") and ("not found" in said or "retry after" in said)


def _own(api: Api) -> list[str]:
    owner = this_process()
    return [
        item["metadata"]["name"]
        for item in api.list("Namespace", selector=MARK)
        if (item["metadata"].get("annotations") or {}).get(OWNER) == owner
    ]


def _end(api: Api, kind: str, item: Object) -> None:
    name = item["metadata"]["name"]
    if api.delete(kind, name) and kind == "Namespace":
        with suppress(OpsAssayError):  # else they take the time that they have; none of them runs anything
            api.end_pods(name, grace_s=0)


def _is_old(item: Object) -> bool:
    made = item["metadata"].get("creationTimestamp")
    return made is not None and (datetime.now(UTC) - datetime.fromisoformat(made)).total_seconds() > LEFT_AFTER_S


def _unsettled(item: Object | None, key: Key, *, children: bool) -> str | None:
    """Return why the controllers are not done with *item*, None when they are, or when it has none."""
    where = f"{key[0]} {key[1]}/{key[2]}"
    if item is None:
        return f"{where} is gone"
    if not children or key[0] not in CHILD_KINDS or key[0] == "CronJob":
        return None
    status, spec = item.get("status") or {}, item["spec"]
    counts = {
        "Deployment": ("replicas", spec.get("replicas", 1)),
        "ReplicaSet": ("replicas", spec.get("replicas", 1)),
        "StatefulSet": ("replicas", min(spec.get("replicas", 1), 1)),
        "DaemonSet": ("currentNumberScheduled", status.get("desiredNumberScheduled", 1)),
        "Job": ("active", spec.get("parallelism", 1)),
    }
    name, expected = counts[key[0]]
    seen = key[0] == "Job" or status.get("observedGeneration", 0) >= item["metadata"].get("generation", 1)
    if seen and status.get(name, 0) >= expected:
        return None
    said = [one["message"] for one in status.get("conditions") or () if one.get("message")]
    return f"{where} has {status.get(name, 0)} of {expected} pods" + (f" ({said[-1].rstrip('.')})" if said else "")


def _descendants(found: Mapping[Key, Object], keys: Sequence[Key]) -> list[Object]:
    """Return what the objects of *keys* own, children before grandchildren."""
    owners = {found[key]["metadata"].get("uid") for key in keys}
    rest = [item for key, item in found.items() if key not in keys]
    made: list[Object] = []
    while True:
        more = [one for one in rest if one not in made and controller_of(one) in owners]
        if not more:
            return made
        made += more
        owners |= {one["metadata"].get("uid") for one in more}
