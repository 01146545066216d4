"""Pages and the API over many runs, and a manifest that is polled thousands of times a second. Prints what it took.

The runs are written as a worker leaves them, in the folder and in the database: folders, rows and grades, of 20 solvers
on 100 tasks of a domain that asks nothing (no_op_domain.py). What is measured is what a reader waits for.

More polls are offered than have to be answered: what is answered is then what the platform can do.

python benchmarks/platform_pages.py --runs 10000 --polls 4000 --seconds 5
"""

from __future__ import annotations

import argparse
import asyncio
import os
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import yaml
from sqlalchemy import insert, select, update

from no_op_platform import Running, no_op_platform
from opsassay.core.schema.run import Metric, MetricStatus, Run, RunStatus, Solver
from opsassay.evals.runner.store import RUN, RunStore, cell_hash
from opsassay.server.database import BENCHMARKS, CELLS, RESULTS, engine_of
from opsassay.server.task_sets import load_task_set

SOLVERS, TASKS, TRIES = 20, 100, 7
DONE = {"done": Metric(value=1.0, status=MetricStatus.SCORED).model_dump(mode="json")}
PAGES = (
    "/leaderboards/many/runs", "/leaderboards/many/runs?solver=solver-07&outcome=succeeded",
    "/api/leaderboards/many/runs?task=task-042",
    "/leaderboards/many", "/leaderboards/many/tasks", "/leaderboards",
)  # fmt: skip


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__)
    words.add_argument("--runs", type=int, default=10_000)
    words.add_argument("--polls", type=int, default=4000, help="a second")
    words.add_argument("--seconds", type=int, default=5)
    given = words.parse_args()
    with no_op_platform() as running:
        fill(running, given.runs)
        measure_pages(running)
        measure_changes(running)
        asyncio.run(measure_polls(running, given.polls, given.seconds))


def fill(running: Running, runs: int) -> None:
    """Write *runs* runs that have ended, as if workers had run them."""
    (running.state / "task_sets" / "many.yaml").write_text(yaml.safe_dump({"domain": "no-op", "part": {"cells": 1}}))
    digest, store = load_task_set(running.state, "many").digest(), RunStore(running.state / "stores" / "many")
    owner, began = running.user("measurer"), time.monotonic()
    now, solvers = time.time_ns(), [f"solver-{number:02}" for number in range(SOLVERS)]
    of = {"task_set": "many", "digest": digest, "plan": {}, "state": "Finished", "since_ns": now, "created_ns": now}
    forms = [{"name": name, "kind": "self_hosted", "domains": ["finops"]} for name in solvers]
    benchmarks = [{**of, "id": one["name"], "agent_id": owner.ask("POST", "/api/agents", one)["id"]} for one in forms]
    engine = engine_of(running.database())
    made = list(runs_of(runs, now))
    for run in made:
        (folder := store.runs_dir / run.cell / "1").mkdir(parents=True)
        (folder / RUN).write_text(run.pretty_json())
    with engine.begin() as connection:
        connection.execute(insert(BENCHMARKS), benchmarks)
        connection.execute(insert(CELLS), [cell_row(run, now) for run in made])
        connection.execute(insert(RESULTS), [result_row(run) for run in made])
    engine.dispose()
    print(f"{runs} runs written in {time.monotonic() - began:.0f} s, load {os.getloadavg()[0]:.1f}", flush=True)


def runs_of(count: int, now: int) -> Iterator[Run]:
    for number in range(count):
        solver, task = f"solver-{number % SOLVERS:02}", f"task-{number // SOLVERS % TASKS:03}"
        seed = number // (SOLVERS * TASKS)
        yield Run(
            cell=cell_hash(task, solver, "default", seed), attempt=1, domain="no-op", item=task, item_hash=task,
            system="none", solver=Solver(name=solver, kind="agent"), solver_hash=hash_of(solver), seed=seed,
            isolation="sealed", status=RunStatus.DONE if number % 7 else RunStatus.FAILED, started_ns=now, ended_ns=now + 1,
            versions={"opsassay": "0.1.0"}, spent={"input_tokens": 100.0 + number % 50, "seconds": 1.0},
        )  # fmt: skip


def hash_of(solver: str) -> str:
    """Return a hash that tells *solver* apart from others in its first digits."""
    return cell_hash("", solver, "", 0)


def cell_row(run: Run, now: int) -> dict[str, Any]:
    return {
        "id": f"many-{run.cell}", "benchmark_id": run.solver.name, "hash": run.cell, "domain": "no-op", "task": run.item,
        "task_digest": run.item_hash, "arm": "default", "seed": run.seed, "bundle": "Terminated", "agent": "Terminated",
        "since_ns": now, "tries": 1,
    }  # fmt: skip


def result_row(run: Run) -> dict[str, Any]:
    return {
        "cell_id": f"many-{run.cell}", "passed": run.status is RunStatus.DONE, "errored": run.status is not RunStatus.DONE,
        "metrics": DONE, "evidence": "0" * 64, "run": f"runs/{run.cell}/1", "not_ranked": [], "ended_ns": run.ended_ns,
        "record": run.pretty_json(),
    }  # fmt: skip


def measure_pages(running: Running) -> None:
    for path in PAGES:
        times = []
        for _ in range(TRIES + 1):
            began = time.monotonic()
            with urllib.request.urlopen(running.url + path) as answer:
                answer.read()
            times.append(1000 * (time.monotonic() - began))
        print(
            f"{path}: first {times[0]:.0f} ms, then {sorted(times[1:])[TRIES // 2]:.0f} ms (median of {TRIES})",
            flush=True,
        )


def measure_changes(running: Running) -> None:
    """Time the first look at a leaderboard after a run's outcome changed without an event, so that it is not prepared."""
    engine, times = engine_of(running.database()), []
    for number in range(TRIES):
        with engine.begin() as connection:
            first = select(RESULTS.c.cell_id).order_by(RESULTS.c.cell_id).offset(number).limit(1).scalar_subquery()
            connection.execute(update(RESULTS).where(RESULTS.c.cell_id == first).values(evidence="1" * 64, metrics={}))
        began = time.monotonic()
        with urllib.request.urlopen(running.url + "/leaderboards/many") as answer:
            answer.read()
        times.append(1000 * (time.monotonic() - began))
    engine.dispose()
    print(
        f"/leaderboards/many after a new result: {sorted(times)[TRIES // 2]:.0f} ms (median of {TRIES}), "
        f"{max(times):.0f} at most; load {os.getloadavg()[0]:.1f}",
        flush=True,
    )


async def measure_polls(running: Running, polls: int, seconds: int) -> None:
    """Ask for a manifest *polls* times a second, from a hundred connections, while another user looks at the health."""
    token = running.client().ask("POST", "/api/users", {"name": "poller", "role": "owner"})["token"]
    owner = running.client(token)
    agent = owner.register("impatient", ["finops"])
    place, counts, asked = urlsplit(running.url), Counter[str](), iter(range(polls * seconds))
    head = f"GET /api/agents/{agent}/manifest HTTP/1.1\r\nHost: {place.netloc}\r\nAuthorization: Bearer {token}\r\n\r\n"
    began, others = time.monotonic(), list[float]()

    async def poll() -> None:
        reader, writer = await asyncio.open_connection(place.hostname, place.port)
        for number in asked:
            await asyncio.sleep(max(0.0, began + number / polls - time.monotonic()))
            writer.write(head.encode())
            answer = (await reader.readuntil(b"\r\n\r\n")).decode()
            length = next(line for line in answer.lower().splitlines() if line.startswith("content-length:"))
            await reader.readexactly(int(length.partition(":")[2]))
            counts[answer.split()[1]] += 1
        writer.close()

    async def look() -> None:
        while time.monotonic() < began + seconds:
            started = time.monotonic()
            await asyncio.to_thread(running.client().ask, "GET", "/api/health")
            others.append(1000 * (time.monotonic() - started))
            await asyncio.sleep(0.2)

    await asyncio.gather(look(), *(poll() for _ in range(100)))
    took = time.monotonic() - began
    print(
        f"manifest: {sum(counts.values())} polls in {took:.1f} s ({sum(counts.values()) / took:.0f}/s): {dict(counts)}; "
        f"meanwhile another's call took {sorted(others)[len(others) // 2]:.0f} ms (median), {max(others):.0f} at most; "
        f"load {os.getloadavg()[0]:.1f}"
    )
    await asyncio.sleep(1.1)  # what was said of a second is over
    assert owner.ask("GET", f"/api/agents/{agent}/manifest") == {"agent": agent, "entries": []}


if __name__ == "__main__":
    main()
