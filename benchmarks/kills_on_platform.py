"""Kill -9 of random processes of a platform: is every cell run once, and is nothing left at the end? Prints each round.

Each round requests a small benchmark and kills one process that is drawn from the server, the database, one of its
connections and the workers (each kind is as likely as another). All come back by themselves, but for a server that was
killed, or that ended because its database was killed too often: it is started again, as a service manager does. The cells
are of a domain whose tasks ask nothing (no_op_domain.py).

python benchmarks/kills_on_platform.py [ROUNDS] [SEED]
"""

from __future__ import annotations

import os
import random
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import TypeVar

import psutil
import yaml

from no_op_platform import Running, no_op_platform
from opsassay.server.client import PlatformClient, PlatformError

T = TypeVar("T")
CELLS, WORKERS, LIMIT_S, ROUNDS_OF_AN_OWNER = 12, 2, 180.0, 10
SERVER, DATABASE, CONNECTION, WORKER = "server", "database", "connection", "worker"


def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 40
    chance = random.Random(int(sys.argv[2]) if len(sys.argv) > 2 else 0)
    victims: Counter[str] = Counter()
    findings: list[str] = []
    state = ""
    with no_op_platform("--workers", str(WORKERS)) as running:
        part = {"domain": "no-op", "part": {"cells": CELLS}}
        (running.state / "task_sets" / "many.yaml").write_text(yaml.safe_dump(part))
        read_on(running)
        for number in range(rounds):
            if number % ROUNDS_OF_AN_OWNER == 0:
                owner, agent = repeated(running, partial(new_owner, running), time.monotonic() + LIMIT_S)
            kind, problems = one_round(running, owner, agent, chance)
            victims[kind] += 1
            findings += [f"round {number + 1} ({kind} killed): {problem}" for problem in problems]
            print(f"{number + 1:4} killed {kind:10} {problems or 'clean'}", flush=True)
        findings += repeated(running, lambda: doubled(owner), time.monotonic() + LIMIT_S)
        state = str(running.state)
    findings += [f"left behind: {' '.join(one.cmdline())[:80]}" for one in belongings(state)]
    print(f"{rounds} kills ({', '.join(f'{n} {v}' for v, n in victims.most_common())}): {len(findings)} findings")
    for finding in findings:
        print(finding)
    sys.exit(bool(findings))


def new_owner(running: Running) -> tuple[PlatformClient, str]:
    """Return an owner who has asked for nothing yet, and the id of their agent."""
    name = f"nobody {time.monotonic_ns()}"
    owner = running.user(f"owner of {name}")
    form = {"name": name, "kind": "built_in", "domains": ["no-op"], "source": "nobody"}
    return owner, owner.ask("POST", "/api/agents", form)["id"]


def read_on(running: Running) -> None:
    """Read what the server says from now on, so that its pipe never fills."""
    threading.Thread(target=lambda stream: [None for _ in stream], args=(running.process.stderr,), daemon=True).start()


def one_round(running: Running, owner: PlatformClient, agent: str, chance: random.Random) -> tuple[str, list[str]]:
    """Return what was killed while a benchmark ran, and what was wrong afterwards."""
    deadline = time.monotonic() + LIMIT_S
    requested = repeated(running, lambda: owner.request(agent, "many"), deadline)
    time.sleep(chance.uniform(0.0, 2.5))
    while not (kinds := processes(running)):
        revive(running)
    kind = chance.choice(sorted(kinds))
    chance.choice(kinds[kind]).kill()
    if kind == SERVER:
        running.process.wait(20)
        time.sleep(chance.uniform(0.0, 3.0))
    while (found := repeated(running, lambda: owner.benchmark(requested), deadline))["state"] not in (
        "Finished",
        "Error",
    ):
        if time.monotonic() > deadline:
            return kind, [f"{found['state']} after {LIMIT_S:.0f} s"]
        time.sleep(0.2)
    runs = Counter(cell["run"] for cell in found["cells"])
    problems = [] if found["state"] == "Finished" else [f"ended as {found['state']}"]
    if None in runs or len(runs) != CELLS:
        problems.append(f"{len(runs) - (None in runs)} results of {CELLS} cells")
    while len(processes(running).get(WORKER, ())) != WORKERS:
        revive(running)
        if time.monotonic() > deadline:
            return kind, [*problems, f"{len(processes(running).get(WORKER, ()))} workers, not {WORKERS}"]
        time.sleep(0.2)
    return kind, problems


def revive(running: Running) -> None:
    """Start the server again when it has ended."""
    if running.process.poll() is None:
        return
    running.start()
    if running.process.poll() is not None:
        sys.exit(f"the server did not start again: {running.said}")
    read_on(running)


def repeated(running: Running, ask: Callable[[], T], deadline: float) -> T:
    """Return the answer of *ask*, asked again while the server or its database comes back."""
    while True:
        revive(running)
        try:
            return ask()
        except (PlatformError, OSError):
            if time.monotonic() > deadline:
                raise
            time.sleep(0.2)


def doubled(owner: PlatformClient) -> list[str]:
    """Return a sentence for each cell whose result was counted more than once."""
    counts: Counter[str] = Counter()
    after = 0
    while items := owner.ask("GET", f"/api/events?limit=10000&after={after}")["items"]:
        counts.update(event["subject"] for event in items if event["kind"] == "result")
        after = items[-1]["seq"]
    return [f"{count} results of cell {cell}" for cell, count in counts.items() if count > 1]


def processes(running: Running) -> dict[str, list[psutil.Process]]:
    """Return the processes that may be killed, by kind."""
    found: dict[str, list[psutil.Process]] = {}
    if running.process.poll() is None:
        found[SERVER] = [psutil.Process(running.process.pid)]
    for process in belongings(str(running.state)):
        words = process.cmdline()
        if "worker" in words:
            found.setdefault(WORKER, []).append(process)
        elif any(word.endswith("postgres") for word in words[:1]):
            found.setdefault(DATABASE, []).append(process)
            backends = [one for one in process.children() if "opsassay opsassay" in " ".join(one.cmdline())]
            if backends:
                found[CONNECTION] = backends
    return found


def belongings(state: str) -> list[psutil.Process]:
    """Return the running processes whose command names the folder *state*, but this one."""
    found = []
    for process in psutil.process_iter():
        try:
            runs = process.status() != psutil.STATUS_ZOMBIE and process.pid != os.getpid()
            if runs and state in " ".join(process.cmdline()):
                found.append(process)
        except psutil.Error:
            continue
    return found


if __name__ == "__main__":
    main()
