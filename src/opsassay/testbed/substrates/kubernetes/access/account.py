"""What an agent may do on a cluster: an account with roles for what its scenario lists, and a kubeconfig good for that.

The account lives where the watchers do, out of the agent's reach; its token ends with the trial. Pods that would be a way
to a node are refused by the cluster's own policy, which is tried before anybody is let in.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import yaml

from opsassay.core.errors import RefusedError
from opsassay.core.schema.cluster import AccessRule
from opsassay.testbed.substrates.kubernetes.api.client import Api, ApiError, DeniedError, Object
from opsassay.testbed.substrates.kubernetes.manifests import roles
from opsassay.testbed.substrates.kubernetes.manifests.system import INSTANCE_LABEL, MANAGED

ACCOUNT = "operator"
LEAST_TOKEN_S = 600
"""No server issues a token for less."""
GROUPS = {
    "deployments": "apps", "replicasets": "apps", "statefulsets": "apps", "daemonsets": "apps", "jobs": "batch",
    "networkpolicies": "networking.k8s.io", "storageclasses": "storage.k8s.io", "poddisruptionbudgets": "policy",
    "horizontalpodautoscalers": "autoscaling",
}  # fmt: skip
"""API groups of what may be granted; the core for all else."""
CONTROLLER = "system:serviceaccount:kube-system:replicaset-controller"
"""Who makes the pods of deployments: what this one may not make, nobody who may change deployments gets."""
PATHS_TO_A_NODE: dict[str, dict[str, Any]] = {
    "hostPath": {"volumes": [{"name": "host", "hostPath": {"path": "/"}}]},
    "privileged": {},
    "hostNetwork": {"hostNetwork": True},
    "hostPID": {"hostPID": True},
}


def role_objects(name: str, watch: str, rules: Iterable[AccessRule]) -> list[Object]:
    """Return service account, roles and bindings that grant *rules*, by default in the system's namespace *name*.

    They are in order of creation; the account is in the namespace *watch*.
    """
    labels = {INSTANCE_LABEL: watch, **MANAGED}
    subject = roles.account(ACCOUNT, watch)
    found: list[Object] = [
        {
            "apiVersion": "v1",
            "kind": "ServiceAccount",
            "metadata": {"name": ACCOUNT, "namespace": watch, "labels": labels},
            "automountServiceAccountToken": False,
        }
    ]
    by_place: dict[str | None, list[Object]] = {}
    for rule in rules:
        place = None if rule.cluster_wide else rule.namespace or name
        by_place.setdefault(place, []).extend(_rules_of_role(rule))
    for place, granted in by_place.items():
        found += roles.granted(f"{name}-{ACCOUNT}", place, granted, subject, labels)
    return found


def _rules_of_role(rule: AccessRule) -> list[Object]:
    """Return the RBAC rules that grant *rule*."""
    by_group: dict[str, list[str]] = {}
    for resource in rule.resources:
        by_group.setdefault(GROUPS.get(resource.partition("/")[0], ""), []).append(resource)
    return [{"apiGroups": [group], "resources": names, "verbs": list(rule.verbs)} for group, names in by_group.items()]


def issue_token(api: Api, watch: str, lasts_s: float) -> str:
    """Return a token for the agent's account in namespace *watch*, valid for *lasts_s* seconds, but at least 600."""
    body = {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenRequest",
        "spec": {"expirationSeconds": max(LEAST_TOKEN_S, round(lasts_s))},
    }
    path = f"/api/v1/namespaces/{watch}/serviceaccounts/{ACCOUNT}/token"
    return str(api.request("POST", path, body)["status"]["token"])


def write_kubeconfig(api: Api, namespace: str, token: str, path: Path) -> Path:
    """Write a kubeconfig with *token* and default *namespace* to *path*, readable by its owner only; return *path*."""
    cluster: dict[str, Any] = {"server": api.server}
    if (authority := api.authority()) is not None:
        cluster["certificate-authority-data"] = base64.b64encode(authority).decode()
    elif not api.verifies:
        cluster["insecure-skip-tls-verify"] = True
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "cluster", "cluster": cluster}],
        "users": [{"name": ACCOUNT, "user": {"token": token}}],
        "contexts": [{"name": "here", "context": {"cluster": "cluster", "user": ACCOUNT, "namespace": namespace}}],
        "current-context": "here",
    }
    path.touch(0o600)
    path.write_text(yaml.safe_dump(config), encoding="utf-8")
    return path


def paths_to_a_node(api: Api, namespace: str, image: str) -> list[str]:
    """Return the kinds of pods with access to their node (such as hostPath) that the cluster admits in *namespace*.

    They are tried by dry runs. Raises RefusedError when an ordinary pod is refused too, since refusals then tell
    nothing.
    """
    if (reason := _refusal(api, _make_pod("none", {}, namespace, image))) is not None:
        raise RefusedError(
            f"What pods the cluster {api.context} admits is not known, since it refuses an ordinary one: {reason}"
        )
    return [
        way for way, spec in PATHS_TO_A_NODE.items() if _refusal(api, _make_pod(way, spec, namespace, image)) is None
    ]


def require_closed(api: Api, namespace: str, image: str) -> None:
    """Raise RefusedError when *namespace* admits pods of *image* with access to their node, tried by dry runs."""
    if open_paths := paths_to_a_node(api, namespace, image):
        raise RefusedError(
            f"The cluster {api.context} admits pods with {', '.join(open_paths)}, a way to its nodes: enforce Pod "
            "Security (1.23 and newer) or a PodSecurityPolicy, or say `open_nodes: true` in the plan's cluster block."
        )


def _refusal(api: Api, pod: Object) -> str | None:
    """Return why the server refuses to create *pod* for a controller (a dry run), None when it would admit it."""
    path = f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods"
    try:
        api.request("POST", path, pod, query={"dryRun": "All"}, headers={"Impersonate-User": CONTROLLER})
    except DeniedError as error:
        return str(error)
    except ApiError as error:
        if error.status == 422:
            return str(error)
        raise
    return None


def _make_pod(kind: str, spec: dict[str, Any], namespace: str, image: str) -> Object:
    """Return the pod manifest that accesses its node by *kind* (privileged, hostPath and so on); *spec* is added."""
    container: Object = {"name": "way", "image": image}
    if kind == "privileged":
        container["securityContext"] = {"privileged": True}
    if kind == "hostPath":
        container["volumeMounts"] = [{"name": "host", "mountPath": "/host"}]
    metadata = {"name": f"opsassay-way-{kind.lower()}", "namespace": namespace}
    common = {"automountServiceAccountToken": False, "containers": [container]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {**common, **spec}}
