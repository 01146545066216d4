"""An API server that keeps objects and runs no controller: what is written is read back, patches are merged."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable
from typing import Any

from tiny_api import TinyApi, write_kubeconfig

from opsassay.testbed.substrates.kubernetes.api.client import PATCH_TYPES
from opsassay.testbed.substrates.kubernetes.api.kinds import KINDS
from opsassay.testbed.substrates.kubernetes.api.readings import owner_of

READY = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
NO_ROOM = {
    "phase": "Pending",
    "conditions": [
        {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/4 nodes are available"}
    ],
}
PLACES = {(group, plural): kind for kind, (group, plural, _) in KINDS.items()}


class ObjectServer(TinyApi):
    """Holds ``objects`` by (kind, namespace, name); *react* is called after every write and may change them."""

    def __init__(self, react: Callable[[ObjectServer], None] = lambda _: None) -> None:
        self.objects: dict[tuple[str, str, str], Any] = {}
        self.texts = {"/healthz": "ok", "/apis/policy": {"versions": [{"groupVersion": "policy/v1"}]}}
        self._react, self._versions = react, itertools.count(1)
        super().__init__(self.answer)

    def put(self, kind: str, namespace: str, name: str, **body: Any) -> Any:
        """Keep an object."""
        metadata = {**body.pop("metadata", {}), "name": name, "resourceVersion": str(next(self._versions))}
        if namespace:
            metadata["namespace"] = namespace
        self.objects[kind, namespace, name] = {"metadata": metadata, **body}
        return self.objects[kind, namespace, name]

    def answer(self, method: str, path: str, query: dict[str, str]) -> tuple[int, Any]:
        """Answer as an API server does; of selectors it knows those of equal labels."""
        if path in self.texts:
            return 200, self.texts[path]
        kind, namespace, name = place(path)
        if kind is None:
            return 200, {"items": []}
        if method == "GET" and not name:
            labels = dict(part.split("=") for part in query.get("labelSelector", "").split(",") if part)
            found = [o for (k, n, _), o in self.objects.items() if k == kind and namespace in ("", n)]
            found = [o for o in found if labels.items() <= o["metadata"].get("labels", {}).items()]
            return 200, {"items": found, "metadata": {"resourceVersion": "1"}}
        body = self.asked[-1][4]
        key = (kind, namespace, name or (body or {}).get("metadata", {}).get("name", ""))
        if "dryRun" in query and method == "POST":
            return 201, body
        if method == "POST":
            if key in self.objects:
                return 409, {"message": "it exists"}
            self.put(*key, **{k: v for k, v in body.items() if k not in ("kind", "apiVersion")})
        elif key not in self.objects:
            return 404, {"message": f"{name} not found"}
        elif method == "DELETE":
            del self.objects[key]
        elif method == "PUT":
            named = body["metadata"].get("resourceVersion")
            if named not in (None, self.objects[key]["metadata"]["resourceVersion"]):
                return 409, {"message": "another version stands"}
            self.put(*key, **{k: v for k, v in body.items() if k not in ("kind", "apiVersion")})
        elif method == "PATCH":
            named = body.get("metadata", {}).get("resourceVersion")
            if named not in (None, self.objects[key]["metadata"]["resourceVersion"]):
                return 409, {"message": "another version stands"}
            merge = merged if self.asked[-1][3]["Content-Type"] == PATCH_TYPES["merge"] else strategic
            patched = merge(self.objects[key], body)
            self.put(*key, **{k: v for k, v in patched.items() if k not in ("kind", "apiVersion")})
        if method != "GET":
            self._react(self)
        return 200, self.objects.get(key, {"status": "Success"})


class SmallCluster(ObjectServer):
    """A server of objects whose controllers are a line each; *refuse* may answer a request in its place.

    It returns (status, body), None to hang up, and ``...`` to leave the request to the server.
    """

    def __init__(self):
        self.refuse = lambda _method, _path: ...
        self.pods, self.holding = READY, ""
        super().__init__(SmallCluster.control)

    def control(self):
        for (kind, space, name), item in list(self.objects.items()):
            if kind == "Deployment":
                item["status"] = {"readyReplicas": item["spec"]["replicas"] if self.pods is READY else 0}
                owner = {"kind": "Deployment", "name": name, "controller": True}
                metadata = {"labels": {"app": name}, "ownerReferences": [owner]}
                spec = {"containers": [{"name": name, "image": "ours:1"}]}
                self.put("Pod", space, f"{name}-1", metadata=metadata, spec=spec, status=self.pods)
            if kind == "Job":
                template, owner = item["spec"]["template"], {"kind": kind, "name": name, "controller": True}
                for number in range(item["spec"]["parallelism"]):
                    metadata = {**template["metadata"], "ownerReferences": [owner]}
                    self.put(
                        "Pod", space, f"{name}-{number}", metadata=metadata, spec=template["spec"], status=self.pods
                    )
            if (
                kind == "Pod"
                and (owner_of(item) or ("", ""))[0] == "Job"
                and ("Job", space, name[:-2]) not in self.objects
            ):
                del self.objects[kind, space, name]
            if kind == "Namespace":
                item.setdefault("status", {"phase": "Active"})

    def answer(self, method, path, query):
        if (refused := self.refuse(method, path)) is not ...:
            return refused
        if "watch" in query:
            return 200, []
        namespace = path.removeprefix("/api/v1/namespaces/")
        if method == "DELETE" and ("Namespace", "", namespace) in self.objects:
            self.end(namespace)
            return 200, {}
        return super().answer(method, path, query)

    def end(self, namespace):
        """Remove a namespace with all that is in it; one that something holds stays and says why."""
        if self.holding:
            said = {"type": "NamespaceContentRemaining", "status": "True", "message": self.holding}
            self.objects["Namespace", "", namespace]["status"] = {"phase": "Terminating", "conditions": [said]}
            return
        for key in [key for key in self.objects if namespace in (key[1], key[2])]:
            del self.objects[key]

    def of(self, kind):
        return [(name, item) for (known, _, name), item in self.objects.items() if known == kind]

    def namespaces(self):
        return sorted(name for name, _ in self.of("Namespace"))

    def login(self, token):
        """Write a kubeconfig with *token*."""
        write_kubeconfig(self.config, self.url, token)


def place(path: str) -> tuple[str | None, str, str]:
    """Return kind, namespace and name of a *path* of the API."""
    parts = path.strip("/").split("/")
    group, rest = ("/".join(parts[:2]), parts[2:]) if parts[0] == "api" else ("/".join(parts[:3]), parts[3:])
    namespace = ""
    if len(rest) > 2 and rest[0] == "namespaces":
        namespace, rest = rest[1], rest[2:]
    return PLACES.get((group, rest[0])), namespace, rest[1] if len(rest) > 1 else ""


def merged(target: Any, patch: Any) -> Any:
    """Return *target* after a merge patch, as RFC 7396 has it, word for word."""
    if not isinstance(patch, dict):
        return patch
    target = copy.deepcopy(target) if isinstance(target, dict) else {}
    for name, value in patch.items():
        if value is None:
            target.pop(name, None)
        else:
            target[name] = merged(target.get(name), value)
    return target


def strategic(target: Any, patch: Any) -> Any:
    """Return *target* after a strategic merge: objects by key, lists of named objects by name, ``$patch`` replaces."""
    if isinstance(patch, dict) and isinstance(target, dict):
        if patch.get("$patch") == "replace":
            return {key: value for key, value in patch.items() if key != "$patch"}
        merged = copy.deepcopy(target)
        for key, value in patch.items():
            if value is None:
                merged.pop(key, None)
            else:
                merged[key] = strategic(merged.get(key), value)
        return merged
    if isinstance(patch, list) and isinstance(target, list) and all("name" in one or "$patch" in one for one in patch):
        if any(one.get("$patch") == "replace" for one in patch):
            return [one for one in patch if "$patch" not in one]
        named = {one["name"]: one for one in target}
        return list({**named, **{one["name"]: strategic(named.get(one["name"]), one) for one in patch}}.values())
    return copy.deepcopy(patch)
