"""What a cluster offers to whoever wants to break something on it, and whose nodes may be broken.

A fault of a node hits whoever else runs there. ``OPSASSAY_NODE_CONTEXTS`` names the contexts of clusters that are there to
be broken, separated by commas; it is empty unless somebody sets it.
"""

from __future__ import annotations

import os
from typing import Literal, NamedTuple

from opsassay.core.errors import RefusedError
from opsassay.testbed.substrates.kubernetes.actuators import chaos_mesh
from opsassay.testbed.substrates.kubernetes.api.client import Api

MechanismName = Literal["object", "pod", "node", "chaos-mesh"]
SETTING = "OPSASSAY_NODE_CONTEXTS"


class Offers(NamedTuple):
    """The kinds of Chaos Mesh that a cluster has, why its nodes may not be touched (None: they may), what is preferred."""

    chaos: frozenset[str]
    nodes: str | None
    prefer: MechanismName | None = None


def offers_of(api: Api, prefer: MechanismName | None = None) -> Offers:
    """Return what the cluster of *api* offers."""
    return Offers(chaos_mesh.kinds(api), node_refusal(api.context), prefer)


def allowed_contexts() -> frozenset[str]:
    """Return the contexts whose nodes may be broken."""
    return frozenset(name for part in os.environ.get(SETTING, "").split(",") if (name := part.strip()))


def node_refusal(context: str) -> str | None:
    """Return why nodes of *context* may not be touched, None when they may."""
    if context in allowed_contexts():
        return None
    return (
        f"it touches a node, and {context} is not among the contexts of {SETTING}; add it if that cluster may be broken"
    )


def require_nodes(context: str, what: str) -> None:
    """Raise RefusedError unless the nodes of *context* may be touched for *what*."""
    if reason := node_refusal(context):
        raise RefusedError(f"{what} cannot be done on this cluster: {reason}.")
