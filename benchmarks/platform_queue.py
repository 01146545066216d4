"""Many workers on one platform, some of them killed: every cell comes to one result. Prints what it took.

python benchmarks/platform_queue.py --cells 1000 --workers 10 --kills 5
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from opsassay.server.client import PlatformClient

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from server.conftest import Running  # type: ignore[import-not-found]

PAGE_TRIES = 7


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__)
    words.add_argument("--cells", type=int, default=1000)
    words.add_argument("--workers", type=int, default=10)
    words.add_argument("--kills", type=int, default=5)
    given = words.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        running = Running(Path(folder) / "state", "--workers", "0")
        try:
            measure(running, given.cells, given.workers, given.kills)
        finally:
            running.end()


def measure(running: Running, cells: int, count: int, kills: int) -> None:
    part = {"tasks": ["category-cost", "top-applications"], "repeats": cells // 2}
    (running.state / "task_sets" / "many.yaml").write_text(yaml.safe_dump({"domain": "finops", "part": part}))
    owner, began = running.user("measurer"), time.monotonic()
    form = {"name": "chance", "kind": "built_in", "domains": ["finops"], "source": "chance"}
    benchmark = owner.request(owner.ask("POST", "/api/agents", form)["id"], "many")
    print(f"{cells} cells frozen and queued in {time.monotonic() - began:.1f} s")
    draws, began = random.Random(0), time.monotonic()
    workers = [running.worker() for _ in range(count)]
    killed = 0
    while (found := owner.benchmark(benchmark))["state"] not in ("Finished", "Error"):
        ended = sum(cell["run"] is not None for cell in found["cells"])
        if killed < kills and ended > (killed + 1) * cells / (kills + 2):
            victim = workers.pop(draws.randrange(len(workers)))
            victim.kill()
            victim.wait()
            workers.append(running.worker())
            killed += 1
        time.sleep(1.0)
    took = time.monotonic() - began
    runs = Counter(cell["run"] for cell in found["cells"])
    events = [e for page in pages(owner) for e in page if e["kind"] == "result"]
    doubled = len(events) - len({event["subject"] for event in events})
    lost = sum(cell["run"] is None for cell in found["cells"])
    print(
        f"{len(runs)} results of {cells} cells by {count} workers, {killed} killed with -9: {lost} lost, {doubled} doubled"
    )
    print(f"{took:.0f} s, {cells / took:.1f} cells/s")
    for path in ("/", "/boards/many", "/api/benchmarks"):
        print(f"{path}: {1000 * median(running, path):.0f} ms (median of {PAGE_TRIES}, warm)")
    for one in workers:
        one.terminate()
    for one in workers:
        one.wait(90)


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
