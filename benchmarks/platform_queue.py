"""Many workers on one platform, some of them killed: every cell comes to one result. Prints what it took.

The cells are of a domain whose tasks ask nothing (no_op_domain.py), so that what is measured is the platform: queue, lease,
run path, result, event.

python benchmarks/platform_queue.py --cells 1000 --workers 10 --kills 5
"""

from __future__ import annotations

import argparse
import os
import random
import subprocess
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator
from typing import Any

import psutil
import yaml

from no_op_platform import Running, no_op_platform
from opsassay.server.client import PlatformClient

PAGE_TRIES = 7
SAY_S = 20.0


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__)
    words.add_argument("--cells", type=int, default=1000)
    words.add_argument("--workers", type=int, default=10)
    words.add_argument("--kills", type=int, default=5)
    words.add_argument("--most-s", type=float, default=840, help="give up then")
    given = words.parse_args()
    with no_op_platform() as running:
        measure(running, given.cells, given.workers, given.kills, given.most_s)


def measure(running: Running, cells: int, count: int, kills: int, most_s: float) -> None:
    part = {"domain": "no-op", "part": {"cells": cells}}
    (running.state / "task_sets" / "many.yaml").write_text(yaml.safe_dump(part))
    owner, began = running.user("measurer"), time.monotonic()
    form = {"name": "nobody", "kind": "built_in", "domains": ["no-op"], "source": "nobody"}
    benchmark = owner.request(owner.ask("POST", "/api/agents", form)["id"], "many")
    print(f"{cells} cells frozen and queued in {time.monotonic() - began:.1f} s", flush=True)
    began = time.monotonic()
    workers = [running.worker() for _ in range(count)]
    try:
        killed, processor_s = run_down(running, owner, benchmark, workers, cells, kills, began + most_s)
        took = time.monotonic() - began
        said = (running.state / "further.log").read_text(errors="replace")
        print(f"{took:.0f} s, {cells / took:.1f} cells/s, load {os.getloadavg()[1]:.1f} of 5 min; {processor_s}")
        report(owner, benchmark, len(workers), killed)
        print(f"log of workers: {said.count('Traceback')} tracebacks, {said.count('warning')} warnings")
        for path in ("/", "/leaderboards/many", "/api/benchmarks", f"/api/benchmarks/{benchmark}"):
            print(f"{path}: {1000 * median(running, path):.0f} ms (median of {PAGE_TRIES}, warm)")
    finally:
        for one in workers:
            one.terminate()
        for one in workers:
            one.wait(90)


def run_down(
    running: Running, owner: PlatformClient, benchmark: str, workers: list[subprocess.Popen[bytes]], cells: int, kills: int,
    deadline: float,
) -> tuple[int, str]:  # fmt: skip
    draws, killed, said = random.Random(0), 0, time.monotonic()
    while True:
        (found,) = owner.ask("GET", "/api/benchmarks")["items"]
        if found["state"] in ("Finished", "Error") or time.monotonic() > deadline:
            assert found["id"] == benchmark
            shared = sum(psutil.Process(one.pid).memory_full_info().pss for one in workers if one.poll() is None)
            return killed, f"{len(workers)} workers hold {shared / 2**30:.1f} GiB"
        while killed < kills and found["ended"] > (killed + 1) * cells / (kills + 2):
            victim = workers.pop(draws.randrange(len(workers)))
            victim.kill()
            victim.wait()
            workers.append(running.worker())
            killed += 1
        if time.monotonic() - said > SAY_S:
            said = time.monotonic()
            print(f"  {found['ended']} of {found['cells']} ended, {killed} killed", flush=True)
        time.sleep(1.0)


def report(owner: PlatformClient, benchmark: str, workers: int, killed: int) -> None:
    found = owner.benchmark(benchmark)
    cells = found["cells"]
    runs = Counter(cell["run"] for cell in cells if cell["run"])
    events = [e["subject"] for page in pages(owner) for e in page if e["kind"] == "result"]
    print(
        f"{len(runs)} results of {len(cells)} cells by {workers} workers, {killed} killed with -9: "
        f"{sum(cell['run'] is None for cell in cells)} lost, {len(events) - len(set(events))} doubled, "
        f"{sum(cell['tries'] > 1 for cell in cells)} taken over; {found['state']}"
    )


def pages(owner: PlatformClient) -> Iterator[list[dict[str, Any]]]:
    after = 0
    while items := owner.ask("GET", f"/api/events?limit=10000&after={after}")["items"]:
        yield items
        after = items[-1]["seq"]


def median(running: Running, path: str) -> float:
    times = []
    for _ in range(PAGE_TRIES + 1):
        began = time.monotonic()
        request = urllib.request.Request(running.url + path, headers={"Authorization": f"Bearer {running.admin}"})
        with urllib.request.urlopen(request) as answer:
            answer.read()
        times.append(time.monotonic() - began)
    return sorted(times[1:])[PAGE_TRIES // 2]


if __name__ == "__main__":
    main()
