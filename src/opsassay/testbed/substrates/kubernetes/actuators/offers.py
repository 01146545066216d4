"""What a cluster offers to whoever wants to break something on it, and whose nodes may be broken.

A fault of a node hits whoever else runs there. ``OPSASSAY_NODE_CONTEXTS`` names the contexts of clusters that are there to
be broken, separated by commas; it is empty unless somebody sets it.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol

from opsassay.core.errors import RefusedError
from opsassay.core.registry import Registry
from opsassay.core.schema.incident import PlannedFault
from opsassay.testbed.core.injection import Injection, Intervention
from opsassay.testbed.substrates.kubernetes.api.client import Api
from opsassay.testbed.substrates.kubernetes.api.kinds import KINDS

SETTING = "OPSASSAY_NODE_CONTEXTS"


_UNDO = (("create", "Role"), ("create", "RoleBinding"))
RIGHTS: Mapping[str, tuple[tuple[str, str], ...]] = {
    "PodKill": (("delete", "Pod"),),
    "PodFailure": (("patch", "Pod"), *_UNDO),
    "NetworkPartition": (("patch", "Pod"), ("create", "NetworkPolicy"), ("delete", "NetworkPolicy"), *_UNDO),
}
"""What objects take that break a pod: (verb, kind) in its namespace."""


class FurtherMechanism(Protocol):
    """A mechanism that a package brings: another way to carry fault types out on a cluster."""

    def obstacles(self, api: Api) -> Callable[[PlannedFault], str | None]:
        """Query the cluster of *api* once; return a function from fault to why it cannot be carried out, or None."""

    def make(self, injection: Injection[Any]) -> Intervention:
        """Return the intervention that carries out the fault of *injection*."""


FURTHER = Registry("mechanism", "opsassay.mechanisms", {})
"""Classes of `FurtherMechanism` that packages bring, by what `prefer` calls it."""


class Offers(NamedTuple):
    """Why a cluster's nodes may not be touched (None: they may), what is preferred, and the *further* mechanisms.

    Of each of those by name, what tells why a fault cannot go it on this cluster. *existing* is the namespace whose pods
    are a team's own, '' where they are ours; *denied* says which fault types a right that is missing there costs.
    """

    nodes: str | None
    prefer: str | None = None
    further: Mapping[str, Callable[[PlannedFault], str | None]] = {}
    existing: str = ""
    denied: Mapping[str, str] = {}


def offers_of(api: Api, prefer: str | None = None, existing: str = "") -> Offers:
    """Return whether nodes of the cluster may be broken, and mechanisms of packages; *prefer* is tried first.

    *existing* is the namespace of pods that OpsAssay did not make, '' without.
    """
    further = {name: FURTHER.load(name)().obstacles(api) for name in FURTHER.names()}
    return Offers(node_refusal(api.context), prefer, further, existing, denied(api, existing) if existing else {})


@functools.lru_cache(maxsize=8)
def denied(api: Api, namespace: str) -> Mapping[str, str]:
    """Return {fault type: why not} for what needs a right in *namespace* that this user lacks."""
    asked = {
        right: api.allows(*right, namespace) for right in dict.fromkeys(r for all_ in RIGHTS.values() for r in all_)
    }
    found = {}
    for fault, rights in RIGHTS.items():
        if lacking := [f"{verb} {KINDS[kind][1]}" for verb, kind in rights if not asked[verb, kind]]:
            found[fault] = f"this user may not {', '.join(lacking)} in {namespace}"
    return found


def allowed_contexts() -> frozenset[str]:
    """Return the kubeconfig contexts whose nodes may be broken, by an environment variable."""
    return frozenset(name for part in os.environ.get(SETTING, "").split(",") if (name := part.strip()))


def node_refusal(context: str) -> str | None:
    """Return why nodes of the kubeconfig *context* may not be broken, None when they may."""
    if context in allowed_contexts():
        return None
    return (
        f"it touches a node, and {context} is not among the contexts of {SETTING}; add it if that cluster may be broken"
    )


def require_nodes(context: str, subject: str) -> None:
    """Raise RefusedError unless nodes of the kubeconfig *context* may be broken; *subject* begins the message."""
    if reason := node_refusal(context):
        raise RefusedError(f"{subject} cannot be done on this cluster: {reason}.")
