"""What a cluster offers to whoever wants to break something on it."""

from __future__ import annotations

from typing import Literal, NamedTuple

from assay.testbed.kubernetes import chaos_mesh
from assay.testbed.kubernetes.allowed import node_refusal
from assay.testbed.kubernetes.api import Api

WayName = Literal["object", "pod", "node", "chaos-mesh"]


class Offers(NamedTuple):
    """The kinds of Chaos Mesh that a cluster has, why its nodes may not be touched (None: they may), what is preferred."""

    chaos: frozenset[str]
    nodes: str | None
    prefer: WayName | None = None


def offers_of(api: Api, prefer: WayName | None = None) -> Offers:
    """Return what the cluster of *api* offers."""
    return Offers(chaos_mesh.kinds(api), node_refusal(api.context), prefer)
