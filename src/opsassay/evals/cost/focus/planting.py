"""Plants anomalies into the areas of a world, and distractions that only look like anomalies.

An anomaly departs from the usual cost by more than `DEPARTURE`. Other cost stays within `NOISE` of its profile: it
departs from the median by at most 1.04 / 0.96 - 1 = 8.3%, planted cost by at least 1.4 * 0.96 / 1.04 - 1 = 29%, or 1 -
0.6 * 1.04 / 0.96 = 35% downwards. A drift is measured by day, over which noise averages out, and counts from 18% on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from opsassay.evals.cost.focus.world import AREAS, World
from opsassay.evals.runner.draws import Draws

DEPARTURE = 0.15
NOISE = 40
"""Permille by which an hour may deviate from its profile."""

AnomalyKind = Literal["spike", "level", "drop", "drift"]
_KINDS: dict[str, tuple[AnomalyKind, ...]] = {
    "spikes": ("spike", "spike", "spike", "spike"),
    "levels": ("level", "level", "spike", "drop", "level"),
    "drift": ("drift", "drift", "level"),
    "credits": ("spike", "level", "spike", "drop"),
    "currency": ("level", "spike", "drop", "spike"),
    "seasons": ("spike", "drop", "level", "spike"),
}
_LENGTHS: dict[AnomalyKind, tuple[int, int]] = {"spike": (1, 3), "level": (18, 60), "drop": (5, 14), "drift": (10, 12)}
APART_H, MOST_H = 48, 15 * 24
"""Least hours between two events of a resource, and most hours of all its events.

These are fewer than half of the weeks at any weekday and hour, so that their median stays the usual cost.
"""
_DRIFT_PER_DAY = 60
"""Permille that a drift adds each day: 12% on the second day does not count as an anomaly yet, 18% on the third does."""
_DRIFT_SEEN_FROM = 2


@dataclass(frozen=True)
class Planted:
    """One planted anomaly: number of the resource in the world, its hours [start, end), and cost factors in permille.

    *seen_from* is the first hour that counts: a drift begins below the departure.
    """

    area: str
    kind: AnomalyKind
    resource: int
    start: int
    end: int
    factors: tuple[int, ...]
    seen_from: int


@dataclass(frozen=True)
class Distraction:
    """An event that looks like an anomaly but is none: *kind* in hours [start, end) of a resource."""

    kind: Literal["credit", "masking_credit", "currency", "unit"]
    resource: int
    start: int
    end: int


def plant(world: World) -> tuple[list[Planted], list[Distraction]]:
    """Return the anomalies to plant into the company's costs, and distractions, which only look like anomalies."""
    planted: list[Planted] = []
    distractions: list[Distraction] = []
    for area in AREAS.values():
        draws = Draws(world.seed, "plant", area.name)
        of = [number for number, one in enumerate(world.resources) if one.area == area.name]
        taken: list[tuple[int, int, int]] = []
        for kind in _KINDS[area.name]:
            planted += [_plant_event(draws, world, area.name, kind, of, taken) for _ in range(draws.integer(1, 2))]
        distractions += _plant_distractions(draws, world, area.name, of, taken, planted)
    return planted, distractions


def _plant_event(
    draws: Draws,
    world: World,
    area: str,
    kind: AnomalyKind,
    resources: Sequence[int],
    taken: list[tuple[int, int, int]],
) -> Planted:
    """Return a random anomaly of *kind* in *area*, in one of *resources*, at hours that are not in *taken*.

    *taken* has (resource, first hour, hour after the last) and gains the new one; factors are in permille of cost.
    """
    low, high = _LENGTHS[kind]
    length = draws.integer(low, high)
    if AREAS[area].daily:
        days = length if kind == "drift" else draws.integer(2, 3)
        resource, start = _draw_event_slot(draws, world, resources, taken, 24 * days, step=24)
        rise = draws.integer(400, 800)
        per_day = [1000 + (_DRIFT_PER_DAY * (n + 1) if kind == "drift" else rise) for n in range(days)]
        factors = tuple(factor for factor in per_day for _ in range(24))
        seen_from = start + (24 * _DRIFT_SEEN_FROM if kind == "drift" else 0)
        return Planted(area, kind, resource, start, start + 24 * days, factors, seen_from)
    resource, start = _draw_event_slot(draws, world, resources, taken, length)
    factor = {"spike": draws.integer(1800, 3800), "level": draws.integer(1400, 1900)}.get(kind, draws.integer(250, 600))
    return Planted(area, kind, resource, start, start + length, (factor,) * length, start)


def _draw_event_slot(
    draws: Draws,
    world: World,
    resources: Sequence[int],
    used_slots: list[tuple[int, int, int]],
    length: int,
    step: int = 1,
) -> tuple[int, int]:
    """Return a random one of *resources* and the hour, a multiple of *step*, where an event of *length* hours starts.

    It is added to *used_slots* (resource, from, to). Events of a resource lie APART_H apart and take at most MOST_H
    hours.
    """
    while True:
        resource = draws.choice(resources)
        start = draws.integer(2, (world.hours - length) // step - 3) * step
        mine = [(a, b) for r, a, b in used_slots if r == resource]
        apart = all(start + length + APART_H <= a or b + APART_H <= start for a, b in mine)
        if apart and sum(b - a for a, b in mine) + length <= MOST_H:
            used_slots.append((resource, start, start + length))
            return resource, start


def _plant_distractions(
    draws: Draws, world: World, area: str, resources: Sequence[int], used_slots: list[tuple[int, int, int]],
    planted: Sequence[Planted],
) -> list[Distraction]:  # fmt: skip
    """Return events in *area* that only look like anomalies; their hours are added to *used_slots*."""
    if area == "credits":
        hidden = [one for one in planted if one.area == area and one.factors[0] > 1000]
        found = [Distraction("masking_credit", one.resource, one.start, one.end) for one in hidden]
        return found + [
            Distraction("credit", *_hours_taken(_draw_event_slot(draws, world, resources, used_slots, 2), 2))
            for _ in range(3)
        ]
    if area == "currency":
        moved = 24 * draws.integer(5, 9)
        counted = 24 * draws.integer(2, 4)
        return [
            Distraction(
                "currency", *_hours_taken(_draw_event_slot(draws, world, resources, used_slots, moved, step=24), moved)
            ),
            Distraction(
                "unit", *_hours_taken(_draw_event_slot(draws, world, resources, used_slots, counted, step=24), counted)
            ),
        ]
    return []


def _hours_taken(slot: tuple[int, int], length: int) -> tuple[int, int, int]:
    """Return (resource, first hour, hour after the last) of *length* hours at *slot* (resource, first hour)."""
    resource, start = slot
    return resource, start, start + length
