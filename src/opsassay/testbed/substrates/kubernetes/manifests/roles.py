"""Who may do what: a role with its binding, in a namespace or for the cluster. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from opsassay.testbed.substrates.kubernetes.manifests.system import Object

GROUP = "rbac.authorization.k8s.io"


def account(name: str, namespace: str) -> Object:
    """Return the service account *name* as the subject of a binding."""
    return {"kind": "ServiceAccount", "name": name, "namespace": namespace}


def granted(
    name: str, place: str | None, rules: Sequence[Object], subject: Object, labels: Mapping[str, str]
) -> list[Object]:
    """Return the role *name* with *rules* and what binds it to *subject*; in no *place* it is the whole cluster's."""
    kind, metadata = "Role" if place else "ClusterRole", {"name": name, "labels": dict(labels)}
    common = {"apiVersion": f"{GROUP}/v1", "metadata": {**metadata, **({"namespace": place} if place else {})}}
    reference = {"apiGroup": GROUP, "kind": kind, "name": name}
    return [
        {**common, "kind": kind, "rules": list(rules)},
        {**common, "kind": f"{kind}Binding", "roleRef": reference, "subjects": [subject]},
    ]
