"""Who may do what: a role with its binding, in a namespace or for the cluster. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from opsassay.testbed.substrates.kubernetes.manifests.system import Object

GROUP = "rbac.authorization.k8s.io"


def account(name: str, namespace: str) -> Object:
    """Return the service account *name* in *namespace* as a subject of role bindings."""
    return {"kind": "ServiceAccount", "name": name, "namespace": namespace}


def granted(
    name: str, namespace: str | None, rules: Sequence[Object], subject: Object, labels: Mapping[str, str]
) -> list[Object]:
    """Return the role *name* with *rules*, and its binding to *subject*; both cluster-wide if *namespace* is None."""
    kind, metadata = "Role" if namespace else "ClusterRole", {"name": name, "labels": dict(labels)}
    common = {"apiVersion": f"{GROUP}/v1", "metadata": {**metadata, **({"namespace": namespace} if namespace else {})}}
    reference = {"apiGroup": GROUP, "kind": kind, "name": name}
    return [
        {**common, "kind": kind, "rules": list(rules)},
        {**common, "kind": f"{kind}Binding", "roleRef": reference, "subjects": [subject]},
    ]
