"""The candidates of a search: the building blocks that they are made of, and the guard that keeps them in bounds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from opsassay.core.errors import NotFoundError
from opsassay.core.schema.cluster import CONTROL_PLANE
from opsassay.core.schema.scenario import OpsCall
from opsassay.core.schema.system import System
from opsassay.testbed.operations.search import Block, Composition
from opsassay.testbed.substrates.kubernetes.api.client import Api
from opsassay.testbed.substrates.kubernetes.search.baseline import RESTORED


def primitives(system: System, target: str, *, nodes: bool) -> tuple[Block, ...]:
    """Return the changes to service *target* that a fault search combines into faults; raises NotFoundError.

    They are a network policy, a disruption budget, a wrong image, a wrong selector, no change, and if *nodes* may be
    changed a delayed control plane.
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
        Block("policy lets nobody in", "policy", (_create_call("NetworkPolicy", "isolation", policy),)),
        Block("tight disruption budget", "budget", (_create_call("PodDisruptionBudget", "strict", budget),)),
        Block("image that nobody has", "image", (_patch_call("Deployment", target, image),)),
        Block("wrong selector", "selector", (_patch_call("Service", target, selector),)),
    ]
    if nodes:
        delay = OpsCall(verb="node", arguments={"node": CONTROL_PLANE, "op": "delay"})
        found.append(Block("delayed control plane", "control plane", (delay,)))
    return tuple(found)


def audit_cases(target: str) -> tuple[Block, ...]:
    """Return a fault of *target* for each reason to refuse a fault in a search (paper, App. H.3).

    The workload is deleted; a ClusterRole is created, which the reset does not remove; a static pod is replaced.
    """
    gone = OpsCall(verb="delete", arguments={"kind": "Deployment", "name": target})
    role = _create_call("ClusterRole", "operators", {"rules": []})
    static = OpsCall(verb="patch", arguments={"kind": "Pod", "name": "kube-apiserver", "patch": {"spec": {}}})
    return (
        Block("workload taken away", "invalid", (gone,)),
        Block("cluster-wide object made", "invalid", (role,)),
        Block("static pod replaced", "invalid", (static,)),
    )


def _create_call(kind: str, name: str, body: Mapping[str, Any]) -> OpsCall:
    """Return the call that creates the object *name* of *kind* with *body*."""
    return OpsCall(verb="create", arguments={"kind": kind, "name": name, "body": body})


def _patch_call(kind: str, name: str, patch: Mapping[str, Any]) -> OpsCall:
    """Return the call that merges *patch* into the object *name* of *kind*."""
    return OpsCall(verb="patch", arguments={"kind": kind, "name": name, "patch": patch})


ARGUMENTS = {
    "create": {"kind", "name", "body"},
    "patch": {"kind", "name", "patch"},
    "delete": {"kind", "name"},
    "node": {"node", "op"},
}
OURS = frozenset({("ConfigMap", "system"), ("ConfigMap", "kube-root-ca.crt")})
"""What describes the system itself: the baseline is read from it."""
TO_A_NODE = frozenset({"hostPath", "hostNetwork", "hostPID", "hostIPC", "privileged", "serviceAccountName", "nodeName"})
"""Fields of a pod by which it would reach a node or get rights: nothing takes back what it does there."""


def refusal(composition: Composition, *, nodes: bool) -> str | None:
    """Return why a reset would not undo the fault *composition*, None when it would; *nodes*: nodes can be changed."""
    return next((reason for change in composition.changes if (reason := _why_outside(change, nodes=nodes))), None)


def _why_outside(change: OpsCall, *, nodes: bool) -> str | None:
    """Return why *change* is invalid or not undone by a reset, else None; *nodes*: a node command exists."""
    known = ARGUMENTS.get(change.verb)
    if known is None or set(change.arguments) != known:
        return f"`{change.verb}` with {', '.join(change.arguments) or 'nothing'} is no change that is known"
    if change.verb != "node":
        return _why_object_is_outside(change)
    if (change.arguments["node"], change.arguments["op"]) != (CONTROL_PLANE, "delay"):
        return "of nodes only the control plane may be delayed: the reset covers nothing else"
    return None if nodes else "no command for nodes is known, so the control plane cannot be delayed"


def _why_object_is_outside(change: OpsCall) -> str | None:
    """Return why *change* of an object must not be applied: its kind, name or fields; None when it may."""
    kind, name = change.arguments["kind"], change.arguments["name"]
    body = change.arguments.get("body") or change.arguments.get("patch") or {}
    if not isinstance(kind, str) or not isinstance(name, str):
        return f"`{change.verb}` names no object: kind and name are words"
    if kind not in RESTORED:
        return f"{kind} {name} lies outside of what the reset covers"
    if (kind, name) in OURS:
        return f"{kind} {name} is what the baseline is read from"
    if not isinstance(body, Mapping):
        return f"{kind} {name} is given as {type(body).__name__}, not as an object"
    if stray := sorted(TO_A_NODE & set(_list_keys(body))):
        return f"{kind} {name} reaches a node by {stray[0]}"
    return "an object's metadata is the namespace's and the name's" if "metadata" in body else None


def _list_keys(item: Any) -> Iterator[str]:
    """Yield the keys of all mappings in *item*, at any depth."""
    if isinstance(item, Mapping):
        for key, value in item.items():
            yield str(key)
            yield from _list_keys(value)
    elif isinstance(item, list):
        for one in item:
            yield from _list_keys(one)


def violation(api: Api, namespace: str, target: str) -> str | None:
    """Return why *target* is not valid (paper, App. H.3): missing, scaled to zero or not selected; None when it is."""
    deployment, service = api.get("Deployment", target, namespace), api.get("Service", target, namespace)
    if deployment is None:
        return f"the Deployment {target} does not exist"
    if deployment["spec"].get("replicas", 1) < 1:
        return f"the Deployment {target} wants no replica"
    if service is None:
        return f"the Service {target} does not exist"
    labels = deployment["spec"]["template"]["metadata"].get("labels") or {}
    selector = service["spec"].get("selector") or {}
    if not selector or any(labels.get(key) != value for key, value in selector.items()):
        return f"the Service {target} selects other pods than the Deployment makes"
    return None
