"""What a scenario commits as the whole of its system: the replicas before the fault, and those that its trigger deploys.

Shares are of that whole. A replica that nobody desires any more is missing, and one too many makes up for no other.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from opsassay.core.schema.scenario import Scenario
from opsassay.core.schema.trajectory import Depth, Entity
from opsassay.scoring.verifiers.entities import entities_at
from opsassay.scoring.verifiers.evidence import Flags, Floats, Ints, RunEvidence, RunRecording, Series, gather

WORKLOADS = ("Deployment", "StatefulSet", "ReplicaSet")


def evidence_of(recording: RunRecording, scenario: Scenario) -> RunEvidence:
    """Return *recording* as columns; readings are shares of the replicas that *scenario* requires."""
    evidence = gather(recording, control_plane=scenario.environment.substrate != "compose")
    committed = scenario.verification
    if committed.denominator == "present" or committed.profile == "paper":
        return evidence
    expected = expected_replicas(evidence, scenario)
    if not expected:
        return evidence
    return replace(evidence, committed=_committed_series(evidence, expected, committed.protected_services))


def expected_replicas(evidence: RunEvidence, scenario: Scenario) -> dict[str, int]:
    """Return the required replicas by workload; {} when none were recorded before the fault.

    They are those present and ready before the fault, and those that the trigger deploys, without those that a repair
    is meant to remove.
    """
    triggered, committed = evidence.triggered, scenario.verification
    ticks = evidence.recording.timeline.ticks
    before = entities_at(ticks, until_ns=triggered) if triggered is not None else None
    if before is None:
        return {}
    spared = set(committed.no_regression.except_for) if committed.no_regression is not None else set()
    standing = evidence.standing["D1"] | spared
    counts = Counter(e.service for e in before.values() if e.id not in standing and e.service not in spared)
    for change in scenario.cluster.changes if scenario.cluster is not None else ():
        if change.create is not None and change.kind in WORKLOADS and change.name not in spared | counts.keys():
            counts[change.name] = int(change.create.get("spec", {}).get("replicas", 1))
    return dict(counts)


def _committed_series(
    evidence: RunEvidence, expected: Mapping[str, int], protected: tuple[str, ...]
) -> dict[Depth, Series]:
    """Return D1 and D2 (*protected* services) as shares of *expected* replicas; unanswered readings stay so."""
    first, services = evidence.series["D1"].read, list(expected)
    states, which = _states_of_system(evidence, expected, first)
    whole = np.array([expected[service] for service in services], dtype=np.float64)
    ready = np.array([[state.ready.get(s, 0) for s in services] for state in states], dtype=np.float64)
    present = np.minimum(ready.reshape(len(states), len(services)), whole)
    values: Floats = np.where(np.isnan(first.values), np.nan, (present.sum(axis=1) / max(whole.sum(), 1.0))[which])
    found: dict[Depth, Series] = {"D1": _name_failures(replace(first, values=values), states, which)}
    chosen = [services.index(service) for service in protected if service in expected]
    second = evidence.judged_present["D2"]
    if chosen and len(second) and len(first):
        share = (present[:, chosen] / whole[chosen]).min(axis=1)[which]
        at = np.minimum(np.searchsorted(first.ticks, second.ticks), len(first) - 1)
        lower = np.where(first.ticks[at] == second.ticks, share[at], 1.0)
        found["D2"] = replace(second, values=np.minimum(second.values, lower))
    return found


class _State(NamedTuple):
    """How many replicas of each workload are ready, and what is not or is missing."""

    ready: Mapping[str, int]
    failing: tuple[str, ...]


def _states_of_system(evidence: RunEvidence, expected: Mapping[str, int], series: Series) -> tuple[list[_State], Ints]:
    """Return the distinct states against *expected* replicas, and the state's index for each reading of *series*."""
    states, current = [_State({}, ())], dict[int, int]()
    known: dict[str, Entity] = {}
    for tick in evidence.recording.timeline.ticks:
        if tick.entities or tick.gone:
            known.update((entity.id, entity) for entity in tick.entities)
            for name in tick.gone:
                known.pop(name, None)
            states.append(_read_state(known, expected, evidence.standing["D1"]))
        current[tick.index] = len(states) - 1
    return states, np.array([current[tick] for tick in series.ticks.tolist()], dtype=np.int64)


def _read_state(entities: Mapping[str, Entity], expected: Mapping[str, int], standing: frozenset[str]) -> _State:
    """Return the ready replicas by service, and the names that fail: not ready, or missing from *expected*.

    Names in *standing* failed before the fault and do not count.
    """
    ready = Counter(e.service for e in entities.values() if e.ready)
    there = Counter(e.service for e in entities.values())
    failing = [e.id for e in entities.values() if not e.ready and e.service in expected and e.id not in standing]
    failing += [f"{s} ({count - there[s]} missing)" for s, count in expected.items() if there[s] < count]
    return _State(ready, tuple(sorted(failing)))


def _name_failures(series: Series, states: Sequence[_State], state_index: Ints) -> Series:
    """Return *series* with the failing names of each reading's state; unanswered readings keep their own names."""
    silent = np.isnan(series.values)
    names = tuple(sorted({*series.names, *(name for state in states for name in state.failing)}))
    column = {name: i for i, name in enumerate(names)}
    of_states = np.zeros((len(states), len(names)), dtype=bool)
    for i, state in enumerate(states):
        of_states[i, [column[name] for name in state.failing]] = True
    failing: Flags = of_states[state_index]
    failing[silent] = False
    own = np.array([column[name] for name in series.names], dtype=np.int64)
    failing[np.ix_(np.flatnonzero(silent), own)] = series.failing[silent]
    return replace(series, names=names, failing=failing)
