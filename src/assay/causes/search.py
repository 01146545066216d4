"""The search: from the injection point along rules, over (component, state, onset), each hop through the gates.

Every (component, state) is expanded once, so memory is bounded by the active entities and not by the number of paths;
paths are read off the accepted hops afterwards, up to a cap.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from assay.causes.carried import Carriage, CarriedLimits
from assay.causes.rules import FAILURE, LATENCY, Rule
from assay.causes.states import NANO, NodeState
from assay.model.base import Noun

Place = tuple[str, str]
"""A component in a state (one of the paper's names)."""


class SearchLimits(Noun):
    """Bounds of the search; a hop is one application of a rule."""

    hops: int = 5
    visits: int = 2
    paths: int = 200


@dataclass(frozen=True)
class Hop:
    """An accepted step, with the rule and what carried it."""

    source: Place
    target: Place
    rule: Rule
    evidence: dict[str, float | int | str]


@dataclass(frozen=True)
class Refusal:
    """A step that failed a gate: deviation, rule, temporal or carried."""

    source: Place
    component: str
    gate: str
    reason: str


@dataclass(frozen=True)
class Found:
    """What the search accepted and refused."""

    hops: tuple[Hop, ...]
    paths: tuple[tuple[Place, ...], ...]
    refused: tuple[Refusal, ...]


@dataclass(frozen=True, eq=False)
class Terrain:
    """What the search walks on: node states (span names without the type), neighbours, and what was carried."""

    root: Place
    own: tuple[str, ...]
    states: Mapping[str, NodeState]
    callers: Mapping[str, Sequence[str]]
    callees: Mapping[str, Sequence[str]]
    carriage: Carriage
    rules: tuple[Rule, ...]
    began_ns: int


def search(terrain: Terrain, alarms: frozenset[Place], limits: SearchLimits) -> Found:
    """Return accepted hops on a way from the root to one of *alarms* (spans in a state), the paths, and the refusals."""
    hops: dict[tuple[Place, Place], Hop] = {}
    refused: dict[tuple[str, str, str], Refusal] = {}
    depth: dict[Place, int] = {terrain.root: 0}
    visits: dict[str, int] = {}
    queue = deque([terrain.root])
    while queue:
        place = queue.popleft()
        if depth[place] >= limits.hops:
            continue
        for step in _steps(terrain, place):
            if isinstance(step, Refusal):
                refused.setdefault((step.source[0], step.component, step.gate), step)
                continue
            hops[(step.source, step.target)] = step
            known = step.target in depth
            if not known and visits.get(step.target[0], 0) < limits.visits:
                visits[step.target[0]] = visits.get(step.target[0], 0) + 1
                depth[step.target] = depth[place] + 1
                queue.append(step.target)
    kept = _towards(hops, {p for p in depth if p in alarms}, depth, limits)
    paths = tuple(_paths(terrain.root, kept, alarms, limits))
    on_paths = {pair for path in paths for pair in pairwise(path)}
    return Found(tuple(h for h in kept if (h.source, h.target) in on_paths), paths, tuple(refused.values()))


def _towards(
    hops: Mapping[tuple[Place, Place], Hop], ends: set[Place], depth: Mapping[Place, int], limits: SearchLimits
) -> tuple[Hop, ...]:
    """Return the hops from which an end can be reached within the hop limit."""
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


def _paths(
    root: Place, hops: Sequence[Hop], alarms: frozenset[Place], limits: SearchLimits
) -> Iterator[tuple[Place, ...]]:
    """Yield simple paths from the root to alarms, depth first in sorted order, up to the cap."""
    after: dict[Place, list[Place]] = {}
    for hop in hops:
        after.setdefault(hop.source, []).append(hop.target)
    stack: list[tuple[Place, ...]] = [(root,)]
    found = 0
    while stack and found < limits.paths:
        path = stack.pop()
        if len(path) > 1 and path[-1] in alarms:
            found += 1
            yield path
        if len(path) <= limits.hops:
            names = [place[0] for place in path]
            fresh = [p for p in after.get(path[-1], ()) if p not in path and names.count(p[0]) < limits.visits]
            stack.extend((*path, place) for place in sorted(fresh, reverse=True))


def _steps(terrain: Terrain, place: Place) -> Iterator[Hop | Refusal]:
    kind, _, name = place[0].partition("|")
    if kind != "span":
        for node in terrain.own:
            yield from _first_hop(terrain, place, kind, node)
        return
    for caller in terrain.callers.get(name, ()):
        yield from _along(terrain, place, name, caller, forward=False)
    for callee in terrain.callees.get(name, ()):
        if (name, callee) in terrain.carriage.starved:
            yield from _along(terrain, place, name, callee, forward=True)


def _first_hop(terrain: Terrain, place: Place, kind: str, node: str) -> Iterator[Hop | Refusal]:
    def carries(_: Rule, reason: str) -> dict[str, float | int | str] | None:
        return _at_root(terrain.carriage, node, reason)

    yield from _apply(terrain, place, f"span|{node}", kind, carries, forward=False)


def _at_root(carriage: Carriage, node: str, reason: str) -> dict[str, float | int | str] | None:
    if reason in LATENCY and carriage.slow(node):
        return {"explained_share": round(carriage.latency[node], 3)}
    if reason in FAILURE and carriage.failing(node):
        return {"carried_failures": carriage.errors[node][0]}
    if reason in ("missing", "inj_affected") and node in carriage.at_links:
        return {"at": "the faulted end"}
    return None


def _along(terrain: Terrain, place: Place, source: str, target: str, *, forward: bool) -> Iterator[Hop | Refusal]:
    carriage = terrain.carriage
    pair = (source, target)

    def carries(_: Rule, reason: str) -> dict[str, float | int | str] | None:
        if forward:
            share = carriage.starved.get(pair, 0.0)
            return {"missing_share": round(share, 3)} if share >= CarriedLimits.STARVED_SHARE else None
        if reason in LATENCY and carriage.slow(target):
            share = carriage.latency_edges.get(pair, 0.0)
            if share > 0 and share >= CarriedLimits.EDGE_SHARE * carriage.latency[target]:
                return {"explained_share": round(share, 3)}
            return None
        if reason in FAILURE and carriage.failing(target):
            failures = carriage.error_edges.get(pair, 0)
            enough = failures and failures >= CarriedLimits.EDGE_SHARE * carriage.errors[target][0]
            return {"carried_failures": failures} if enough else None
        return None

    yield from _apply(terrain, place, f"span|{target}", "span", carries, forward=forward)


Carries = Callable[[Rule, str], "dict[str, float | int | str] | None"]


def _apply(
    terrain: Terrain, place: Place, target: str, kind: str, carries: Carries, *, forward: bool
) -> Iterator[Hop | Refusal]:
    """Yield the hops that some rule admits and that are carried, or else the first gate that refused."""
    node = terrain.states.get(target.removeprefix("span|"))
    if node is None or not node.onsets:
        yield Refusal(place, target, "deviation", f"{target} behaves as before")
        return
    rules = [r for r in terrain.rules if r.source == kind and r.forward == forward and _admits(r, place[1])]
    options = [(r, reason) for r in rules for reason in sorted(r.effects & node.reasons)]
    if not options:
        yield Refusal(place, target, "rule", f"no rule lets {place[1]} become {', '.join(sorted(node.reasons))}")
        return
    timely = [(r, e) for r, e in options if node.onsets[e] + node.width_ns + r.tolerance_s * NANO >= terrain.began_ns]
    if not timely:
        yield Refusal(place, target, "temporal", f"{target} deviated before the fault began")
        return
    accepted: set[str] = set()
    for rule, reason in timely:
        evidence = None if reason in accepted else carries(rule, reason)
        if evidence is not None:
            accepted.add(reason)
            yield Hop(place, (target, reason), rule, evidence)
    if not accepted:
        yield Refusal(place, target, "carried", f"what {target} suffers did not come from {place[0]}")


def _admits(rule: Rule, state: str) -> bool:
    return ("*" in rule.states or state in rule.states) and not rule.through_healthy
