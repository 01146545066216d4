"""The entities of a system and their edges, ownership and calls; aliases are one entity."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

import polars as pl
import rustworkx

from opsassay.telemetry.calls import service_calls
from opsassay.telemetry.datapack import Datapack
from opsassay.telemetry.schema import PERIODS

EdgeType = Literal["owns", "calls"]


@dataclass(frozen=True, eq=False)
class Topology:
    """Directed edges by type: (owner, owned) and (caller, callee); *aliases* are sets of names of one entity."""

    owns: frozenset[tuple[str, str]] = frozenset()
    calls: frozenset[tuple[str, str]] = frozenset()
    entities: frozenset[str] = frozenset()
    aliases: tuple[frozenset[str], ...] = ()
    _distances: dict[tuple[str, float], Mapping[str, float]] = field(default_factory=dict, repr=False)

    def canonical_entity(self, entity: str) -> str:
        """Return the representative of *entity* and its aliases; *entity* itself without aliases."""
        return self._representative_of_alias.get(entity, entity)

    def all_of(self, entities: Iterable[str]) -> tuple[str, ...]:
        """Return the canonical names of *entities* in order, without duplicates."""
        return tuple(dict.fromkeys(self.canonical_entity(entity) for entity in entities))

    def distance(self, source: str, target: str, calls_cost: float) -> float:
        """Return the cost of the cheapest walk from *source* to *target*, edges taken either way; infinite without one.

        A step costs c * `subtree_size` of the node that is entered, c being 1 along owns and *calls_cost* along calls
        (ITBench, F.1.3).
        """
        source, target = self.canonical_entity(source), self.canonical_entity(target)
        if source not in self._index_of_entity or target not in self._index_of_entity:
            return math.inf
        key = (source, calls_cost)
        if key not in self._distances:
            self._distances[key] = self._distances_from(source, calls_cost)
        return self._distances[key].get(target, math.inf)

    def subtree_size(self, entity: str) -> int:
        """Return the number of entities reachable from *entity* along directed edges, itself included."""
        node = self._index_of_entity[self.canonical_entity(entity)]
        return 1 + len(rustworkx.descendants(self._directed_graph, node) - {node})

    @cached_property
    def _representative_of_alias(self) -> dict[str, str]:
        """Map each alias to the first name of its group; groups that share a name are merged."""
        graph: rustworkx.PyGraph[str, None] = rustworkx.PyGraph()
        names = sorted({name for group in self.aliases for name in group})
        index = {name: graph.add_node(name) for name in names}
        for group in filter(None, self.aliases):
            first, *others = sorted(group)
            graph.add_edges_from_no_data([(index[first], index[other]) for other in others])
        parts = [sorted(graph[i] for i in part) for part in rustworkx.connected_components(graph)]
        return {name: part[0] for part in parts for name in part}

    @cached_property
    def _canonical_edges(self) -> tuple[tuple[str, str, EdgeType], ...]:
        """The sorted (from, to, kind) edges between canonical entities, without loops."""
        typed: list[tuple[str, str, EdgeType]] = [(*edge, "owns") for edge in self.owns]
        typed += [(*edge, "calls") for edge in self.calls]
        joined = {(self.canonical_entity(a), self.canonical_entity(b), kind) for a, b, kind in typed}
        return tuple(sorted(edge for edge in joined if edge[0] != edge[1]))

    @cached_property
    def _index_of_entity(self) -> dict[str, int]:
        """Map each canonical entity to its node index, by sorted order."""
        ends = {end for a, b, _ in self._canonical_edges for end in (a, b)}
        return {
            name: place for place, name in enumerate(sorted(ends | {self.canonical_entity(e) for e in self.entities}))
        }

    @cached_property
    def _directed_graph(self) -> rustworkx.PyDiGraph[str, None]:
        """The edges of both kinds as a graph, owner to owned and caller to callee."""
        graph: rustworkx.PyDiGraph[str, None] = rustworkx.PyDiGraph()
        graph.add_nodes_from(list(self._index_of_entity))
        graph.add_edges_from_no_data(
            [(self._index_of_entity[a], self._index_of_entity[b]) for a, b, _ in self._canonical_edges]
        )
        return graph

    def _distances_from(self, source: str, calls_cost: float) -> Mapping[str, float]:
        """Return the lowest cost from *source* to each reachable entity, calls at *calls_cost* (see `distance`)."""
        sizes = {name: self.subtree_size(name) for name in self._index_of_entity}
        graph: rustworkx.PyDiGraph[str, float] = rustworkx.PyDiGraph()
        graph.add_nodes_from(list(self._index_of_entity))
        for a, b, kind in self._canonical_edges:
            cost = 1.0 if kind == "owns" else calls_cost
            graph.add_edge(self._index_of_entity[a], self._index_of_entity[b], cost * sizes[b])
            graph.add_edge(self._index_of_entity[b], self._index_of_entity[a], cost * sizes[a])
        names = list(self._index_of_entity)
        found = rustworkx.dijkstra_shortest_path_lengths(graph, self._index_of_entity[source], float)
        return {names[node]: cost for node, cost in found.items()} | {source: 0.0}


def topology_of(view: Datapack, normal_form: Callable[[str], str] = str) -> Topology:
    """Return calls between services, and pods that services own, in *view*; *normal_form* maps service names."""
    calls = frozenset(
        (normal_form(caller), normal_form(callee)) for caller, callee, _ in service_calls(view).iter_rows()
    )
    pods = [
        view.scan(period, modality).select("service_name", "attr.k8s.pod.name").drop_nulls().unique()
        for period in PERIODS
        for modality in ("traces", "metrics")
    ]
    services = frozenset(view.services())
    owned = pl.concat(pods).unique().sort("service_name", "attr.k8s.pod.name").collect()
    owns = frozenset((normal_form(service), pod) for service, pod in owned.iter_rows() if service in services)
    return Topology(owns=owns, calls=calls, entities=frozenset(map(normal_form, services)))


def chains(edges: Iterable[tuple[str, str]], roots: Sequence[str], at_most: int) -> tuple[tuple[str, ...], ...]:
    """Return the cascade *edges* (cause, effect) as chains of names from a root to a leaf; at most *at_most*.

    Cycles are contracted: entities of one cycle follow each other by name within a chain. A root without an edge is a
    chain of its own; without *roots*, chains start at nodes without a cause.
    """
    graph, index = _build_graph(edges, roots)
    parts = [sorted(graph[node] for node in part) for part in rustworkx.strongly_connected_components(graph)]
    part_of = {name: place for place, part in enumerate(parts) for name in part}
    onward: dict[int, set[int]] = {}
    for a, b in sorted({(part_of[graph[a]], part_of[graph[b]]) for a, b in graph.edge_list()}):
        if a != b:
            onward.setdefault(a, set()).add(b)
    caused = {b for targets in onward.values() for b in targets}
    first = [part_of[root] for root in roots if root in index] or [p for p in range(len(parts)) if p not in caused]
    found: list[tuple[str, ...]] = []
    waiting: list[tuple[int, ...]] = [(place,) for place in sorted(set(first), key=lambda p: parts[p], reverse=True)]
    while waiting and len(found) < at_most:
        path = waiting.pop()
        further = sorted(onward.get(path[-1], ()), key=lambda p: parts[p], reverse=True)
        if further:
            waiting += [(*path, place) for place in further]
        else:
            found.append(tuple(name for place in path for name in parts[place]))
    return tuple(found)


def levels(edges: Iterable[tuple[str, str]], roots: Sequence[str]) -> dict[str, int]:
    """Return each entity's level: by *edges* (cause, effect) 1 for a leaf, else 1 above its effects; one per cycle."""
    graph, _ = _build_graph(edges, roots)
    level: dict[str, int] = {}
    # Strongly connected components come with effects before causes.
    for part in rustworkx.strongly_connected_components(graph):
        names = {graph[node] for node in part}
        effects = {graph[b] for node in part for b in graph.successor_indices(node)} - names
        highest = max((level[name] for name in effects), default=0)
        level |= dict.fromkeys(names, highest + 1)
    return level


def _build_graph(
    edges: Iterable[tuple[str, str]], roots: Sequence[str]
) -> tuple[rustworkx.PyDiGraph[str, None], dict[str, int]]:
    """Return the directed graph of *edges* without loops, all *roots* included, and the node index by name."""
    graph: rustworkx.PyDiGraph[str, None] = rustworkx.PyDiGraph(multigraph=False)
    pairs = sorted({(a, b) for a, b in edges if a != b})
    index = {name: graph.add_node(name) for name in sorted({end for pair in pairs for end in pair} | set(roots))}
    graph.add_edges_from_no_data([(index[a], index[b]) for a, b in pairs])
    return graph, index
