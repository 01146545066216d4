"""The names that a scenario leaves open, and what stands in their place once a trial has begun."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from assay.errors import NotFoundError, RefusedError
from assay.model.cluster import CONTROL_PLANE, ObjectChange
from assay.testbed.kubernetes.api import KINDS, PATCH_TYPES, Api, Object, path_of
from assay.testbed.kubernetes.injection import Change
from assay.testbed.kubernetes.readings import is_ready

ROLE = "node-role.kubernetes.io/"
_OPEN = re.compile(r"\{(namespace|watch|image|worker\d+)\}")


@dataclass(frozen=True)
class Names:
    """What ``{namespace}``, ``{watch}``, ``{image}`` and ``{worker1}`` ... stand for."""

    namespace: str
    watch: str
    image: str
    workers: tuple[str, ...]

    def fill(self, value: Any) -> Any:
        """Return *value*, texts and what holds texts, with the names in their places; raises RefusedError."""
        if isinstance(value, str):
            return _OPEN.sub(lambda match: self._name(match[1]), value)
        if isinstance(value, Mapping):
            return {self.fill(key): self.fill(one) for key, one in value.items()}
        if isinstance(value, (list, tuple)):
            return [self.fill(one) for one in value]
        return value

    def node(self, name: str) -> str:
        """Return the node that *name* stands for."""
        return CONTROL_PLANE if name == CONTROL_PLANE else str(self.fill(name))

    def known_node(self, name: str) -> str:
        """Return *name* when it is a node of the cluster or its control plane; raises NotFoundError."""
        if name not in (*self.workers, CONTROL_PLANE):
            raise NotFoundError("node", name[:63], (*self.workers, CONTROL_PLANE))
        return name

    def _name(self, name: str) -> str:
        if not name.startswith("worker"):
            return str(getattr(self, name))
        number = int(name.removeprefix("worker"))
        if not 1 <= number <= len(self.workers):
            raise RefusedError(f"{{{name}}} is not there: this cluster has {len(self.workers)} nodes to work on.")
        return self.workers[number - 1]


def workers(nodes: Iterable[Object]) -> tuple[str, ...]:
    """Return the names of the *nodes* that are there for pods, in order: all but those that a taint keeps for a role."""
    return tuple(
        sorted(
            node["metadata"]["name"]
            for node in nodes
            if not any(taint["key"].startswith(ROLE) for taint in node["spec"].get("taints") or ())
        )
    )


def takes_pods(node: Object) -> bool:
    """Tell whether *node* is ready and takes any pod now."""
    taints = node["spec"].get("taints") or ()
    return (
        is_ready(node)
        and not node["spec"].get("unschedulable")
        and not any(taint["effect"] in {"NoSchedule", "NoExecute"} for taint in taints)
    )


def manifest(change: ObjectChange, names: Names) -> Object:
    """Return the object that *change* makes."""
    group, _, namespaced = KINDS[change.kind]
    body = names.fill(change.create or {})
    metadata = {**body.pop("metadata", {}), "name": names.fill(change.name)}
    if namespaced:
        metadata["namespace"] = change.namespace or names.namespace
    version = group.removeprefix("apis/").removeprefix("api/")
    return {"apiVersion": version, "kind": change.kind, "metadata": metadata, **body}


def changes_of(api: Api, asked: Sequence[ObjectChange], names: Names) -> list[Change]:
    """Return *asked* as changes that can be taken back; what a patch makes of its object is asked of the server.

    Raises RefusedError for an object that is not there.
    """
    found = []
    for one in asked:
        name, place = str(names.fill(one.name)), (one.namespace or names.namespace) if KINDS[one.kind][2] else None
        if one.create is not None:
            found.append(Change(one.kind, name, place, create=manifest(one, names)))
            continue
        standing = api.get(one.kind, name, place)
        if standing is None:
            raise RefusedError(f"There is no {one.kind} {name} to change.")
        wanted = api.request(
            "PATCH", path_of(one.kind, place, name), names.fill(one.patch), query={"dryRun": "All"},
            content_type=PATCH_TYPES["strategic"],
        )  # fmt: skip
        found.append(Change(one.kind, name, place, patch=_difference(_said(standing), _said(wanted))))
    return found


def _said(item: Object) -> Object:
    """Return what somebody decided about *item*: all but its status and what the server notes about it."""
    kept = {key: item["metadata"][key] for key in ("labels", "annotations") if key in item["metadata"]}
    return {**{key: value for key, value in item.items() if key not in {"metadata", "status"}}, "metadata": kept}


def _difference(standing: Any, wanted: Any) -> Any:
    """Return the merge patch (RFC 7396) that makes *wanted* of *standing*; lists are given whole."""
    if not isinstance(standing, dict) or not isinstance(wanted, dict):
        return wanted
    gone = {key: None for key in standing if key not in wanted}
    return gone | {
        key: _difference(standing.get(key), value) for key, value in wanted.items() if standing.get(key) != value
    }
