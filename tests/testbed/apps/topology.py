"""What a System's YAML says about its shape, counted from its steps: an oracle for the shipped and the generated apps."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from functools import cache
from graphlib import CycleError, TopologicalSorter
from typing import TypeVar

from opsassay.core.schema.system import Operation, System

Place = tuple[str, str]  # service, and operation or 'process SUBJECT'
Node = TypeVar("Node", bound=Hashable)

POSTGRESQL_CONNECTIONS = 190  # the server takes 200 and keeps a few for itself


def reach(graph: Mapping[Node, Iterable[Node]], begun: Iterable[Node]) -> set[Node]:
    """Return *begun* and all that can be reached from there."""
    found: set[Node] = set()
    open_ = list(begun)
    while open_:
        node = open_.pop()
        if node not in found:
            found.add(node)
            open_ += graph[node]
    return found


def places(system: System) -> dict[Place, Operation]:
    """Return everything that a request or a message can make a service do."""
    return {
        (name, key): operation
        for name, service in system.services.items()
        for key, operation in (
            service.operations | {f"process {subject}": o for subject, o in service.consumes.items()}
        ).items()
    }


def flow(system: System, *, messages: bool = True) -> dict[Place, set[Place]]:
    """Return the graph of places by calls and, when *messages*, by what is published; jobs and load are no part of it."""
    found = places(system)
    graph: dict[Place, set[Place]] = {place: set() for place in found}
    for place, operation in found.items():
        for step in operation.walk():
            if step.call:
                graph[place].add(place_of(step.call))
            if step.publish and messages:
                graph[place] |= {p for p in found if p[1] == f"process {step.publish}"}
    return graph


def place_of(target: str) -> Place:
    """Return the place that 'service METHOD /route' names."""
    service, route = target.split(maxsplit=1)
    return service, route


def entries(system: System) -> set[Place]:
    return {place_of(kind.request) for kind in system.load.mix}


def dead_places(system: System) -> set[Place]:
    """Return what neither load nor message nor background job ever reaches."""
    jobs = [job for service in system.services.values() for job in service.periodic.values()]
    begun = {place_of(step.call) for job in jobs for step in job.walk() if step.call}
    graph = flow(system)
    return set(graph) - reach(graph, entries(system) | begun)


def services_reached_by_load(system: System) -> set[str]:
    return {service for service, _ in reach(flow(system), entries(system))}


def terminates(system: System) -> bool:
    """Tell whether no request or message can come back to the operation where it began."""
    try:
        TopologicalSorter(flow(system)).prepare()
    except CycleError:
        return False
    return True


def depth(system: System) -> int:
    """Return the services on the longest way of a synchronous request: its hops, the user's own included."""
    return max(depth_of(system, kind.request) for kind in system.load.mix)


def depth_of(system: System, request: str) -> int:
    graph = flow(system, messages=False)

    @cache
    def below(place: Place) -> int:
        return 1 + max((below(callee) for callee in graph[place]), default=0)

    return below(place_of(request))


def calls_per_request(system: System) -> float:
    """Return the mean number of HTTP requests that a user's request causes, itself included, when nothing fails."""
    found = places(system)

    @cache
    def cost(place: Place) -> int:
        return 1 + sum(cost(place_of(step.call)) for step in found[place].walk() if step.call)

    mix = system.load.mix
    total = sum(m.weight * cost(place_of(m.request)) for m in mix)
    return total / sum(m.weight for m in mix)


def mutual_pairs(system: System) -> set[frozenset[str]]:
    """Return the pairs of services that call each other."""
    calls = system.calls()
    return {frozenset(pair) for pair in calls if pair[::-1] in calls}


def service_cycles(system: System) -> set[frozenset[str]]:
    """Return the groups of services that depend on one another, directly or not."""
    graph: dict[str, set[str]] = {service: set() for service in system.services}
    for caller, callee in system.calls():
        graph[caller].add(callee)
    below = {service: reach(graph, [service]) for service in graph}
    groups = {frozenset(other for other in below[service] if service in below[other]) for service in graph}
    return {group for group in groups if len(group) > 1}


def fan_in(system: System, service: str) -> int:
    return len({caller for caller, callee in system.calls() if callee == service})


def fan_out(system: System, service: str) -> int:
    return len({callee for caller, callee in system.calls() if caller == service})


def connections(system: System, store: str) -> int:
    """Return how many connections the pools of all replicas may open to *store* at once."""
    users = {service for service, used in system.uses() if used == store}
    return sum(system.services[name].pool * system.services[name].replicas for name in users)
