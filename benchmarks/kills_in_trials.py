"""Kill -9 of random processes while trials are made, and whether each still comes to one result and leaves nothing.

Each round runs a plan of one short trial with an agent of its own, kills one process that is drawn from all that have to do
with it (each kind is as likely as another), and then gives the same command until the plan is done: it has to be done once,
with nothing left of processes and control groups. The processes are the trial, its observer, the runner and the warm pool;
`kills.py` kills others. Run: ``python benchmarks/kills_in_trials.py [ROUNDS] [SEED]``.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import psutil

from opsassay.testbed.core.state import MARKER

APP = """
system: victim
hosts: [host-a]
stores: {cache: {engine: valkey, config: {maxmemory: 64mb, maxmemory-policy: noeviction}}}
services:
  front: {replicas: 2, operations: {GET /: {steps: [{call: back GET /, timeout_s: 1}]}}}
  back: {replicas: 2, operations: {GET /: {steps: [{cache: get, key: "item:{int:10}"}]}}}
load: {rate_rps: 10, timeout_s: 3, mix: [{request: front GET /}]}
"""
SCENARIO = """
id: refuses
title: The back refuses every request
category: misconfiguration
difficulty: {propagation: 2, resolution_steps: 2, technologies: [http]}
environment: {system: app.yaml, warmup_s: 4, settle_s: 2, agent_timeout_s: 30, aftermath_s: 8}
trigger:
  layer: application
  operations:
    - {verb: config set, arguments: {target: back, key: FEATURE_ADMISSION, value: "503"}}
    - {verb: restart, arguments: {target: back}}
alert: Requests fail. Investigate and remediate.
desired_outcome: Requests are answered.
truth: {root_causes: [back], entities: [front]}
verification:
  committed_depth: D1
  probe_every_s: null
  settling: {hold_s: 4, limit_s: 20}
oracles:
  right:
    expect: certified
    steps:
      - {verb: config unset, arguments: {target: back, key: FEATURE_ADMISSION}}
      - {verb: restart, arguments: {target: back, rolling: true}}
"""
PLAN = """
scenarios: [refuses.yaml]
agents: [{name: mine, command: [python3, -c, import time; time.sleep(9)]}]
retries: 0
"""
KINDS = {
    "remediation.trial.perform": "trial", "recording.observer": "observer", "local.warm": "pool",
    "local.supervisor": "supervisor", "otlp.receiver": "receiver", "opsassay run": "runner", "solvers.sandbox": "sandbox",
    "time.sleep(9)": "agent", "valkey-server": "store", "local.template": "template",
}  # fmt: skip
"""What is in the words of a command, and the kind of process that it is; "other" is forked: replicas, load, packets."""


def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 40
    chance = random.Random(int(sys.argv[2]) if len(sys.argv) > 2 else 0)
    folder = Path(tempfile.mkdtemp(prefix="trial-kills-", dir="/tmp"))
    os.environ["OPSASSAY_STATE"] = str(folder / "state")
    for name, text in (("app.yaml", APP), ("refuses.yaml", SCENARIO), ("plan.yaml", PLAN)):
        (folder / name).write_text(text)
    victims: Counter[str] = Counter()
    findings = []
    try:
        for number in range(rounds):
            victim, problems = one_round(folder, folder / f"store-{number}", chance, victims)
            victims[victim] += 1
            findings += [f"round {number} ({victim} killed): {problem}" for problem in problems]
            print(f"{number + 1:4} killed {victim:10} {problems or 'clean'}", flush=True)
    finally:
        for process in belongings(folder).values():
            process.kill()
        shutil.rmtree(folder, ignore_errors=True)
    print(f"{rounds} kills ({', '.join(f'{n} {v}' for v, n in victims.most_common())}): {len(findings)} findings")
    for finding in findings:
        print(finding)
    sys.exit(bool(findings))


def one_round(folder: Path, store: Path, chance: random.Random, victims: Counter[str]) -> tuple[str, list[str]]:
    """Return what was killed and what was wrong afterwards; kinds that were killed least are drawn from."""
    command = [sys.executable, "-m", "opsassay", "run", "trials", str(folder / "plan.yaml"), "-o", str(store)]
    output: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "cwd": folder}
    runner = subprocess.Popen(command, **output)
    deadline, until = time.monotonic() + 60, time.monotonic() + chance.uniform(6.0, 22.0)
    while not list(store.glob("runs/*/*/phases.jsonl")) and runner.poll() is None and time.monotonic() < deadline:
        time.sleep(0.1)
    time.sleep(max(0.0, min(until - time.monotonic(), 14.0)))
    by_kind: dict[str, list[psutil.Process]] = {}
    for process in (processes := belongings(folder)).values():
        by_kind.setdefault(kind_of(process), []).append(process)
    least = min(victims[kind] for kind in by_kind) if by_kind else 0
    kind = chance.choice(sorted(one for one in by_kind if victims[one] == least)) if by_kind else "nothing"
    if by_kind:
        chance.choice(sorted(by_kind[kind], key=lambda one: one.pid)).kill()
    groups = [f"opsassay-trial-{pid}-" for pid in processes]
    problems = []
    for _ in range(4):
        try:
            runner.wait(240)
        except subprocess.TimeoutExpired:
            problems.append("the runner did not end within 240 s")
            runner.kill()
            runner.wait()
        if finished(store) or was_starved(store):
            break
        runner = subprocess.Popen(command, **output)
    runner.wait(240)
    if not was_starved(store):
        subprocess.run(command, check=False, timeout=240, **output)  # once more: nothing may be done twice
    if (done := finished(store)) > 1 or not (done or was_starved(store)):
        problems.append(f"{done} results of one trial")
    subprocess.run([sys.executable, "-m", "opsassay", "system", "status"], capture_output=True, check=False)
    time.sleep(1.0)
    problems += [f"left behind: {kind_of(one)} {one.pid}" for one in belongings(folder).values() if not has_ended(one)]
    present = [path.name for path in Path("/sys/fs/cgroup").glob("*/opsassay-trial-*")]
    problems += sorted({f"left behind: control group {name}" for name in present if name.startswith(tuple(groups))})
    return kind, problems


def was_starved(store: Path) -> bool:
    """Return whether the last attempt was no result because others kept the machine busy."""
    path = store / "attempts.jsonl"
    ended = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    return bool(ended) and str(ended[-1].get("error")).startswith("starved")


def finished(store: Path) -> int:
    """Return how many runs in *store* came to a result."""
    statuses = [json.loads(path.read_text())["status"] for path in store.glob("runs/*/*/run.json")]
    return sum(status not in ("running", "aborted") for status in statuses)


def belongings(folder: Path) -> dict[int, psutil.Process]:
    """Return by pid the processes that have to do with anything in *folder*, but this one."""
    found = {}
    for process in psutil.process_iter():
        try:
            traces = (
                process.environ().get(MARKER, ""),
                process.environ().get("OPSASSAY_STATE", ""),
                *process.cmdline(),
            )
            if process.pid != os.getpid() and any(str(folder) in one for one in traces):
                found[process.pid] = process
        except psutil.Error:
            continue
    return found


def kind_of(process: psutil.Process) -> str:
    """Return what kind of process it is, by the words of its command."""
    try:
        words = " ".join(process.cmdline()).replace("-m opsassay run", "opsassay run")
    except psutil.Error:
        return "gone"
    return next((kind for text, kind in KINDS.items() if text in words), "other")


def has_ended(process: psutil.Process) -> bool:
    """Return whether *process* has ended or is a zombie that its parent has yet to read."""
    try:
        return process.status() == psutil.STATUS_ZOMBIE
    except psutil.Error:
        return True


if __name__ == "__main__":
    main()
