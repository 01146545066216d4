"""Validity: whether the machine let the trial be judged, by how short it was at every tick and through whom.

A tick is starved when a reading says that our own work waited (the observer overslept, a probe that asks for nothing was
late, most of the time some task waited) and others than the trial explain it: they used a good part of the processors, or
a hypervisor kept them. So whatever the system or the agent burns itself makes no tick starved.
"""

from __future__ import annotations

from typing import Literal

from opsassay.core.schema.base import Noun
from opsassay.core.schema.trajectory import Calibration, Tick
from opsassay.core.text import plural
from opsassay.scoring.verifiers.evidence import RunEvidence

LIMITS = {"late_s": 0.5, "noop_s": 0.25, "cpu": 0.5, "memory": 0.5, "io": 0.5, "runnable": 2.0}
"""Readings that say that our own work waits; *runnable* stands in where the kernel keeps no pressure."""
FOREIGN_SHARE, FOREIGN_RUNNABLE, STEAL_SHARE = 0.5, 6.0, 0.25
"""Others explain it when they used half of the processors with six ready threads a core, or a quarter was stolen."""
MOST_SHARE, LEAST_TICKS = 0.1, 3
"""A trial stands so many starved ticks of those from the fault to the end: a tenth, and two in any case."""
SLOWER = 20.0
"""A probe that asks for nothing is late when it takes this many times what it took before the first tick, at least."""


class StarvedTick(Noun):
    """One tick that was starved: by which reading, what it was, and its limit."""

    tick: int
    reading: str
    value: float
    limit: float


class Validity(Noun):
    """Whether a trial can be judged; a starved one is no result, and a record without readings is not assessed."""

    status: Literal["valid", "starved", "not_assessed"] = "not_assessed"
    reason: str = "the record does not say how busy the machine was"
    starved: tuple[StarvedTick, ...] = ()


def validity(evidence: RunEvidence) -> Validity:
    """Return whether the machine was fast enough, from the fault to the end of the record, for the run to count."""
    timeline = evidence.recording.timeline
    since = evidence.agent_started if evidence.triggered is None else evidence.triggered
    judged = [
        tick for tick in timeline.ticks
        if tick.pressure is not None and tick.observations and tick.observations[0].started_ns >= since
    ]  # fmt: skip
    if not judged:
        return Validity()
    if all(tick.pressure.foreign is None for tick in judged if tick.pressure is not None):
        return Validity(reason="the recorder cannot tell the trial's load from that of others")
    starved = tuple(found for tick in judged if (found := _find_starvation(tick, timeline.calibration)) is not None)
    most = max(MOST_SHARE * len(judged), LEAST_TICKS - 1)
    if len(starved) <= most:
        words = f"{len(starved)} of {plural(len(judged), 'tick')} starved, at most {most:.0f} may be"
        return Validity(status="valid", reason=words, starved=starved)
    worst = max(starved, key=lambda one: one.value / one.limit)
    reason = (
        f"starved: others kept the machine busy at {len(starved)} of {plural(len(judged), 'tick')} "
        f"(at most {most:.0f} may be), the worst tick {worst.tick} with {worst.reading} {worst.value:g}, "
        f"limit {worst.limit:g}"
    )
    return Validity(status="starved", reason=reason, starved=starved)


def _find_starvation(tick: Tick, calibration: Calibration | None) -> StarvedTick | None:
    """Return the reading that shows best that *tick* lacked CPU, against *calibration* if any; None when none does."""
    pressure = tick.pressure
    assert pressure is not None
    busy = (pressure.foreign or 0.0) >= FOREIGN_SHARE and (pressure.foreign_runnable or 0.0) >= FOREIGN_RUNNABLE
    if not busy and (pressure.steal or 0.0) < STEAL_SHARE:
        return None
    limits = dict(LIMITS)
    if calibration is not None:
        limits["noop_s"] = max(limits["noop_s"], SLOWER * calibration.noop_s)
    if pressure.cpu is not None:
        del limits["runnable"]
    found = [
        StarvedTick(tick=tick.index, reading=name, value=value, limit=limit)
        for name, limit in limits.items() if (value := getattr(pressure, name)) is not None and value > limit
    ]  # fmt: skip
    return max(found, key=lambda one: one.value / one.limit, default=None)
