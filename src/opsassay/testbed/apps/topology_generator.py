"""The bare shape of a generated system: services in levels, their operations, who calls and who publishes to whom.

Every operation is called from the level right above it, so nothing is dead and the depth is the number of levels. Calls go
to deeper levels only, so every request ends; a mutual dependency adds an operation that calls nobody.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable
from dataclasses import dataclass, field

CALLS_PER_REQUEST = 12.0
"""Where no further calls are added; the tree below an entry of many services may be larger by itself."""

ROUTES = (
    "GET /list",
    "GET /one",
    "POST /create",
    "PUT /change",
    "GET /summary",
    "POST /check",
    "GET /recent",
    "POST /search",
)
INNER_ROUTES = ROUTES[:6]
MUTUAL_ROUTE = "GET /owner"
EACH_BEHIND_QUEUE = 6

Target = tuple[str, str]


@dataclass
class Routine:
    """What an operation or a consumer passes on: calls to (service, route), messages by subject."""

    calls: list[Target] = field(default_factory=list)
    publishes: list[str] = field(default_factory=list)


@dataclass
class Draft:
    """A service in the making; *level* 0 is the entry, None stands behind the queue."""

    name: str
    level: int | None
    operations: dict[str, Routine] = field(default_factory=dict)
    consumes: dict[str, Routine] = field(default_factory=dict)


def _layered_sizes(count: int, chance: random.Random) -> list[int]:
    """Return how many of *count* services are on each level of a layered system."""
    return _spread(count, min(6, max(3, round(math.sqrt(count)))), chance)


def _wide_sizes(count: int, _: random.Random) -> list[int]:
    """Return how many of *count* services are on each level of a wide system."""
    middle = max(1, count // 5)
    return [1, middle, count - 1 - middle]


def _chain_sizes(count: int, chance: random.Random) -> list[int]:
    """Return how many of *count* services are on each level of a chain."""
    return _spread(count, min(10, max(3, round(0.7 * count))), chance)


def _hub_sizes(count: int, chance: random.Random) -> list[int]:
    """Return how many of *count* services are on each level of a system with a hub."""
    hubs = max(1, count // 12)
    return [*_spread(count - hubs, 3 if count >= 8 else 2, chance), hubs]


def _spread(count: int, levels: int, chance: random.Random) -> list[int]:
    """Split *count* services into *levels* levels: one entry, at least one service in each other, the rest at random."""
    sizes = [1] * levels
    for _ in range(count - levels):
        sizes[chance.randrange(1, levels)] += 1
    return sizes


LEVELS: dict[str, Callable[[int, random.Random], list[int]]] = {
    "layered": _layered_sizes, "wide": _wide_sizes, "chain": _chain_sizes, "hub": _hub_sizes,
}  # fmt: skip
FURTHER_CALLS = {"layered": 0.6, "wide": 0.2, "chain": 0.1, "hub": 0.3}
"""Further calls per service beyond the tree that makes everything reachable."""


def behind_queue(services: int) -> int:
    """Return how many of *services* are behind the queue; 0 in the smallest systems."""
    return services // EACH_BEHIND_QUEUE


def room_for_mutual(services: int, shape: str) -> int:
    """Return how many mutual dependencies fit into a system: one for every two levels below the entry."""
    return len(_upper_levels(len(LEVELS[shape](services - behind_queue(services), random.Random(0)))))  # noqa: S311


def _upper_levels(levels: int) -> range:
    """Return the levels where a mutual dependency may begin; it uses the next one too, so that no two share a service."""
    return range(1, levels - 1, 2)


def sketch(names: list[str], shape: str, mutual_pairs: int, chance: random.Random) -> list[Draft]:
    """Return drafts of the services *names*, connected in *shape*: the entry first, consumers of the queue last."""
    behind = behind_queue(len(names))
    levels = _draw_levels(names[: len(names) - behind], shape, chance)
    for above, below in itertools.pairwise(levels):
        _connect(above, below, chance)
    _add_further_calls(levels, shape, chance)
    _add_mutual(levels, mutual_pairs, chance)
    drafts = [draft for level in levels for draft in level]
    return drafts + _add_consumers(drafts, names[len(names) - behind :], levels[-1], chance)


def calls_below(drafts: list[Draft]) -> dict[Target, int]:
    """Return operation to the number of requests that one request to it causes, itself included."""
    operations = {(draft.name, route): routine for draft in drafts for route, routine in draft.operations.items()}
    cost: dict[Target, int] = {}

    def count(target: Target) -> int:
        if target not in cost:
            cost[target] = 1 + sum(count(callee) for callee in operations[target].calls)
        return cost[target]

    for target in operations:
        count(target)
    return cost


def _draw_levels(names: list[str], shape: str, chance: random.Random) -> list[list[Draft]]:
    """Return drafts of the services *names*, in levels from the entrance inwards, with operations but no calls."""
    left = iter(names)
    sizes = LEVELS[shape](len(names), chance)
    levels = [[Draft(next(left), level) for _ in range(size)] for level, size in enumerate(sizes)]
    entrances = min(len(ROUTES), max(2, math.ceil(len(names) / 4)))
    levels[0][0].operations = {route: Routine() for route in ROUTES[:entrances]}
    for level in levels[1:]:
        # A narrow level with fewer operations than there are entrances would make every request a visit to everybody.
        fewest = min(len(INNER_ROUTES), math.ceil(entrances / len(level)))
        for draft in level:
            count = max(fewest, chance.choices((1, 2, 3), (5, 4, 1))[0])
            draft.operations = {route: Routine() for route in sorted(chance.sample(INNER_ROUTES, count))}
    return levels


def _list_targets(level: list[Draft]) -> list[Target]:
    """Return (service, route) of each operation of the services in *level*."""
    return [(draft.name, route) for draft in level for route in draft.operations]


def _connect(upper_level: list[Draft], lower_level: list[Draft], chance: random.Random) -> None:
    """Add a call to every operation of *lower_level*, and from every one of the entry level."""
    callers = [routine for draft in upper_level for routine in draft.operations.values()]
    for target in chance.sample(_list_targets(lower_level), len(_list_targets(lower_level))):
        few = chance.sample(callers, min(2, len(callers)))
        min(few, key=lambda routine: len(routine.calls)).calls.append(target)
    for routine in callers if upper_level[0].level == 0 else ():
        if not routine.calls:
            routine.calls.append(chance.choice(_list_targets(lower_level)))


def _add_further_calls(levels: list[list[Draft]], shape: str, chance: random.Random) -> None:
    """Add calls to deeper levels, in a hub to the deepest, while the requests that one causes stay limited."""
    drafts = [draft for level in levels for draft in level]
    if shape == "hub":
        for draft in (draft for level in levels[1:-2] for draft in level):
            _call(draft, levels[-1], drafts, chance)
    for _ in range(round(FURTHER_CALLS[shape] * len(drafts))):
        upper = chance.randrange(len(levels) - 1)
        deeper = levels[-1] if shape == "hub" else levels[chance.randrange(upper + 1, len(levels))]
        _call(chance.choice(levels[upper]), deeper, drafts, chance)


def _call(caller: Draft, callees: list[Draft], drafts: list[Draft], chance: random.Random) -> None:
    """Let an operation of *caller* call one of *callees*, unless it does already or the entry causes too many requests."""
    routine = chance.choice(list(caller.operations.values()))
    target = chance.choice(_list_targets(callees))
    if target in routine.calls:
        return
    routine.calls.append(target)
    cost = calls_below(drafts)
    entrances = _list_targets(drafts[:1])
    if sum(cost[entrance] for entrance in entrances) / len(entrances) > CALLS_PER_REQUEST:
        routine.calls.remove(target)


def _add_mutual(levels: list[list[Draft]], pair_count: int, chance: random.Random) -> None:
    """Let *pair_count* callees call their caller back, on different levels, so that no larger circle arises."""
    for level in sorted(chance.sample(_upper_levels(len(levels)), pair_count)):
        below = {draft.name: draft for draft in levels[level + 1]}
        pairs = [
            (caller, below[name], route)
            for caller in levels[level]
            for routine in caller.operations.values()
            for name, route in routine.calls
            if name in below
        ]
        caller, callee, route = chance.choice(pairs)
        caller.operations[MUTUAL_ROUTE] = Routine()
        callee.operations[route].calls.append((caller.name, MUTUAL_ROUTE))


def _add_consumers(drafts: list[Draft], names: list[str], deepest: list[Draft], chance: random.Random) -> list[Draft]:
    """Return services behind the queue: some share a subject, some pass messages on, some call the *deepest* level."""
    consumers: list[Draft] = []
    publishers = [
        (draft.name, routine)
        for draft in drafts
        if draft not in deepest
        for route, routine in draft.operations.items()
        if route != MUTUAL_ROUTE
    ]
    subjects: list[str] = []
    for name in names:
        if subjects and chance.random() < 0.3:
            subject = chance.choice(subjects)
        else:
            earlier = [(draft.name, routine) for draft in consumers for routine in draft.consumes.values()]
            source, publisher = chance.choice(earlier if earlier and chance.random() < 0.3 else publishers)
            subject = f"{source}-events-{len(subjects) + 1}"
            publisher.publishes.append(subject)
            subjects.append(subject)
        calls = [chance.choice(_list_targets(deepest))] if chance.random() < 0.4 else []
        consumers.append(Draft(name, None, consumes={subject: Routine(calls)}))
    return consumers
