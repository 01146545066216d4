"""A cluster of a few lines: the server of objects, with controllers that act at once."""

from __future__ import annotations

from opsassay.testbed.substrates.kubernetes.api.object_server import ObjectServer
from opsassay.testbed.substrates.kubernetes.api.readings import owner_of
from opsassay.testbed.substrates.kubernetes.api.small_api import write_kubeconfig

READY = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
NO_ROOM = {
    "phase": "Pending",
    "conditions": [
        {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/4 nodes are available"}
    ],
}


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
