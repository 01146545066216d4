"""The entities of a system at an instant, from a timeline that records them as changes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from opsassay.core.schema.trajectory import Entity, Tick


@dataclass(frozen=True)
class EntityChange:
    """An entity whose host or version changed, or that went away or came, between two ticks."""

    id: str
    service: str
    tick: int
    what: str


def entities_at(ticks: Iterable[Tick], *, until_ns: int) -> dict[str, Entity] | None:
    """Return the entities by id as of the last tick that had ended by *until_ns*, None if none was recorded."""
    known: dict[str, Entity] = {}
    seen = False
    for tick in ticks:
        if not (tick.entities or tick.gone):
            continue
        if max((o.ended_ns for o in tick.observations if o.depth != "D3"), default=0) > until_ns:
            break
        seen = True
        known.update((entity.id, entity) for entity in tick.entities)
        for name in tick.gone:
            known.pop(name, None)
    return known if seen else None


def changes_between(ticks: Iterable[Tick], start_ns: int, end_ns: int) -> list[EntityChange]:
    """Return each change of an entity (new, gone, other host or version) in ticks from *start_ns* to *end_ns*."""
    known: dict[str, Entity] = {}
    found: list[EntityChange] = []
    for tick in ticks:
        if not (tick.entities or tick.gone):
            continue
        began = min((o.started_ns for o in tick.observations if o.depth != "D3"), default=0)
        if began > end_ns:
            break
        counts = began > start_ns and bool(known)
        for entity in tick.entities:
            former = known.get(entity.id)
            known[entity.id] = entity
            if not counts:
                continue
            if former is None:
                found.append(EntityChange(entity.id, entity.service, tick.index, "is new"))
            elif (former.host, former.version) != (entity.host, entity.version):
                what = "moved" if former.host != entity.host else "has another version"
                found.append(EntityChange(entity.id, entity.service, tick.index, what))
        for name in tick.gone:
            former = known.pop(name, None)
            if counts and former is not None:
                found.append(EntityChange(name, former.service, tick.index, "is gone"))
    return found


def replica_counts(ticks: Iterable[Tick], *, ready: bool = True) -> list[tuple[int, dict[str, int]]]:
    """Return (start ns, replicas by service) per tick with readings; a service seen once stays listed.

    With *ready* only replicas that are ready count, else all that are there.
    """
    known: dict[str, Entity] = {}
    found: list[tuple[int, dict[str, int]]] = []
    services: dict[str, int] = {}
    for tick in ticks:
        known.update((entity.id, entity) for entity in tick.entities)
        for name in tick.gone:
            known.pop(name, None)
        if tick.entities or tick.gone:
            counted = Counter(e.service for e in known.values() if e.ready or not ready)
            services = {**dict.fromkeys(services, 0), **counted}
        if tick.observations:
            found.append((tick.observations[0].started_ns, services))
    return found


def all_started_since(ticks: Iterable[Tick], service: str, since_ns: int) -> int | None:
    """Return the time (ns) of the first tick at which all replicas of *service* are ready and started after *since_ns*."""
    known: dict[str, tuple[str | None, bool]] = {}
    old: dict[str, str | None] = {}
    for tick in ticks:
        known |= {one.id: (one.incarnation, one.ready) for one in tick.entities if one.service == service}
        for name in tick.gone:
            known.pop(name, None)
        if not tick.observations:
            continue
        began_ns = tick.observations[0].started_ns
        if began_ns <= since_ns:
            old = {name: incarnation for name, (incarnation, _) in known.items()}
        elif known and all(ready and old.get(name, "") != now for name, (now, ready) in known.items()):
            return began_ns
    return None


def service_of(name: str, ticks: Iterable[Tick]) -> str:
    """Return the service of the entity with the id *name*; *name* itself when no entity has that id."""
    return next((e.service for tick in ticks for e in tick.entities if e.id == name), name)
