"""How far two causal graphs of one incident agree: OpsAssay's, and a published one."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from opsassay.core.schema.causal_graph import CausalGraph


@dataclass(frozen=True)
class Overlap:
    """The number of items in both graphs, only in ours, and only in the published one."""

    both: int
    ours_alone: int
    published_alone: int

    @property
    def jaccard(self) -> float | None:
        """Return the Jaccard index of both sets; None when both are empty."""
        every = self.both + self.ours_alone + self.published_alone
        return self.both / every if every else None


@dataclass(frozen=True)
class Agreement:
    """Overlap of root services, services with a node, components, and edges between services.

    *unknown*: services of the published graph that the telemetry lacks.
    """

    roots: Overlap
    services: Overlap
    components: Overlap
    edges: Overlap
    unknown: tuple[str, ...]

    @property
    def note(self) -> str:
        """A sentence on defects of the published graph, '' without any."""
        named = ", ".join(self.unknown)
        return f"The published graph names services that the telemetry lacks: {named}." if self.unknown else ""


def agreement(ours: CausalGraph, published: CausalGraph, services: Collection[str]) -> Agreement:
    """Return how far two graphs of one incident agree in nodes, edges and roots; *services*: all in its telemetry."""
    named = published.services() | published.root_services()
    return Agreement(
        roots=_count_overlap(ours.root_services(), published.root_services()),
        services=_count_overlap(ours.services(), published.services()),
        components=_count_overlap({n.component for n in ours.nodes}, {n.component for n in published.nodes}),
        edges=_count_overlap(ours.service_edges(), published.service_edges()),
        unknown=tuple(sorted(named - set(services))),
    )


def _count_overlap(ours: set[str] | set[tuple[str, str]], published: set[str] | set[tuple[str, str]]) -> Overlap:
    """Return how many items both sets have, and how many only one of them."""
    both = len(set(ours) & set(published))
    return Overlap(both, len(ours) - both, len(published) - both)
