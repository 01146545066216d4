"""What a warm process is worth: reset to ready, memory and trials an hour, compared with another build in the same run.

``python benchmarks/warm.py --against CHECKOUT [--rounds 5] [--trials 3] [--side 3]``: rounds alternate between a plain
deploy of the other checkout, a plain deploy of this one and a deploy by a warm process; the median is what to quote. With
``--trials`` episodes of `wrong-upstream-port` follow: one after another in the other checkout, then ``--side``
environments at a time in this one, each with the next system prepared ahead. An episode is the right repair and 10 s of
work. An episode without a result (starved) is counted and is no trial.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import psutil

from opsassay.gym import TaskEnv
from opsassay.testbed.apps import load_system
from opsassay.testbed.core.state import marked_processes
from opsassay.testbed.substrates.local.substrate import LocalSubstrate

SYSTEMS, HERE = ("shop", "desk"), Path(__file__).resolve().parents[1]
SCENARIO, WORK_S = "wrong-upstream-port", 10.0


def deploy_once(system: str, *, warm: bool) -> dict[str, float]:
    """Return seconds to ready, processor seconds until then, and the unique memory of the system in MB."""
    substrate, app = LocalSubstrate(), load_system(system)
    with warm_block() if warm else nullcontext():
        if warm:  # its imports are done once it has forked something
            substrate.deploy(app, "bench-first", owned=True)
            substrate.remove("bench-first")
        began = time.perf_counter()
        running = substrate.deploy(app, "bench-warm", owned=True)
        ready_s = time.perf_counter() - began
        processes = marked_processes(running.state)
        cpu_s = sum(sum(one.cpu_times()[:2]) for one in processes)
        memory_mb = sum(one.memory_full_info().uss for one in processes) / 1e6
        substrate.remove("bench-warm")
    return {"ready_s": ready_s, "cpu_s": cpu_s, "memory_mb": memory_mb}


def warm_block() -> AbstractContextManager[None]:
    """Return a block with a warm process, which the other checkout need not have."""
    from opsassay.testbed.substrates.local.warm import warm_process

    return warm_process()


def episodes(count: int, *, ahead: bool) -> list[dict[str, Any]]:
    """Play *count* episodes with a scripted agent; return seconds of reset and of all, and what came of each."""
    found, env = [], TaskEnv("sre", scenarios=[SCENARIO], ahead=ahead)
    try:
        for _ in range(count):
            began = time.monotonic()
            env.reset(seed=1)
            reset = let_in = time.monotonic()
            for action in (
                env.tools["config_set"](target="proxy", key="UPSTREAM_WEB", value="web:8080"),
                env.tools["restart"](target="proxy", rolling=True),
            ):
                env.step(action)
            env.step(env.tools["wait"](seconds=max(WORK_S - (time.monotonic() - let_in), 0)))
            _, reward, _, truncated, info = env.step(env.tools["finish"]())
            found.append({"reset_s": reset - began, "all_s": time.monotonic() - began, "certified": reward,
                          "valid": not truncated, "why": info["no_result"] or info["reasons"]})  # fmt: skip
    finally:
        env.close()
    return found


def start(checkout: Path, *arguments: str) -> subprocess.Popen[str]:
    """Start this script with *arguments* on the package of *checkout*."""
    environment = {**os.environ, "PYTHONPATH": str(checkout / "src")}
    command = [sys.executable, str(Path(__file__).resolve()), *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)


def answer(process: subprocess.Popen[str]) -> Any:
    """Return what *process* printed last, as JSON."""
    said, _ = process.communicate()
    return json.loads(said.splitlines()[-1])


def compare_deploys(against: Path, rounds: int) -> None:
    """Print the medians of each way to deploy, and their ratios to the plain deploy of *against*."""
    ways = {"other build": (against, "plain"), "this build": (HERE, "plain"), "warm process": (HERE, "warm")}
    for system in SYSTEMS:
        rows: dict[str, list[dict[str, float]]] = {way: [] for way in ways}
        for _ in range(rounds):
            for way, (checkout, how) in ways.items():
                rows[way].append(answer(start(checkout, "--one", system, how)))
        base = {key: statistics.median(row[key] for row in rows["other build"]) for key in rows["other build"][0]}
        for way, found in rows.items():
            medians = {key: statistics.median(row[key] for row in found) for key in base}
            words = ", ".join(f"{key} {value:.2f} ({value / base[key]:.2f})" for key, value in medians.items())
            print(f"{system}, {way}: {words}; load {psutil.getloadavg()[0]:.1f}", flush=True)


def compare_trials(against: Path, count: int, side: int) -> None:
    """Print valid trials an hour of *against*, one after another, and of *side* environments here, and their ratio."""
    rates = []
    for checkout, how, many in ((against, "plain", 1), (HERE, "ahead", side)):
        began = time.monotonic()
        running = [start(checkout, "--episodes", str(count), how) for _ in range(many)]
        found = [one for process in running for one in answer(process)]
        hours = (time.monotonic() - began) / 3600
        valid = sum(one["valid"] for one in found)
        rates.append(valid / hours)
        resets = statistics.median(one["reset_s"] for one in found)
        certified = sum(one["certified"] for one in found)
        print(f"{how}, {many} at a time: {valid} valid of {len(found)}, {certified:.0f} certified, {rates[-1]:.0f} an hour,"
              f" reset {resets:.1f} s; load {psutil.getloadavg()[0]:.1f}", flush=True)  # fmt: skip
        for one in found:
            print("  ", one)
    print(
        f"trials an hour, ratio {rates[1] / rates[0]:.2f}" if rates[0] else "no ratio: no trial of the other was valid"
    )


def main() -> None:
    """Compare and print, or do one measurement for the process that compares."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--against", type=Path)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--trials", type=int, default=0)
    parser.add_argument("--side", type=int, default=3)
    parser.add_argument("--one", nargs=2)
    parser.add_argument("--episodes", nargs=2)
    asked = parser.parse_args()
    if asked.one:
        print(json.dumps(deploy_once(asked.one[0], warm=asked.one[1] == "warm")))
    elif asked.episodes:
        print(json.dumps(episodes(int(asked.episodes[0]), ahead=asked.episodes[1] == "ahead")))
    else:
        against = (asked.against or HERE).resolve()
        if asked.rounds:
            compare_deploys(against, asked.rounds)
        if asked.trials:
            compare_trials(against, asked.trials, asked.side)


if __name__ == "__main__":
    main()
