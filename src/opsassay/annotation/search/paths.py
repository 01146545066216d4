"""The search: breadth first from the root along rules, over (component, state), each hop tested by the gates.

Every (component, state) is expanded once, so memory does not grow with the number of paths; these are enumerated from
the accepted hops afterwards, up to a limit.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from pydantic import Field

from opsassay.annotation.search.hops import Hop, Place, Refusal, Terrain, steps
from opsassay.core.schema.base import Written


class SearchLimits(Written):
    """Bounds of the search; a hop is one application of a rule."""

    hops: int = Field(default=5, ge=1, le=20, description="rules in a row; deep systems need 7")
    visits: int = Field(default=2, ge=1, description="states in which a path may come by the same component")
    paths: int = Field(default=200, ge=1, description="paths that are read off; edges are complete regardless")
    places: int = Field(default=20_000, ge=10, description="components in a state that are held in memory")
    memory_mb: int | None = Field(
        default=None,
        ge=1,
        description="memory for one datapack: of a larger one a sample of traces is read; what is free when left out",
    )


@dataclass(frozen=True)
class Rejected:
    """The path to a refused step (components, root first) with the first gate that it failed."""

    path: tuple[str, ...]
    gate: str
    reason: str


@dataclass(frozen=True)
class Found:
    """The result of a search; *capped*: a limit ended it before all paths were found."""

    hops: tuple[Hop, ...]
    paths: tuple[tuple[Place, ...], ...]
    rejected: tuple[Rejected, ...]
    capped: bool = False


@dataclass(frozen=True)
class _Explored:
    hops: dict[tuple[Place, Place], Hop]
    depth: dict[Place, int]
    came: dict[Place, Place]
    refusals: tuple[Refusal, ...]
    capped: bool


def search(terrain: Terrain, alarms: frozenset[Place], limits: SearchLimits) -> Found:
    """Return hops and paths accepted in *terrain* from the root to *alarms* (spans in a state), and refused paths."""
    seen = _explore(terrain, limits)
    kept = _hops_towards(seen.hops, {p for p in seen.depth if p in alarms}, seen.depth, limits)
    paths = tuple(_enumerate_paths(terrain.root, kept, alarms, limits))
    on_paths = {pair for path in paths for pair in pairwise(path)}
    rejected = (*_list_refused_paths(seen), *_paths_without_users(seen, {p for path in paths for p in path}, limits))
    hops = tuple(h for h in kept if (h.source, h.target) in on_paths)
    return Found(hops, paths, rejected, capped=seen.capped or len(paths) >= limits.paths)


def _explore(terrain: Terrain, limits: SearchLimits) -> _Explored:
    """Take every hop from each (component, state) reached, breadth first from the root of *terrain*, up to *limits*."""
    hops: dict[tuple[Place, Place], Hop] = {}
    refusals: dict[tuple[str, str, str], Refusal] = {}
    depth: dict[Place, int] = {terrain.root: 0}
    came: dict[Place, Place] = {}
    visits: dict[str, int] = {}
    queue = deque([terrain.root])
    while queue and len(depth) < limits.places:
        place = queue.popleft()
        if depth[place] >= limits.hops:
            continue
        for step in steps(terrain, place):
            if isinstance(step, Refusal):
                refusals.setdefault((step.source[0], step.component, step.gate), step)
                continue
            hops.setdefault((step.source, step.target), step)
            if step.target not in depth and visits.get(step.target[0], 0) < limits.visits:
                visits[step.target[0]] = visits.get(step.target[0], 0) + 1
                depth[step.target], came[step.target] = depth[place] + 1, place
                queue.append(step.target)
    return _Explored(hops, depth, came, tuple(refusals.values()), capped=bool(queue))


def _route_to(explored: _Explored, place: Place) -> tuple[str, ...]:
    """Return the components, root first, on the path by which *place* was first reached."""
    route = [place]
    while route[-1] in explored.came:
        route.append(explored.came[route[-1]])
    return tuple(dict.fromkeys(component for component, _ in reversed(route)))


def _list_refused_paths(explored: _Explored) -> Iterator[Rejected]:
    """Yield the path to each component whose hops were all refused, with the gate that failed."""
    reached = {component for component, _ in explored.depth}
    for refusal in explored.refusals:
        if refusal.component not in reached:
            yield Rejected((*_route_to(explored, refusal.source), refusal.component), refusal.gate, refusal.reason)


def _paths_without_users(explored: _Explored, on_paths: set[Place], limits: SearchLimits) -> Iterator[Rejected]:
    """Yield the paths that passed every gate, ended where users notice nothing, and are not part of *on_paths*."""
    leads_on = {source for source, _ in explored.hops}
    named: set[str] = {component for component, _ in on_paths}
    for place in explored.depth:
        if place in leads_on or place[0] in named or place not in explored.came:
            continue
        named.add(place[0])
        full = explored.depth[place] >= limits.hops
        gate, why = ("hops", f"the limit of {limits.hops} hops") if full else ("surface", "no user felt it there")
        yield Rejected(_route_to(explored, place), gate, f"the way ends at {place[0]} ({place[1]}): {why}")


def _hops_towards(
    hops: Mapping[tuple[Place, Place], Hop], ends: set[Place], depth: Mapping[Place, int], limits: SearchLimits
) -> tuple[Hop, ...]:
    """Return the sorted hops on a path of at most limits.hops from the root to *ends*; *depth*: hops from the root."""
    into: dict[Place, list[Place]] = {}
    for source, target in hops:
        into.setdefault(target, []).append(source)
    left = dict.fromkeys(ends, 0)
    queue = deque(sorted(ends))
    while queue:
        place = queue.popleft()
        for source in into.get(place, ()):
            if source not in left:
                left[source] = left[place] + 1
                queue.append(source)
    within = [h for (s, t), h in hops.items() if t in left and s in depth and depth[s] + 1 + left[t] <= limits.hops]
    return tuple(sorted(within, key=lambda h: (h.source, h.target)))


def _enumerate_paths(
    root: Place, hops: Sequence[Hop], alarms: frozenset[Place], limits: SearchLimits
) -> Iterator[tuple[Place, ...]]:
    """Yield simple paths along *hops* from *root* to any of *alarms*, depth first in sorted order, up to the limit."""
    after: dict[Place, list[Place]] = {}
    for hop in hops:
        after.setdefault(hop.source, []).append(hop.target)
    stack: list[tuple[Place, ...]] = [(root,)]
    found = steps_taken = 0
    while stack and found < limits.paths and steps_taken < limits.paths * limits.places:
        path = stack.pop()
        steps_taken += 1
        if len(path) > 1 and path[-1] in alarms:
            found += 1
            yield path
        if len(path) <= limits.hops:
            names = [place[0] for place in path]
            fresh = [p for p in after.get(path[-1], ()) if p not in path and names.count(p[0]) < limits.visits]
            stack.extend((*path, place) for place in sorted(fresh, reverse=True))
