"""Process: the claimed cascade compared with the verified one (OpenRCA 2.0, G.2).

Paths follow claimed edges in their direction, as Equation 10 says; under the profile ``compat`` they may also run against
it, as in the public scorer.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

import rustworkx

from opsassay.core.schema.causal_graph import CausalGraph
from opsassay.core.schema.diagnosis import Diagnosis
from opsassay.core.schema.incident import Truth
from opsassay.scoring import metrics
from opsassay.scoring.metrics import Metrics, scored
from opsassay.scoring.outcome import any_service_hit, correct_services, true_roots
from opsassay.scoring.profiles import Profile

Edge = tuple[str, str]


@dataclass(frozen=True)
class ServiceGraph:
    """A cascade of services in normal form, edges from cause to effect, without load generators and self-loops."""

    nodes: frozenset[str]
    edges: frozenset[tuple[str, str]]


def true_graph(graph: CausalGraph, profile: Profile) -> ServiceGraph:
    """Return the verified cascade *graph* as a graph of services in the normal form of *profile*."""
    edges = [(profile.service(a), profile.service(b)) for a, b in graph.service_edges()]
    nodes = frozenset(profile.service(name) for name in graph.services())
    return ServiceGraph(_drop_load_generators(nodes, profile), _drop_loops_and_load(edges, profile))


def claimed_graph(diagnosis: Diagnosis, profile: Profile) -> ServiceGraph:
    """Return the cascade of *diagnosis*; its nodes are the claimed root causes and the ends of claimed edges.

    An edge at a load generator is removed with both ends, as in G.2; the public scorer keeps its other end.
    """
    claimed = [(profile.service(e.source), profile.service(e.target)) for e in diagnosis.propagation]
    edges = _drop_loops_and_load(claimed, profile)
    counted = claimed if profile.public_graph_rules else [e for e in claimed if not _touches_load(e, profile)]
    nodes = {profile.service(claim.service) for claim in diagnosis.root_causes} | {
        end for edge in counted for end in edge
    }
    return ServiceGraph(_drop_load_generators(nodes, profile), edges)


def graph_metrics(diagnosis: Diagnosis, graph: CausalGraph, profile: Profile) -> Metrics:
    """Return precision, recall, F1 of nodes and directed edges of *diagnosis* against *graph*, the verified cascade.

    Precision = |claimed & true| / |claimed|, recall = |claimed & true| / |true|, F1 their harmonic mean (OpenRCA 2.0,
    G.2.1, Equations 7 and 8); both sets empty scores 1.
    """
    claimed, true = claimed_graph(diagnosis, profile), true_graph(graph, profile)
    return {
        **metrics.set_scores("node", claimed.nodes, true.nodes),
        **metrics.set_scores("edge", claimed.edges, true.edges),
    }


def path_metrics(
    diagnosis: Diagnosis, truth: Truth, graph: CausalGraph, profile: Profile, *, unnamed: str = ""
) -> Metrics:
    """Return path_reachability, path_reachability_hit and ungrounded, each 0 or 1 (Equation 10 and its variant).

    PR = 1[AnySvc and a path r ~> s over claimed edges with r a true root service and s a service of a true alarm]
    (OpenRCA 2.0, G.2.2); ungrounded = AnySvc and not PR.

    A path runs over *claimed* edges from a correctly claimed root service (for the variant: service and kind) to a
    service of a true alarm. Without a correct root the value is 0; a truth without alarms is not applicable, nor is the
    variant if *unnamed* is a reason why the solver names no kinds.

    A path of no edges, from a root that raises an alarm itself, counts only if no alarm is raised beyond the true root
    services (always in ``compat``, as by the public scorer). A path also needs that most edges reachable from the root lie
    along the verified cascade, except in profiles that count any number of services.
    """
    alarms = {profile.service(name) for name in graph.alarm_services()}
    reachable_alarms = _drop_load_generators(alarms, profile)
    if not (alarms if profile.public_graph_rules else reachable_alarms):
        return metrics.not_applicable(metrics.PATH, "the verified cascade ends in no alarm")
    roots = true_roots(truth, profile)
    claims = diagnosis.root_causes
    root_services = frozenset[str]().union(*(root.services for root in roots))
    trivial = profile.public_graph_rules or reachable_alarms <= root_services
    edges, verified = claimed_graph(diagnosis, profile).edges, true_graph(graph, profile).edges

    def reaches(*, full: bool) -> bool:
        """Return whether a path leads from a correctly named service (*full*: with the right fault kind) to an alarm."""
        starts = correct_services(claims, roots, profile, full=full)
        if trivial and starts & reachable_alarms:
            return True
        if profile.most_services is not None:
            starts = frozenset(one for one in starts if _is_mostly_along(edges, one, verified, root_services))
        return path_exists(edges, starts, reachable_alarms, undirected=profile.undirected)

    grounded = reaches(full=False)
    hit = (
        {"path_reachability_hit": scored(reaches(full=True))}
        if not unnamed
        else metrics.not_applicable(("path_reachability_hit",), unnamed)
    )
    return {
        "path_reachability": scored(grounded),
        **hit,
        "ungrounded": scored(any_service_hit(claims, roots, profile) and not grounded),
    }


def path_exists(
    edges: Collection[Edge], starts: Iterable[str], ends: Iterable[str], *, undirected: bool = False
) -> bool:
    """Return whether *edges* (*undirected*: either way) lead from one of *starts* to another service in *ends*."""
    graph, index = _graph_of([*edges, *((b, a) for a, b in edges if undirected)])
    goals = {index[name] for name in ends if name in index}
    # A node is never its own descendant here, so a loop back to the start is no path.
    return any(rustworkx.descendants(graph, index[start]) & goals for start in starts if start in index)


def _is_mostly_along(edges: Collection[Edge], start: str, verified: Collection[Edge], roots: frozenset[str]) -> bool:
    """Return whether most *edges* reachable from *start* lie along the *verified* cascade.

    An edge does when the cascade leads from its source to its target; all *roots* count as one node.
    """
    of_roots = roots | _downstream(verified, roots)
    reached = {start} | _downstream(edges, {start})
    along = [target in (of_roots if source in roots else _downstream(verified, {source}))
             for source, target in edges if source in reached]  # fmt: skip
    return 2 * sum(along) > len(along)


def _downstream(edges: Collection[Edge], starts: Iterable[str]) -> frozenset[str]:
    """Return all nodes that a path of one or more *edges* leads to from any node in *starts*."""
    graph, index = _graph_of(edges)
    return frozenset(
        graph[node] for name in starts if name in index for node in rustworkx.descendants(graph, index[name])
    )


def _graph_of(edges: Iterable[Edge]) -> tuple[rustworkx.PyDiGraph[str, None], dict[str, int]]:
    """Return the directed graph of *edges* and the node index by name."""
    graph: rustworkx.PyDiGraph[str, None] = rustworkx.PyDiGraph(multigraph=False)
    index: dict[str, int] = {}
    for edge in sorted(edges):
        for name in edge:
            if name not in index:
                index[name] = graph.add_node(name)
        graph.add_edge(index[edge[0]], index[edge[1]], None)
    return graph, index


def _drop_loops_and_load(edges: Sequence[tuple[str, str]], profile: Profile) -> frozenset[tuple[str, str]]:
    """Return *edges* without loops and without those at a load generator, by *profile*."""
    return frozenset(e for e in edges if e[0] != e[1] and not _touches_load(e, profile))


def _touches_load(edge: tuple[str, str], profile: Profile) -> bool:
    """Return whether either end of *edge* is a load generator by *profile*."""
    return any(profile.is_load_generator(end) for end in edge)


def _drop_load_generators(nodes: Iterable[str], profile: Profile) -> frozenset[str]:
    """Return *nodes* without the load generators that *profile* names."""
    return frozenset(node for node in nodes if not profile.is_load_generator(node))
