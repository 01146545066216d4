"""What may be wrong with one workload of a cluster: the six primitives of "side-effects", App. H.2."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from opsassay.core.errors import NotFoundError
from opsassay.core.schema.cluster import CONTROL_PLANE
from opsassay.core.schema.scenario import OpsCall
from opsassay.core.schema.system import System
from opsassay.testbed.operations.composition import Block


def primitives(system: System, target: str, *, nodes: bool) -> tuple[Block, ...]:
    """Return the primitives for the workload *target*; the delayed control plane only where *nodes* can be reached.

    A policy that lets nobody in, a disruption budget that allows nothing, an image that nobody has, a delayed control
    plane, a wrong selector, and no change. Raises NotFoundError.
    """
    if target not in system.services:
        raise NotFoundError("service", target, system.services)
    labels = {"matchLabels": {"app": target}}
    policy = {"spec": {"podSelector": labels, "policyTypes": ["Ingress"]}}
    budget = {"spec": {"selector": labels, "minAvailable": "100%"}}
    image = {"spec": {"template": {"spec": {"containers": [{"name": target, "image": f"{target}:unavailable"}]}}}}
    selector = {"spec": {"selector": {"app": f"{target}-next"}}}
    found = [
        Block("no change", "none", ()),
        Block("policy lets nobody in", "policy", (_create("NetworkPolicy", "isolation", policy),)),
        Block("tight disruption budget", "budget", (_create("PodDisruptionBudget", "strict", budget),)),
        Block("image that nobody has", "image", (_patch("Deployment", target, image),)),
        Block("wrong selector", "selector", (_patch("Service", target, selector),)),
    ]
    if nodes:
        delay = OpsCall(verb="node", arguments={"node": CONTROL_PLANE, "op": "delay"})
        found.append(Block("delayed control plane", "control plane", (delay,)))
    return tuple(found)


def audit_cases(target: str) -> tuple[Block, ...]:
    """Return one candidate of each invalid class of App. H.3.

    The workload is taken away; the control plane is changed where the reset does not reach; a static pod is replaced.
    """
    gone = OpsCall(verb="delete", arguments={"kind": "Deployment", "name": target})
    role = _create("ClusterRole", "operators", {"rules": []})
    static = OpsCall(verb="patch", arguments={"kind": "Pod", "name": "kube-apiserver", "patch": {"spec": {}}})
    return (
        Block("workload taken away", "invalid", (gone,)),
        Block("cluster-wide object made", "invalid", (role,)),
        Block("static pod replaced", "invalid", (static,)),
    )


def _create(kind: str, name: str, body: Mapping[str, Any]) -> OpsCall:
    return OpsCall(verb="create", arguments={"kind": kind, "name": name, "body": body})


def _patch(kind: str, name: str, patch: Mapping[str, Any]) -> OpsCall:
    return OpsCall(verb="patch", arguments={"kind": kind, "name": name, "patch": patch})
