"""Who took a controller's pod away, as far as objects tell: that controller, the cluster that lost a node, or somebody."""

from __future__ import annotations

from collections.abc import Mapping

from opsassay.testbed.substrates.kubernetes.api.client import Object
from opsassay.testbed.substrates.kubernetes.api.readings import WORKLOADS, desired, is_ready, owner_of

Known = Mapping[tuple[str, str, str], Object]
"""Objects by kind, namespace ('' where there is none) and name."""


def siblings(pod: Object, objects: Known) -> int:
    """Return how many pods in *objects* have the same controller as *pod*, without those being deleted."""
    place, owner = pod["metadata"].get("namespace", ""), owner_of(pod)
    return sum(
        owner_of(other) == owner and "deletionTimestamp" not in other["metadata"]
        for (kind, namespace, _), other in objects.items()
        if kind == "Pod" and namespace == place
    )


def by_somebody(pod: Object, present: int, objects: Known) -> bool:
    """Return whether a user deleted *pod*, and not its controller or the cluster.

    *present*: how many `siblings` it had. A controller deletes surplus pods, and all when it is deleted; the cluster
    deletes pods of lost or tainted nodes. If the controller or node is not in *objects*, the deletion is attributed
    to it.
    """
    owner = owner_of(pod)
    if owner is None:
        return True
    place = pod["metadata"].get("namespace", "")
    controller = objects.get((owner[0], place, owner[1]))
    if owner[0] not in WORKLOADS or controller is None or "deletionTimestamp" in controller["metadata"]:
        return False
    if present > desired({**controller, "kind": owner[0]}):
        return False
    node = objects.get(("Node", "", pod["spec"].get("nodeName") or ""))
    if node is None:
        return "nodeName" not in pod["spec"]
    evicts = any(taint["effect"] == "NoExecute" for taint in node["spec"].get("taints") or ())
    return is_ready(node) and not evicts
