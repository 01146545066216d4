"""Kill -9 of random processes while a compose project is broken, and whether everything is as it was afterwards.

Rounds alternate between a copy of the project (`system up compose.yaml`), of which nothing may be left, and a project of
the user that runs (`system attach`), of which each container, limit, rule of traffic and state must be as before. A round
starts the system, injects a random fault, kills one process drawn from all kinds that have to do with it, gives
`opsassay system status` and `system down`. Needs root and Podman with buildah and runc, as tests of compose projects do.
Run: ``python benchmarks/kills_on_projects.py [ROUNDS] [SEED]``.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import psutil

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from opsassay.testbed.core.state import MARKER
from testbed.substrates.local.compose_machine import Machine, containers_of, machine_in, wait_for  # type: ignore[import-not-found]

FAULTS: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("NetworkDelay", "stock", {"delay_ms": 100}),
    ("NetworkLoss", "orders", {"loss_percent": 20}),
    ("NetworkPartition", "stock", {}),
    ("PodFailure", "stock", {}),
    ("PodKill", "catalog", {}),
    ("DNSError", "front", {"hostname": "orders"}),
)
NAME, FAULT_S, BACK_S = "mine", 8.0, 90.0


def main() -> None:
    given = [int(word) for word in sys.argv[1:]]
    rounds, chance = given[0] if given else 30, random.Random(given[1] if len(given) > 1 else 0)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # engine and projects are removed then, too
    victims: Counter[str] = Counter()
    findings = []
    with tempfile.TemporaryDirectory(prefix="kills-", dir="/tmp") as folder, machine_in(Path(folder)) as machine:
        for number in range(rounds):
            attached = bool(number % 2)
            before = start_own(machine) if attached else {}
            try:
                victim, problems = one_round(machine, before, chance, attached=attached)
            finally:
                if attached:
                    machine.run("podman-compose", "-p", "own", "down", "--volumes", "--timeout", "1", code=None)
            victims[victim] += 1
            kind = "attached" if attached else "copy"
            print(f"{number + 1:4} {kind:8} killed {victim:28} {problems or 'clean'}", flush=True)
            findings += [f"round {number + 1} ({kind}, {victim} killed): {problem}" for problem in problems]
    print(f"{rounds} kills ({', '.join(f'{n} {v}' for v, n in victims.most_common())}): {len(findings)} findings")
    for finding in findings:
        print(finding)
    sys.exit(bool(findings))


def start_own(machine: Machine) -> dict[str, Any]:
    """Start the project as its user does, write running.yaml; return how its containers are."""
    machine.run("podman-compose", "-p", "own", "up", "--detach")
    wait_for(lambda: machine.run("curl", "-sf", "http://127.0.0.1:8000/", code=None), 60)
    wait_for(lambda: machine.run("podman", "ps", "-q", "--filter=name=seed", code=None) == "", 20)
    words = ["--compose", "own", "--entry", "http://127.0.0.1:8000/", "-o", "running.yaml"]
    (machine.project / "running.yaml").unlink(missing_ok=True)
    machine.opsassay("system", "attach", *words)
    before: dict[str, Any] = containers_of(machine)
    return before


def one_round(
    machine: Machine, before: dict[str, Any], chance: random.Random, *, attached: bool
) -> tuple[str, list[str]]:
    """Return what was killed, and what was wrong afterwards."""
    machine.opsassay("system", "up", "running.yaml" if attached else "compose.yaml", "--name", NAME, "--rate", "8")
    fault, service, parameters = chance.choice(FAULTS)
    plan = {"fault": fault, "target": {"service": service}, "parameters": parameters, "duration_s": FAULT_S}
    (machine.project / "fault.yaml").write_text(json.dumps(plan))
    words = [sys.executable, "-m", "opsassay", "system", "inject", "fault.yaml", "--on", NAME]
    injecting = subprocess.Popen(
        machine.entered(machine.project, *words),
        env=machine.variables,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    time.sleep(chance.uniform(0.5, 9.0))
    found = killable(machine, injecting.pid)
    kind = chance.choice(sorted(found))
    os.kill(chance.choice(found[kind]), 9)
    time.sleep(chance.uniform(0.0, 1.0))
    problems = []
    try:
        machine.opsassay("system", "status")
        injecting.wait(timeout=60)
        machine.opsassay("system", "down", NAME, code=None)  # it may have ended with the victim
        wait_for(lambda: not differences(machine, before), BACK_S)
    except (AssertionError, subprocess.TimeoutExpired) as error:
        problems.append(f"after the kill: {str(error)[-300:]}")
    finally:
        injecting.kill()
        injecting.wait()
    return f"{kind} ({fault})", [*problems, *differences(machine, before), *left_processes(machine)]


def killable(machine: Machine, injecting: int) -> dict[str, list[int]]:
    """Return the ids of OpsAssay's processes by kind: injector, supervisor, guard, receiver and others by their module."""
    found = {"injector": [injecting]}
    for process in psutil.process_iter():
        try:
            words = process.cmdline()
            if MARKER in process.environ() and machine.variables["OPSASSAY_STATE"] in process.environ()[MARKER]:
                modules = [word.rpartition(".")[2] for word in words if word.startswith("opsassay.")]
                kind = "guard" if "guard" in words else modules[0] if modules else Path(words[0]).name
                found.setdefault(kind, []).append(process.pid)
        except (psutil.Error, OSError, IndexError):
            continue
    return found


def differences(machine: Machine, before: dict[str, Any]) -> list[str]:
    """Return what of the engine is not as *before*: containers that were added, removed or changed."""
    if not before:
        return [f"left behind: {thing}" for thing in machine.left()]
    now = containers_of(machine)
    names = sorted(before.keys() | now.keys())
    return [f"container {name} is not as it was" for name in names if before.get(name) != now.get(name)]


def left_processes(machine: Machine) -> list[str]:
    """Return the processes of systems that are still there after five seconds."""
    deadline, found = time.monotonic() + 5, {"unknown": [0]}
    while found and time.monotonic() < deadline:
        found = killable(machine, 0)
        del found["injector"]
        time.sleep(0.2)
    return [f"left behind: process {kind} {pids}" for kind, pids in found.items()]


if __name__ == "__main__":
    main()
