"""Speed of the verifiers: one recorded hour at 1 s, and 144 settings over 100 runs; `--recorder` measures the observer.

Made data: 44 services of two replicas, a fault in the first quarter, four depths, a probe every 20 s. Bars (issue 6): the
hour in under 0.2 s from text to verdict, the sweep in under 30 s, the recorder under 3% of one core at 1 s for 44 services.
"""

from __future__ import annotations

import argparse
import os
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from opsassay.core.schema.scenario import Scenario
from opsassay.core.schema.trajectory import Action, Entity, Observation, Phase, Probe, Tick, Timeline, parse_timeline
from opsassay.scoring.verifiers import RunRecording, certify
from papers.sweep import SETTINGS, sweep

T = TypeVar("T")
S = 1_000_000_000
SERVICES = [f"service-{i}" for i in range(44)]
REPLICAS = [f"{service}-{k}" for service in SERVICES for k in range(2)]
KINDS = [f"service-0 GET /{i}" for i in range(8)]


def made_timeline(seconds: int, seed: int) -> Timeline:
    draw, ticks, done, failed = random.Random(seed), [], [0] * len(KINDS), [0] * len(KINDS)
    broken = draw.sample(REPLICAS, draw.randrange(0, 14))
    for index in range(seconds):
        began, down = index * S, broken if seconds // 8 < index < seconds // 4 else []
        parts = ("db",) if draw.random() < 0.002 else ()
        observations = [
            Observation(depth="D1", started_ns=began, ended_ns=began + S // 200, value=1 - len(down) / len(REPLICAS),
                        failing=tuple(sorted(down))),
            Observation(depth="D2", started_ns=began, ended_ns=began + S // 200, value=1.0),
            Observation(depth="D4", started_ns=began, ended_ns=began + S // 100, value=1.0, failing=parts),
        ]  # fmt: skip
        probes: tuple[Probe, ...] = ()
        if index % 20 == 0 or index == seconds - 1:
            took = draw.choice([0.01, 0.02, 0.5, 4.0, 6.0])
            probes = (Probe(id=f"probe-{index}", target="service-0", started_ns=began, ended_ns=began + int(took * S),
                            status=200, latency_s=took, reachable=True),)  # fmt: skip
            observations.append(Observation(depth="D3", started_ns=began, ended_ns=began + int(took * S), value=1.0))
        for k in range(len(KINDS)):
            done[k] += draw.randrange(8)
            failed[k] += bool(down)
        load = {kind: (d, f) for kind, d, f in zip(KINDS, done, failed, strict=True)}
        changed = REPLICAS if index == 0 else broken if index in {seconds // 8 + 1, seconds // 4} else []
        ready = not seconds // 8 < index < seconds // 4
        entities = tuple(
            Entity(id=r, service=r.rpartition("-")[0], ready=ready, host="host-a", version="v1") for r in changed
        )
        ticks.append(Tick(index=index, observations=tuple(observations), probes=probes, entities=entities, load=load))
    return Timeline(boot_id="b", cadence_s=1.0, ticks=tuple(ticks))


def made_recording(seconds: int, seed: int) -> RunRecording:
    at = {"deployed": 0, "triggered": seconds // 8, "agent_started": seconds // 6, "agent_ended": seconds - 20}
    phases = tuple(Phase.model_validate({"phase": name, "time_ns": s * S}) for name, s in at.items())
    action = Action(
        tool="restart", arguments={}, started_ns=seconds // 5 * S, ended_ns=(seconds // 5 + 1) * S, mutating=True
    )
    return RunRecording(made_timeline(seconds, seed), phases, (action,))


def made_scenario(depth: str = "D3") -> Scenario:
    return Scenario.model_validate(
        {
            "id": "made", "title": "Made", "category": "speed", "alert": "a", "desired_outcome": "d",
            "difficulty": {"propagation": 2, "resolution_steps": 2, "technologies": ["a"]},
            "environment": {"system": "train"},
            "trigger": {"operations": [{"verb": "config set"}], "layer": "service"},
            "verification": {"committed_depth": depth, "no_regression": {}, "blast_radius": {},
                             "impact": {"max_user_minutes": 100}},
            "oracles": {"gentle": {"expect": "certified"}},
        }
    )  # fmt: skip


def text_of(timeline: Timeline) -> str:
    header = f'{{"boot_id": "{timeline.boot_id}", "cadence_s": {timeline.cadence_s}, "schema_version": 2}}\n'
    return header + "".join(tick.model_dump_json(exclude_defaults=True) + "\n" for tick in timeline.ticks)


def best(function: Callable[[], T], repeats: int) -> tuple[float, float, T]:
    times = []
    for _ in range(repeats):
        began = time.process_time()
        result = function()
        times.append(time.process_time() - began)
    return min(times), statistics.median(times), result


def hour() -> bool:
    recording, scenario = made_recording(3600, 1), made_scenario()
    text = text_of(recording.timeline)
    read_s, _, _ = best(lambda: parse_timeline(text), 5)
    whole_s, middle_s, verdict = best(
        lambda: certify(RunRecording(parse_timeline(text), recording.phases, recording.actions), scenario), 5
    )
    print(f"one hour at 1 s, {len(text) / 1e6:.1f} MB: {whole_s:.3f} s CPU from text to verdict (median {middle_s:.3f}), "
          f"of which reading {read_s:.3f}; certificate {verdict.metrics['certificate'].value}; bar 0.2")  # fmt: skip
    return bool(whole_s < 0.2)


def settings(runs: int, seconds: int) -> bool:
    recorded = [(f"run-{i}", made_scenario("D3" if i % 3 else "D1"), made_recording(seconds, i)) for i in range(runs)]
    began = time.process_time()
    rows = sweep(recorded)
    took = time.process_time() - began
    print(f"{len(SETTINGS)} settings over {runs} runs of {seconds} s: {took:.2f} s CPU, {len(rows)} rows; bar 30")
    return took < 30 and len(rows) == len(SETTINGS)


def recorder(seconds: int) -> bool:
    import psutil

    from opsassay.testbed.apps import load_system
    from opsassay.testbed.recording.observer import observing, read_timeline
    from opsassay.testbed.substrates.local.substrate import LocalSubstrate

    os.environ["OPSASSAY_STATE"] = tempfile.mkdtemp(prefix="rec-", dir="/tmp")
    system = load_system("train")
    with LocalSubstrate().deployed(system, "rec") as running, tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "timeline.jsonl"
        with observing(running.state.name, out, cadence_s=1.0, probe_every_s=20) as watcher:
            time.sleep(5)
            process = psutil.Process(watcher.process.pid)
            before, began = process.cpu_times(), time.monotonic()
            time.sleep(seconds)
            after, took = process.cpu_times(), time.monotonic() - began
        ticks = read_timeline(out).ticks
        missed = sum("missed" in o.failing for tick in ticks for o in tick.observations)
        size = out.stat().st_size
    share = (after.user + after.system - before.user - before.system) / took
    print(f"recorder on {len(system.services)} services at 1 s for {took:.0f} s: {share:.2%} of one core, {missed} of "
          f"{len(ticks)} ticks missed, {size / len(ticks):.0f} bytes a tick; bar 3%")  # fmt: skip
    return share < 0.03


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--recorder", type=int, metavar="SECONDS", help="measure the observer on train for so long")
    parser.add_argument("--seconds", type=int, default=600, help="length of the runs of the sweep")
    chosen = parser.parse_args()
    passed = [recorder(chosen.recorder)] if chosen.recorder else [hour(), settings(100, chosen.seconds)]
    sys.exit(0 if all(passed) else 1)


if __name__ == "__main__":
    main()
