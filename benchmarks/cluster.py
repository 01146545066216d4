"""Scenarios on a cluster: every oracle does what its file says, several times; what the recorder costs; two runs at once.

Resumable: a store that is given again is gone on with, and no cell is run or scored twice. Hours on a small machine.

    python benchmarks/cluster.py oracles STORE CLUSTER [--repeats 3] [-j 2] [--only NAME ...]
    python benchmarks/cluster.py recorder CLUSTER [--pods 100] [--seconds 120]
    python benchmarks/cluster.py parallel STORE CLUSTER

CLUSTER is a YAML file: the `cluster` block of a plan.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path

import psutil

from opsassay.core.schema.files import load_yaml
from opsassay.core.schema.progress import ProgressLines
from opsassay.core.schema.run_folder import TIMELINE
from opsassay.core.schema.trajectory import parse_timeline
from opsassay.evals.remediation.plan import TrialPlan, cells_of
from opsassay.evals.remediation.score import grade_trial, read_recording
from opsassay.evals.remediation.solve import TrialRun, run_trials
from opsassay.evals.remediation.trial.contract import TrialAgent
from opsassay.evals.runner.oracles import EVERY_ORACLE
from opsassay.evals.runner.store import RunStore
from opsassay.testbed.apps import load_system
from opsassay.testbed.recording.observer import recorded_by
from opsassay.testbed.scenarios import names
from opsassay.testbed.substrates.kubernetes.scenario.populating import SystemPopulation
from opsassay.testbed.substrates.kubernetes.settings import ClusterSettings
from opsassay.testbed.substrates.kubernetes.substrate import KubernetesSubstrate

PAPER = ("node-not-ready", "missing-config-map", "tainted-nodes", "unreachable-service", "slow-control-plane",
         "bad-image-rollout", "isolated-service", "crowded-node")  # fmt: skip
"""S-1 to S-8 in order."""
RECORDER_BAR = 0.05


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("oracles", "recorder", "parallel"))
    parser.add_argument("places", nargs="+", type=Path, help="STORE (not for recorder) and CLUSTER")
    parser.add_argument("--repeats", type=int, default=3, help="runs of each oracle")
    parser.add_argument("-j", "--jobs", type=int, default=1, help="trials side by side")
    parser.add_argument("--only", nargs="*", help="scenarios; S-1 to S-8 and the others when left out")
    parser.add_argument("--pods", type=int, default=100)
    parser.add_argument("--seconds", type=float, default=120.0)
    given = parser.parse_args()
    *stores, cluster = given.places
    settings = load_yaml(cluster, ClusterSettings)
    if given.what == "recorder":
        return recorder(settings, given.pods, given.seconds)
    if not stores:
        parser.error("a store is needed")
    only = given.only or [*PAPER, *(name for name in names("kubernetes") if name not in PAPER)]
    if given.what == "parallel":
        return parallel(settings, stores[0])
    return oracles(settings, stores[0], only, given.repeats, given.jobs)


def plan_of(settings: ClusterSettings, scenarios: list[str], repeats: int) -> TrialPlan:
    return TrialPlan(
        scenarios=tuple(scenarios),
        agents=(TrialAgent(name=EVERY_ORACLE),),
        repeats=repeats,
        cluster=settings,
        retries=2,
    )


def oracles(settings: ClusterSettings, root: Path, only: list[str], repeats: int, jobs: int = 1) -> int:
    """Run every oracle *repeats* times, *jobs* at once; print how often each did as its file says, and least D1."""
    plan, store = plan_of(settings, only, repeats), RunStore(root)
    cells = cells_of(plan)
    run_trials(store, cells, jobs, progress=ProgressLines(lambda line: print(line, flush=True)))
    right, seen, least = Counter[str](), Counter[str](), dict[str, float]()
    for cell in cells:
        if (folder := store.finished(cell.cell.hash)) is None:
            continue
        row = f"{cell.scenario.id:26} {cell.agent.name:20}"
        failed, lowest = judged(folder, cell)
        seen[row] += 1
        right[row] += cell.scenario.oracles[cell.agent.oracle or ""].is_met(failed)
        least[row] = min(least.get(row, 1.0), lowest)
    for row in dict.fromkeys(f"{c.scenario.id:26} {c.agent.name:20}" for c in cells):
        print(
            f"{row} {right[row]} of {seen[row]} as its file says, least availability {least.get(row, float('nan')):.3f}"
        )
    print(f"{right.total()} of {len(cells)} runs as they should be")
    return 0 if right.total() == len(cells) else 1


def judged(folder: Path, cell: TrialRun) -> tuple[set[str], float]:
    """Return the predicates that the run in *folder* fails, and the least D1 in the agent's time."""
    verdict = grade_trial(folder, cell.scenario)
    failed = {one.predicate for one in verdict.judgements if one.failed} - {"certificate"}
    recording = read_recording(folder)
    times = {phase.phase: phase.time_ns for phase in recording.phases}
    values = [
        one.value
        for tick in recording.timeline.ticks
        for one in tick.observations
        if one.depth == "D1"
        and one.value is not None
        and times["agent_started"] <= one.started_ns <= times["agent_ended"]
    ]
    return failed, min(values, default=float("nan"))


def recorder(settings: ClusterSettings, pods: int, seconds: float) -> int:
    """Observe *pods* idle pods at the paper's cadence of 5 s; print the share of a core that it took, and the lists."""
    substrate = KubernetesSubstrate(settings.kubeconfig, settings.context, image=settings.image)
    system = load_system("grid")
    replicas = sum(service.replicas for service in system.services.values())
    furnishing = SystemPopulation(stand_ins=True, fillers=pods - replicas)
    with (
        tempfile.TemporaryDirectory() as folder,
        substrate.deployed(system, "recorded", furnishing=furnishing) as running,
    ):
        out = Path(folder) / TIMELINE
        command = [
            sys.executable,
            "-m",
            "opsassay.testbed.substrates.kubernetes.observer",
            "--on",
            running.name,
            "--output",
            str(out),
        ]
        command += ["--kubeconfig", str(settings.kubeconfig)] if settings.kubeconfig else []
        command += ["--context", settings.context] if settings.context else []
        with recorded_by([*command, "--cadence", "5", "--probe-every", "20"], out) as watcher:
            time.sleep(20)  # until everything has been listed and is followed
            process = psutil.Process(watcher.process.pid)
            before, began = sum(process.cpu_times()[:2]), time.monotonic()
            time.sleep(seconds)
            share = (sum(process.cpu_times()[:2]) - before) / (time.monotonic() - began)
        timeline = parse_timeline(out.read_text())
    missed = sum("missed" in one.failing for tick in timeline.ticks for one in tick.observations)
    print(
        f"{pods} pods at 5 s: {share:.2%} of a core over {seconds:g} s, {missed} ticks missed (bar: {RECORDER_BAR:.0%})"
    )
    return 0 if share < RECORDER_BAR and not missed else 1


def parallel(settings: ClusterSettings, root: Path) -> int:
    """Run S-4 and S-7 at the same time on one cluster; both must come out as they do alone."""
    codes: dict[str, int] = {}
    pair = ("unreachable-service", "isolated-service")

    def one(name: str) -> None:
        codes[name] = oracles(settings, root / name, [name], 1)

    threads = [threading.Thread(target=one, args=(name,)) for name in pair]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print(
        "two runs at once: " + ", ".join(f"{name} {'as alone' if codes[name] == 0 else 'disturbed'}" for name in pair)
    )
    return max(codes.values())


if __name__ == "__main__":
    sys.exit(main())
