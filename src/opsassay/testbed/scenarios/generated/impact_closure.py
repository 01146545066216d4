"""Finds the services that fail with a service or store, by a system's definition; generated scenarios build on it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from opsassay.core.schema.system import Step, System

Edge = tuple[str, str]


@dataclass(frozen=True)
class ImpactClosure:
    """The consequences of a failing service or store: *edges* from cause to effect, and the *entry* whose users notice.

    *share* is the share of the entry's requests that fail; (None, 0) when no probe of an entry fails.
    """

    edges: tuple[Edge, ...]
    entry: str | None
    share: float


def reach_of(system: System, origin: str) -> ImpactClosure:
    """Return the consequences in *system* when *origin* (a service or store) fails; optional steps cause no failure."""
    failing, edges = _failing_first(system, origin), set[Edge]()
    if origin in system.stores:
        edges |= {(origin, service) for service, _ in failing}
    grown = True
    while grown:
        grown = False
        for service, operation, step in _required_calls(system):
            callee, route = str(step.call).split(maxsplit=1)
            if (callee, route) in failing:
                edges.add((callee, service))
                grown |= (service, operation) not in failing
                failing.add((service, operation))
    entry, share = _find_failing_probe(system, failing)
    return ImpactClosure(tuple(sorted(edges)), entry, share)


def longest(edges: Iterable[Edge], roots: Iterable[str]) -> int:
    """Return the number of entities on the longest path from one of *roots* along *edges*, 1 without edges."""
    onward: dict[str, list[str]] = defaultdict(list)
    for cause, effect in edges:
        onward[cause].append(effect)

    def from_here(name: str, seen: frozenset[str]) -> int:
        """Return the number of entities on the longest path from *name* that avoids *seen*."""
        return 1 + max((from_here(one, seen | {one}) for one in onward[name] if one not in seen), default=0)

    return max((from_here(root, frozenset({root})) for root in roots), default=1)


def _failing_first(system: System, origin: str) -> set[tuple[str, str]]:
    """Return (service, operation) of all that fail directly with *origin*: its own, or those that use the store."""
    if origin in system.services:
        return {(origin, operation) for operation in system.services[origin].operations}
    engine = system.stores[origin].engine
    return {
        (name, route)
        for name, service in system.services.items()
        for route, operation in service.operations.items()
        if any(
            _uses_engine(step, engine) and system.store_of(step, engine) == origin
            for step in _required(operation.steps)
        )
    }


def _uses_engine(step: Step, engine: str) -> bool:
    """Return whether *step* uses a store of *engine*: postgresql, valkey or nats."""
    needed = {"postgresql": step.sql, "valkey": step.cache, "nats": step.publish}
    return needed[engine] is not None


def _required(steps: Iterable[Step]) -> Iterator[Step]:
    """Yield the steps without which an operation fails, those within parallel steps too."""
    for step in steps:
        if step.optional:
            continue
        if step.parallel is not None:
            yield from _required(step.parallel)
        else:
            yield step
            yield from _required(step.on_miss)


def _required_calls(system: System) -> Iterator[tuple[str, str, Step]]:
    """Yield (service, route, step) of each call that must succeed for the operation *route* of *service*."""
    for name, service in system.services.items():
        for route, operation in service.operations.items():
            yield from ((name, route, step) for step in _required(operation.steps) if step.call is not None)


def _find_failing_probe(system: System, failing: set[tuple[str, str]]) -> tuple[str | None, float]:
    """Return (entry whose probe fails, greatest share of its requests that fail); (None, 0) without one.

    *failing* are (service, operation) pairs.
    """
    found: list[tuple[float, str]] = []
    for entry, path in system.probe_paths().items():
        kinds = [kind for kind in system.load.mix if kind.request.split()[0] == entry]
        lost = sum(kind.weight for kind in kinds if (entry, kind.request.split(maxsplit=1)[1]) in failing)
        if (entry, f"GET {path}") in failing:
            found.append((lost / sum(kind.weight for kind in kinds), entry))
    share, entry = max(found, default=(0.0, ""))
    return entry or None, share
