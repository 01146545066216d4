"""What the environment did itself in a trial with background noise is not the agent's doing: no predicate sees it.

A replica that the noise restarts counts as ready while it does so, unless the agent acts on it at the same time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from opsassay.core.schema.trajectory import AlertReading, Entity, Observation, Tick

if TYPE_CHECKING:
    from opsassay.scoring.verifiers.evidence import RunRecording

ECHO_NS = 12 * 10**9
"""For so long after a restart alerts may still be about it: ten seconds of their window, two until all has arrived."""


def without_noise(recording: RunRecording) -> RunRecording:
    """Return *recording* without what its background noise (harmless changes) does to replicas (D1) and alerts."""
    if not any(one.touched for one in recording.noise):
        return recording
    ticks = tuple(_ticks_without(recording))
    return replace(
        recording,
        timeline=recording.timeline.model_copy(update={"ticks": ticks}),
        alerts=tuple(_alerts_without(recording)),
    )


def _ticks_without(recording: RunRecording) -> Iterator[Tick]:
    """Yield each tick with replicas that the noise is restarting shown as ready; if they stay down, so in the next."""
    now, hidden = dict[str, Entity](), frozenset[str]()
    for tick in recording.timeline.ticks:
        now |= {entity.id: entity for entity in tick.entities}
        for name in tick.gone:
            now.pop(name, None)
        spared = _spared_replicas(recording, tick, now)
        shown = {entity.id: entity for entity in tick.entities}
        shown |= {name: now[name] for name in hidden - spared if name in now}
        shown |= {name: shown[name].model_copy(update={"ready": True}) for name in spared if name in shown}
        observations = tuple(_reading_without(one, spared) if one.depth == "D1" else one for one in tick.observations)
        yield tick.model_copy(update={"entities": tuple(shown.values()), "observations": observations})
        hidden = spared


def _spared_replicas(recording: RunRecording, tick: Tick, entities: Mapping[str, Entity]) -> frozenset[str]:
    """Return the ids of replicas that background noise, not the agent, restarts while *tick* reads D1 (replicas)."""
    read = next((one for one in tick.observations if one.depth == "D1"), None)
    if read is None:
        return frozenset()
    lasting = [one for one in recording.noise if one.started_ns <= read.ended_ns and one.ended_ns >= read.started_ns]
    ours = {name for one in lasting for name in one.touched if name in entities}
    acted_on = {
        name
        for action in recording.actions
        if action.mutating and action.started_ns <= read.ended_ns and action.ended_ns >= read.started_ns
        for name in action.touched
    }
    return frozenset(name for name in ours if not acted_on & {name, entities[name].service})


def _reading_without(reading: Observation, spared: frozenset[str]) -> Observation:
    """Return *reading* as if the replicas *spared* did not fail: the missing share shrinks in proportion."""
    kept = tuple(name for name in reading.failing if name not in spared)
    if reading.value is None or len(kept) == len(reading.failing):
        return reading
    share = len(kept) / len(reading.failing)
    return reading.model_copy(update={"value": 1 - (1 - reading.value) * share, "failing": kept})


def _alerts_without(recording: RunRecording) -> Iterator[AlertReading]:
    """Yield the alert readings without alerts on a service during and shortly after the noise's restart of it."""
    restarts = [one for one in recording.noise if one.touched]
    for reading in recording.alerts:
        recent = {one.target for one in restarts if one.started_ns <= reading.time_ns <= one.ended_ns + ECHO_NS}
        yield reading.model_copy(update={"firing": tuple(one for one in reading.firing if one.service not in recent)})
