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

SETTING = "OPSASSAY_NODE_CONTEXTS"


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

    *further* is name to a function that says why a fault cannot be carried out so on this cluster. *existing* is the
    namespace whose pods are a team's own, '' where they are ours; *allows* tells whether this user may (verb, kind) there.
    """

    nodes: str | None
    prefer: str | None = None
    further: Mapping[str, Callable[[PlannedFault], str | None]] = {}
    existing: str = ""
    allows: Callable[[str, str], bool] = lambda _verb, _kind: True


def offers_of(api: Api, prefer: str | None = None, existing: str = "") -> Offers:
    """Return whether nodes of the cluster may be broken, and mechanisms of packages; *prefer* is tried first.

    *existing* is the namespace of pods that OpsAssay did not make, '' without.
    """
    further = {name: FURTHER.load(name)().obstacles(api) for name in FURTHER.names()}
    allows = functools.cache(lambda verb, kind: api.allows(verb, kind, existing))
    return Offers(node_refusal(api.context), prefer, further, existing, allows)


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
