"""Selects the annotated cases of a suite: two-pass stratified selection with structural screens (OpenRCA 2.0, A.2)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import rustworkx

from opsassay.core.schema.causal_graph import Annotation, CausalGraph
from opsassay.core.schema.faults import fault_type
from opsassay.core.schema.incident import Label

NOTHING_BROKEN = "nothing broken"
"""The stratum of fault-free cases, in which the right answer is that nothing is broken."""

SMALLEST_DEPTH = 2
"""Least depth of a cascade in edges between services; the paper also leaves out depth 1 and less."""


@dataclass(frozen=True)
class SuiteCandidate:
    """An annotated case and its properties for the selection; *calm*: the disturbance of a fault-free case, else ''."""

    id: str
    system: str
    annotation: Annotation
    calm: str = ""

    @property
    def stratum(self) -> tuple[str, str, str]:
        """(system, chaos families, root services); in a fault-free case the last is its disturbance."""
        if self.calm:
            return self.system, NOTHING_BROKEN, self.calm
        graph = self.annotation.graph
        return self.system, families(graph), "+".join(sorted(graph.root_services()))

    @property
    def size(self) -> tuple[int, int, int]:
        """(calls on the longest path between services, edges, services), by which candidates are sorted."""
        graph = self.annotation.graph
        return depth(graph), len(graph.service_edges()), len(graph.services())


@dataclass(frozen=True)
class Selection:
    """The cases taken, in the order of their ids, and why each other one was left out."""

    taken: tuple[SuiteCandidate, ...]
    left_out: dict[str, str]


def families(graph: CausalGraph) -> str:
    """Return the chaos families (categories) of the faults in *graph*, joined by "+"."""
    return "+".join(sorted({fault_type(name).category.value for name in graph.fault_types}))


def depth(graph: CausalGraph) -> int:
    """Return the number of edges on the longest path between services, 0 for a graph with a cycle."""
    graph_ = _build_service_graph(graph)
    return rustworkx.dag_longest_path_length(graph_) if rustworkx.is_directed_acyclic_graph(graph_) else 0


def _build_service_graph(graph: CausalGraph) -> rustworkx.PyDiGraph[str, None]:
    """Return the causal graph between services as a directed graph of rustworkx."""
    made: rustworkx.PyDiGraph[str, None] = rustworkx.PyDiGraph()
    edges = sorted(graph.service_edges())
    index = {service: made.add_node(service) for service in sorted(graph.services().union(*edges))}
    made.add_edges_from([(index[a], index[b], None) for a, b in edges])
    return made


def unfit(candidate: SuiteCandidate) -> str | None:
    """Return the reason why *candidate*, an annotated case, cannot be in a suite; None when it can."""
    annotation, graph = candidate.annotation, candidate.annotation.graph
    if candidate.calm:
        return f"nothing was broken, and it is {annotation.label.value}" if annotation.label is Label.DRIFTED else None
    if annotation.label is not Label.ATTRIBUTED:
        return f"it is {annotation.label.value}"
    if not rustworkx.is_directed_acyclic_graph(_build_service_graph(graph)):
        return "its services cause each other in a cycle"
    if depth(graph) < SMALLEST_DEPTH:
        return f"its cascade is {depth(graph)} services deep, and {SMALLEST_DEPTH} are needed"
    if entrance := sorted(graph.root_services() & graph.alarm_services()):
        return f"its root {', '.join(entrance)} is where users enter"
    return None


def curate(candidates: Iterable[SuiteCandidate], *, per_stratum: int = 3, size: int | None = None) -> Selection:
    """Select at most *per_stratum* cases per (system, chaos family, root service), *size* in all.

    The first pass takes the largest case of every stratum, the second fills up; both by longest path, edges and
    services, largest first, then by id. Before them comes one case without a fault of every system that has some, up to
    half of *size*: a suite in which something is always broken rewards solvers that always accuse.
    """
    left_out: dict[str, str] = {}
    fit: list[SuiteCandidate] = []
    for candidate in candidates:
        reason = unfit(candidate)
        if reason is None:
            fit.append(candidate)
        else:
            left_out[candidate.id] = reason
    fit.sort(key=lambda c: (*(-n for n in c.size), c.id))
    most = len(fit) if size is None else size
    taken: dict[str, SuiteCandidate] = {}
    counts: Counter[tuple[str, str, str]] = Counter()
    calm = {c.system: c for c in reversed(fit) if c.calm}
    _take_candidates([calm[system] for system in sorted(calm)], taken, counts, 1, most // 2)
    for cap in (1, per_stratum):
        _take_candidates(fit, taken, counts, cap, most)
    for candidate in fit:
        if candidate.id not in taken:
            full = counts[candidate.stratum] >= per_stratum
            left_out[candidate.id] = (
                f"its stratum has {per_stratum} already" if full else f"the suite has {most} already"
            )
    return Selection(tuple(taken[id_] for id_ in sorted(taken)), dict(sorted(left_out.items())))


def _take_candidates(
    fit: Sequence[SuiteCandidate],
    selected: dict[str, SuiteCandidate],
    counts: Counter[tuple[str, str, str]],
    cap: int,
    most: int,
) -> None:
    """Add candidates of *fit*, in order, to *selected* and *counts*: *most* in all, *cap* for each stratum."""
    for candidate in fit:
        if len(selected) < most and candidate.id not in selected and counts[candidate.stratum] < cap:
            selected[candidate.id] = candidate
            counts[candidate.stratum] += 1
