"""A cluster of a few lines that treats worlds as a real one does: defaults, controllers, late accounts, Kyverno."""

from __future__ import annotations

import copy
import itertools
import json
import secrets
import uuid
from datetime import UTC, datetime

from opsassay.evals.compliance.kyverno.judge import judge_objects
from opsassay.evals.compliance.kyverno.policy import read_policies
from opsassay.testbed.substrates.kubernetes.api.object_server import ObjectServer
from opsassay.testbed.substrates.kubernetes.api.small_api import served, write_kubeconfig
from opsassay.testbed.substrates.kubernetes.api.statuses import StatusError, failure

NODES = ("worker1", "worker2")
ACCOUNT = (
    'pods "{name}" is forbidden: error looking up service account {space}/default: serviceaccount "default" not found'
)
SOMEBODYS = {
    "spec": {
        "rules": [
            {
                "name": "theirs",
                "match": {"any": [{"resources": {"kinds": ["Pod"], "names": ["nobody"]}}]},
                "validate": {"failureAction": "Enforce", "pattern": {"metadata": {"name": "?"}}},
            }
        ]
    }
}


class WorldCluster(ObjectServer):
    """*refuse* may return the status and message of a refusal for (kind, metadata); *idle* controllers do nothing.

    The account of a namespace comes after *late* requests for a pod of it; with *kyverno* policies are enforced on what is
    created, and somebody's own policy is there already. Deployments and
    DaemonSets get so many *pods*, one number after the other.
    """

    def __init__(self, *, late=0, idle=False, kyverno=False, pods=(2,)):
        super().__init__(WorldCluster.control)
        self.refuse = lambda _kind, _metadata: None
        self.idle, self.late, self.kyverno, self._pods = idle, late, kyverno, itertools.cycle(pods)
        self.texts |= {"/version": {"gitVersion": "v1.32.0"}, "/readyz": "ok"}
        self._asked_for_pods = {}
        if kyverno:
            self.put("ClusterPolicy", "", "somebodys", **copy.deepcopy(SOMEBODYS))

    def of(self, *kinds):
        return sorted(name for kind, _, name in self.objects if kind in kinds)

    def left(self):
        """Return what of ours is there."""
        return [name for name in self.of("Namespace", "ClusterRole", "ClusterPolicy") if name.startswith("opsassay-")]

    def answer(self, method, path, query):
        space = path.removeprefix("/api/v1/namespaces/")
        if method == "DELETE" and ("Namespace", "", space) in self.objects:
            for key in [key for key in self.objects if space in (key[1], key[2])]:
                del self.objects[key]
            return 200, {}
        if method == "DELETE" and path.endswith("/pods"):
            return 200, {}
        return super().answer(method, path, query)

    def _create_object(self, at, body, dry):
        body = copy.deepcopy(body)
        metadata = body["metadata"]
        if (refusal := self.refuse(at.kind, metadata)) is not None:
            raise StatusError(failure(*refusal))
        if at.namespace and ("Namespace", "", at.namespace) not in self.objects:
            raise StatusError(failure(404, f'namespaces "{at.namespace}" not found'))
        if at.kind == "Pod":
            self._require_account(at.namespace, metadata["name"])
        if at.kind in ("Job", "CronJob"):
            self._require_that_it_ends(at.kind, body)
        _filled_in(body, at.kind)
        if self.kyverno and at.kind not in ("Namespace", "ClusterPolicy"):
            self._require_admitted(at, body)
        return super()._create_object(at, body, dry)

    def _require_account(self, space, name):
        asked = self._asked_for_pods[space] = self._asked_for_pods.get(space, 0) + 1
        if asked <= self.late:
            raise StatusError(failure(403, ACCOUNT.format(name=name, space=space)))

    def _require_that_it_ends(self, kind, body):
        template = body["spec"]["jobTemplate"]["spec"]["template"] if kind == "CronJob" else body["spec"]["template"]
        if template["spec"].get("restartPolicy") not in ("Never", "OnFailure") or "selector" in body["spec"]:
            raise StatusError(failure(422, f'{kind} "{body["metadata"]["name"]}" is invalid: restartPolicy, selector'))

    def _require_admitted(self, at, body):
        blocking = {}
        one = {**body, "kind": at.kind}
        for (kind, _, name), policy in self.objects.items():
            if kind == "ClusterPolicy":
                document = {"apiVersion": "kyverno.io/v1", "kind": kind, "metadata": policy["metadata"]}
                written = json.dumps({**document, "spec": policy["spec"]}).encode()
                found = judge_objects(read_policies([(name, written)]), [one])
                blocking |= {f.policy: f.rule for f in found if f.result == "fail" and f.enforced}
        if blocking:
            where = f"{at.kind}/{at.namespace}/{body['metadata']['name']}"
            listed = "\n".join(f"{name}:\n  {rule}: 'validation error: no'" for name, rule in blocking.items())
            said = f"resource {where} was blocked due to the following policies\n\n{listed}"
            raise StatusError(
                failure(400, f'admission webhook "validate.kyverno.svc-fail" denied the request: \n\n{said}')
            )

    def control(self):
        for (kind, space, name), item in list(self.objects.items()):
            if kind == "ClusterPolicy":
                item["status"] = {"conditions": [{"type": "Ready", "status": "True"}]}
            if self.idle or item.get("status") or kind not in ("Deployment", "StatefulSet", "DaemonSet", "Job"):
                continue
            template, metadata = item["spec"]["template"], item["metadata"]
            item["status"] = {"observedGeneration": 1, "replicas": 1, "active": 1}
            if kind == "Deployment":
                digest = secrets.token_hex(5)
                owner = self._made("ReplicaSet", space, f"{name}-{digest}", kind, metadata, template, digest)
                for _ in range(next(self._pods)):
                    pod = f"{name}-{digest}-{secrets.token_hex(3)[:5]}"
                    self._made("Pod", space, pod, "ReplicaSet", owner, template, digest)
            elif kind == "DaemonSet":
                nodes = NODES[: next(self._pods)]
                item["status"] |= {"currentNumberScheduled": len(nodes), "desiredNumberScheduled": len(nodes)}
                for node in sorted(nodes, key=lambda _: secrets.token_hex(2)):
                    on_node = {**template, "spec": {**template["spec"], "affinity": {"node": node}}}
                    self._made("Pod", space, f"{name}-{secrets.token_hex(3)[:5]}", kind, metadata, on_node, "5f4d8b")
            else:
                suffix = "0" if kind == "StatefulSet" else secrets.token_hex(3)[:5]
                self._made("Pod", space, f"{name}-{suffix}", kind, metadata, template)

    def _made(self, kind, space, name, owner_kind, owner, template, digest=None):
        """Make a child as controllers do: a random name, labels by the template, an owner, a place."""
        reference = {
            "apiVersion": "x/v1",
            "kind": owner_kind,
            "name": owner["name"],
            "uid": owner["uid"],
            "controller": True,
        }
        labels = {**template["metadata"]["labels"], **({"pod-template-hash": digest} if digest else {})}
        metadata = {"labels": labels, "ownerReferences": [reference], "annotations": {"kubernetes.io/psp": digest}}
        spec = {**copy.deepcopy(template["spec"]), "nodeName": NODES[0]}
        body = {"metadata": {**metadata, **_making()}, "spec": spec if kind == "Pod" else {"template": template}}
        if kind == "Pod":
            body["spec"]["volumes"] = [
                *spec.get("volumes", []),
                {"name": f"kube-api-access-{secrets.token_hex(3)[:5]}"},
            ]
        return self.put(kind, space, name, **body)["metadata"]


def _making():
    return {
        "uid": str(uuid.uuid4()),
        "generation": 1,
        "creationTimestamp": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "managedFields": [{"manager": "kubectl"}],
    }


def _filled_in(body, kind):
    body["metadata"] |= _making()
    spec = body.get("spec") or {}
    if kind == "CronJob":
        spec = spec["jobTemplate"]["spec"]
    pod = spec if kind == "Pod" else (spec.get("template") or {}).get("spec") or {}
    for group in ("containers", "initContainers"):
        for one in pod.get(group) or ():
            one["imagePullPolicy"] = "IfNotPresent"


def running(folder, **how):
    """Serve a `WorldCluster`, with a kubeconfig in its ``config``."""
    server = WorldCluster(**how)
    server.config = write_kubeconfig(folder / "kubeconfig", server.url)
    return served(server)
