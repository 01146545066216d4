"""Timelines made by hand: one value per tick and depth, at times that can be computed in the head."""

from __future__ import annotations

from opsassay.core.schema.incident import Alert
from opsassay.core.schema.scenario import Scenario
from opsassay.core.schema.trajectory import (
    Action,
    AlertReading,
    Entity,
    Observation,
    OperatorDiagnosis,
    Phase,
    Probe,
    Tick,
    Timeline,
)
from opsassay.scoring.verifiers import RunRecording

S = 1_000_000_000
READING = S // 100  # a reading takes 10 ms


def at(seconds: float) -> int:
    """Return *seconds* of the made clock in ns."""
    return int(1_000 * S + seconds * S)


def observation(depth, seconds, value, failing=()):
    return Observation(
        depth=depth, started_ns=at(seconds), ended_ns=at(seconds) + READING, value=value, failing=failing
    )


def probe(name, seconds, *, took=0.01, reachable=True, target="front"):
    return Probe(id=name, target=target, started_ns=at(seconds), ended_ns=at(seconds + took), latency_s=took,
                 status=200 if reachable else 502, reachable=reachable)  # fmt: skip


def timeline(d1=(), *, cadence=1.0, d2=None, d4=None, probes=(), entities=None, load=None, missing_d1="front-0"):
    """Return a timeline; *d1* holds shares or (share, failing), *d4* {tick: failing parts}, *probes* stand in the tick
    that ends after them, *entities* {tick: [Entity]}, *load* {tick: {request: (done, failed)}}."""
    waiting = sorted(probes, key=lambda p: p.ended_ns)
    ticks = []
    for index, share in enumerate(d1):
        seconds = index * cadence
        observations = []
        if share != "missed":
            value, failing = (
                share if isinstance(share, tuple) else (share, (missing_d1,) if share not in (None, 1.0) else ())
            )
            observations.append(observation("D1", seconds, value, failing))
            if d2 is not None:
                two = d2[index]
                observations.append(observation("D2", seconds, two, ("front",) if two == 0 else ()))
            parts = (d4 or {}).get(index, ())
            observations.append(observation("D4", seconds, 1 - len(parts) / 4, tuple(parts)))
        else:
            observations.append(observation("D1", seconds, None, ("missed",)))
        last = index == len(d1) - 1
        ours = [p for p in waiting if last or p.ended_ns <= at(seconds) + READING]
        waiting = [p for p in waiting if p not in ours]
        if ours:
            dead = tuple(sorted(p.target for p in ours if not p.reachable))
            observations.append(
                Observation(depth="D3", started_ns=min(p.started_ns for p in ours), ended_ns=max(p.ended_ns for p in ours),
                            value=1 - len(dead) / len(ours), failing=dead)
            )  # fmt: skip
        counts = (load or {}).get(index) or {}
        ticks.append(Tick(index=index, observations=tuple(observations), probes=tuple(ours),
                          entities=tuple((entities or {}).get(index, ())), load=counts))  # fmt: skip
    return Timeline(boot_id="b", cadence_s=cadence, ticks=tuple(ticks))


def recording(
    made,
    *,
    deployed=None,
    triggered=None,
    started=None,
    ended=None,
    actions=(),
    alerts=(),
    probes_on=True,
    diagnoses=None,
):
    times = {"deployed": deployed, "triggered": triggered, "agent_started": started, "agent_ended": ended}
    phases = tuple(Phase(phase=name, time_ns=at(s)) for name, s in times.items() if s is not None)
    return RunRecording(made, phases, tuple(actions), tuple(alerts), probes_on, diagnoses)


def change(seconds, took=0.1, *, tool="restart", touched=(), mutating=True):
    return Action(tool=tool, arguments={}, started_ns=at(seconds), ended_ns=at(seconds + took), mutating=mutating,
                  touched=tuple(touched))  # fmt: skip


def diagnosis(seconds, *causes):
    return OperatorDiagnosis(time_ns=at(seconds), root_causes=causes)


def firing(seconds, *rules):
    alerts = tuple(
        Alert(time_ns=at(seconds), service=service, signal=signal, value=1, threshold=0.5, message="m")
        for service, signal in rules
    )
    return AlertReading(time_ns=at(seconds), firing=alerts)


def entity(name, *, ready=True, host="host-a", version=None):
    return Entity(id=name, service=name.rpartition("-")[0] or name, ready=ready, host=host, version=version)


PLAIN = {"no_regression": None, "blast_radius": None, "settings": None, "cause": None, "users": None, "settling": None,
         "denominator": "present"}  # fmt: skip
"""The paper's four alone, and an agent that answers for its own time alone: what else there is has tests of its own."""


def scenario(*, no_fault=False, truth=None, substrate="local", **verification):
    payload = {
        "id": "made", "title": "Made", "category": "test",
        "difficulty": {"propagation": 3, "resolution_steps": 2, "technologies": ["a"]},
        "environment": {"system": "shop", "substrate": substrate},
        "trigger": {} if no_fault else {"operations": [{"verb": "config set"}], "layer": "application"},
        "no_fault": no_fault, "alert": "it burns", "desired_outcome": "it does not", "truth": truth or {},
        "verification": {"committed_depth": "D1", **PLAIN, **verification},
        "oracles": {"gentle": {"expect": "certified"}},
    }  # fmt: skip
    return Scenario.model_validate(payload)
