"""Overlays of the service graph: the true cascade, or one answer compared with it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import TypeVar

from opsassay.core.errors import NotFoundError
from opsassay.core.schema.base import Noun
from opsassay.core.schema.causal_graph import Annotation, CausalGraph
from opsassay.core.schema.diagnosis import Diagnosis
from opsassay.core.schema.faults import NETWORK_KINDS
from opsassay.core.schema.incident import Fault, Label, Truth
from opsassay.scoring.profiles import normalise

T = TypeVar("T")


class OverlayMark(StrEnum):
    """The role of a node or an edge in an overlay."""

    ROOT = "root"
    AFFECTED = "affected"
    ALARM = "alarm"
    CASCADE = "cascade"
    AGREES = "agrees"
    MISSING = "missing"
    WRONG = "wrong"
    CLAIMED = "claimed"  # said by the solver, and there is no truth to hold it against


class NodeMark(Noun):
    """How a service is shown; *onset_ns* is when its first abnormal state began (UTC)."""

    service: str
    mark: OverlayMark
    is_alarm: bool = False
    states: tuple[str, ...] = ()
    onset_ns: int | None = None


class EdgeMark(Noun):
    """How a cause -> effect edge is shown."""

    source: str
    target: str
    mark: OverlayMark
    rules: tuple[str, ...] = ()


class Overlay(Noun):
    """One overlay; *judged_roots* and *judged_edges* say whether the answer was compared with a truth."""

    nodes: tuple[NodeMark, ...] = ()
    edges: tuple[EdgeMark, ...] = ()
    judged_roots: bool = False
    judged_edges: bool = False


def truth_overlay(truth: Truth | None, annotation: Annotation | None) -> Overlay:
    """Return the true cascade by service: roots, affected services with states and onset, alerting ones, edges."""
    graph = annotation.graph if annotation else CausalGraph()
    roots = {service for group in root_groups(truth, annotation) for service in group}
    alarms = graph.alarm_services()
    onsets = {n.component: n for n in (*graph.nodes, *graph.root_causes, *graph.alarm_nodes)}
    services = sorted(roots | alarms | graph.services())
    nodes = []
    for service in services:
        parts = [n for n in onsets.values() if graph.service_of(n.component) == service]
        times = [n.timestamp for n in parts if n.timestamp is not None]
        mark = (
            OverlayMark.ROOT if service in roots else OverlayMark.ALARM if service in alarms else OverlayMark.AFFECTED
        )
        nodes.append(
            NodeMark(
                service=service,
                mark=mark,
                is_alarm=service in alarms,
                states=tuple(sorted({s for n in parts for s in n.state})),
                onset_ns=min(times) if times else None,
            )
        )
    edges = tuple(
        EdgeMark(source=a, target=b, mark=OverlayMark.CASCADE, rules=_rules_of_edge(graph, a, b))
        for a, b in sorted(graph.service_edges())
    )
    return Overlay(nodes=tuple(nodes), edges=edges, judged_roots=True, judged_edges=True)


def answer_overlay(
    diagnosis: Diagnosis | None, truth: Truth | None, annotation: Annotation | None, services: Sequence[str] = ()
) -> Overlay:
    """Return the roots and edges of *diagnosis*, each marked as agreeing with the truth, missing or wrong.

    Claimed names are matched to *services* and true ones after normalisation, as in grading. Roots are judged when the
    truth is known, edges only for the label *attributed*. Either end of a faulted link is a correct root (OpenRCA 2.0,
    G.1); the other end is then not missing.
    """
    groups = root_groups(truth, annotation)
    judged_roots = truth is not None or (annotation is not None and bool(groups))
    judged_edges = annotation is not None and annotation.label is Label.ATTRIBUTED
    graph_services = annotation.graph.services() if annotation else set()
    known = {normalise(s): s for s in (*services, *sorted(graph_services), *(s for g in groups for s in sorted(g)))}
    said, claimed_edges = _read_claims(diagnosis, known)
    true_edges = annotation.graph.service_edges() if annotation and judged_edges else set()
    alarms = annotation.graph.alarm_services() if annotation else set()
    right = said & {service for group in groups for service in group}
    missing = {service for group in groups if not group & said for service in group}
    node_marks = _mark_claims(said, right, missing, judged=judged_roots)
    edge_marks = _mark_claims(
        claimed_edges, claimed_edges & true_edges, true_edges - claimed_edges, judged=judged_edges
    )
    return Overlay(
        nodes=tuple(NodeMark(service=s, mark=m, is_alarm=s in alarms) for s, m in sorted(node_marks.items())),
        edges=tuple(EdgeMark(source=a, target=b, mark=m) for (a, b), m in sorted(edge_marks.items())),
        judged_roots=judged_roots,
        judged_edges=judged_edges,
    )


def root_groups(truth: Truth | None, annotation: Annotation | None) -> list[frozenset[str]]:
    """Return the true roots as groups of services; naming any service of a group counts as naming that root."""
    groups: list[frozenset[str]] = []
    network = [f for f in truth.faults if _is_network(f)] if truth else []
    whole = [services for fault, services, _ in truth.affected() if fault.host] if truth else []
    for label in truth.roots if truth else ():
        services = frozenset(label.service)
        as_one = services in whole or (network and len(services) > 1)
        groups += [services] if as_one else [frozenset({s}) for s in services]
    groups += [frozenset(s for s in (f.service, f.peer) if s) for f in network]
    groups += [services for _, services, _ in truth.affected()] if truth else []
    groups += [frozenset({s}) for s in annotation.graph.root_services()] if annotation else []
    largest = sorted(set(groups) - {frozenset()}, key=lambda g: (-len(g), sorted(g)))
    kept: list[frozenset[str]] = []
    for group in largest:
        if not any(group <= other for other in kept):
            kept.append(group)
    return sorted(kept, key=sorted)


def _read_claims(diagnosis: Diagnosis | None, canonical: Mapping[str, str]) -> tuple[set[str], set[tuple[str, str]]]:
    """Return (root services, edges) that *diagnosis* claims; *canonical* maps normalised to true names."""
    if diagnosis is None:
        return set(), set()

    def read(name: str) -> str:
        """Return the true graph's name for a service."""
        return canonical.get(normalise(name), name)

    return (
        {read(c.service) for c in diagnosis.root_causes},
        {(read(e.source), read(e.target)) for e in diagnosis.propagation},
    )


def _mark_claims(claims: Iterable[T], right: set[T], missing: set[T], *, judged: bool) -> dict[T, OverlayMark]:
    """Return a mark for each of *claims* (in *right* or wrong) and of *missing*; "claimed" for all unless *judged*."""
    if not judged:
        return dict.fromkeys(claims, OverlayMark.CLAIMED)
    claimed = {item: OverlayMark.AGREES if item in right else OverlayMark.WRONG for item in claims}
    return claimed | dict.fromkeys(missing, OverlayMark.MISSING)


def _is_network(fault: Fault) -> bool:
    """Whether *fault* is a network fault."""
    try:
        return fault.kind in NETWORK_KINDS
    except NotFoundError:  # an imported case may carry a fault type that the catalogue does not have
        return fault.type.startswith("Network")


def _rules_of_edge(graph: CausalGraph, source: str, target: str) -> tuple[str, ...]:
    """Return the rules of all edges of *graph* from service *source* to service *target*, sorted."""
    found = {
        e.rule
        for e in graph.edges
        if e.rule and (graph.service_of(e.source), graph.service_of(e.target)) == (source, target)
    }
    return tuple(sorted(found))
