"""CausalGraph and Annotation: the verified cascade of an incident, in OpenRCA 2.0's form (F.3) plus our fields.

A component is written ``type|name``, such as ``service|cart`` or ``span|cart::POST /add``. A host (``node|name``) belongs
to no service; as a root it stands for the services that its edges lead to.
"""

from __future__ import annotations

from typing import Any

from pydantic import Field

from opsassay.core.schema.base import Artefact, Noun
from opsassay.core.schema.incident import Label, RootLabel

PUBLISHED = "imported from "
"""The reason of the annotation of a published graph begins with this."""


def is_host(component: str) -> bool:
    """Return whether *component*, written ``type|name``, is a host."""
    return component.startswith("node|")


class CausalNode(Noun):
    """A component in an abnormal state from *timestamp* (ns of UTC wall clock) on."""

    component: str
    state: tuple[str, ...] = ()
    timestamp: int | None = None
    fault_type: str | None = None
    healthy_bypass: bool = False


class CausalEdge(Noun):
    """The failure of *source* caused the failure of *target*, by *rule*, carried by *evidence*."""

    source: str
    target: str
    rule: str | None = None
    evidence: dict[str, Any] = Field(default_factory=dict)


class CausalGraph(Artefact):
    """Nodes, directed edges from cause to effect, roots, and the alarms at which accepted paths end."""

    case_name: str | None = None
    fault_type: str | None = None
    fault_types: tuple[str, ...] = ()
    nodes: tuple[CausalNode, ...] = ()
    edges: tuple[CausalEdge, ...] = ()
    root_causes: tuple[CausalNode, ...] = ()
    alarm_nodes: tuple[CausalNode, ...] = ()
    component_to_service: dict[str, str] = Field(default_factory=dict)

    def service_of(self, component: str) -> str:
        """Return the service that *component* (``type|name``) belongs to; its own name when the graph maps it to none."""
        return self.component_to_service.get(component, component.rpartition("|")[2])

    def service_edges(self) -> set[tuple[str, str]]:
        """Return the edges between two services as (cause service, effect service); edges with a host are left out."""
        between = (e for e in self.edges if not is_host(e.source) and not is_host(e.target))
        pairs = {(self.service_of(e.source), self.service_of(e.target)) for e in between}
        return {(a, b) for a, b in pairs if a != b}

    def services(self) -> set[str]:
        """Return the services that have a node in the graph; hosts are left out."""
        return self._name_services({n.component for n in self.nodes})

    def root_services(self) -> set[str]:
        """Return the services of the root causes; in place of a host, the services that its edges lead to."""
        roots = {n.component for n in self.root_causes}
        below = {e.target for e in self.edges if is_host(e.source) and e.source in roots}
        return self._name_services(roots | below)

    def alarm_services(self) -> set[str]:
        """Return the services of the nodes at which users notice the failure (`alarm_nodes`)."""
        return self._name_services({n.component for n in self.alarm_nodes})

    def _name_services(self, components: set[str]) -> set[str]:
        """Return the services of *components* (each ``type|name``); hosts are left out."""
        return {self.service_of(c) for c in components if not is_host(c)}


class RejectedPath(Noun):
    """A candidate path and the first gate (check) that it failed."""

    path: tuple[str, ...]
    gate: str
    reason: str


class FaultVerdict(Noun):
    """The outcome of one of the faults, each by its own label.

    *shown*: whether its own signature was seen at its place. *direction*: the calls of its place that a network fault
    affects: inbound, outbound, both, peer:NAME or protocol:NAME.
    """

    type: str
    place: str
    label: Label
    reason: str
    shown: bool = Field(default=False, exclude_if=lambda shown: not shown)
    direction: str | None = Field(default=None, exclude_if=lambda direction: direction is None)


class Annotation(Artefact):
    """The result of `annotate`: the label, the graph, and the reasons."""

    label: Label
    reason: str
    graph: CausalGraph
    paths: tuple[tuple[str, ...], ...] = ()
    rejected: tuple[RejectedPath, ...] = ()
    alarms: dict[str, tuple[str, ...]] = Field(default_factory=dict, description="explained, unexplained")
    thresholds: dict[str, Any] = Field(default_factory=dict)
    false_alarm_rate: float | None = None
    faults: tuple[FaultVerdict, ...] = Field(default=(), description="what became of each fault")
    roots: tuple[RootLabel, ...] = Field(default=(), description="accepted root causes at every level that applies")
    notes: tuple[str, ...] = Field(default=(), description="what was odd about the telemetry")
    made_from: str = Field(default="", description="digest of everything that the annotation was made from")

    @property
    def is_published(self) -> bool:
        """Whether this annotation comes from a public data set, and was not computed by `annotate`."""
        return not self.made_from and self.reason.startswith(PUBLISHED)
