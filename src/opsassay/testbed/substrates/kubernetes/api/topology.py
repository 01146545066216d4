"""What stands behind a service on a cluster: node, pod, replica set, deployment and service, from owner references."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from opsassay.testbed.substrates.kubernetes.api.client import Api, Object
from opsassay.testbed.substrates.kubernetes.api.readings import owner_of

Entity = tuple[str, str, str]
"""Kind, namespace ('' for none) and name."""


def topology(api: Api, namespace: str) -> set[tuple[Entity, Entity]]:
    """Return the pairs of `edges` for the pods, replica sets, endpoints and jobs in *namespace*."""
    return edges({kind: api.list(kind, namespace) for kind in ("Pod", "ReplicaSet", "Endpoints", "Job")})


def edges(objects: Mapping[str, Iterable[Object]]) -> set[tuple[Entity, Entity]]:
    """Return (owner, owned), (node, pod), (service, pod) pairs of (kind, namespace, name) among *objects* by kind."""
    found: set[tuple[Entity, Entity]] = set()
    for kind, items in objects.items():
        for item in items:
            metadata = item["metadata"]
            here: Entity = (kind, metadata.get("namespace", ""), metadata["name"])
            if (owner := owner_of(item)) is not None:
                found.add(((owner[0], here[1], owner[1]), here))
            if kind == "Pod" and (node := item["spec"].get("nodeName")):
                found.add((("Node", "", node), here))
            if kind == "Endpoints":
                found |= {(("Service", here[1], here[2]), ("Pod", here[1], pod)) for pod in _pods_behind(item)}
    return found


def _pods_behind(endpoints: Object) -> set[str]:
    """Return the names of the pods in *endpoints*, ready or not."""
    return {
        address["targetRef"]["name"]
        for subset in endpoints.get("subsets") or ()
        for part in ("addresses", "notReadyAddresses")
        for address in subset.get(part) or ()
        if address.get("targetRef", {}).get("kind") == "Pod"
    }
