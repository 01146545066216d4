"""Datapacks annotated on ray nodes of this machine, one of which is killed: `python benchmarks/ray_nodes.py --packs 24`.

Runs in an environment with the extra `ray`. Each node is a raylet of its own with one processor (`ray.cluster_utils`).
Three runs of `map_processes`, as `opsassay incident annotate --ray` makes them: one node, two nodes, and two nodes of which
one is killed with -9, workers included, once a quarter of the packs is done. Every pack must come once, in order, with the
same annotation.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import psutil

from causes_packs import make
from opsassay.annotation.job import AnnotateJob, run_job
from opsassay.core.parallel import map_processes
from opsassay.core.schema.incident import Fault


def trees_of(folder: Path, packs: int, spans: int) -> list[AnnotateJob]:
    """Return one job for each of *packs* datapacks of about *spans* spans, made below *folder*."""
    jobs = []
    for number in range(packs):
        made: Fault = make(folder / f"pack-{number:03d}", spans, seed=number)
        del made
        jobs.append(AnnotateJob(folder / f"pack-{number:03d}", root=None, again=True))
    return jobs


def cluster(nodes: int) -> Any:
    """Return a running cluster of *nodes* nodes with one processor each, and a head without any."""
    from ray.cluster_utils import Cluster

    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
    for _ in range(nodes):
        made.add_node(num_cpus=1)
    made.wait_for_nodes()
    return made


def kill(node: Any) -> int:
    """Kill every process of *node* with -9 and return how many there were."""
    ((_, raylet),) = [(name, kept[0]) for name, kept in node.all_processes.items() if name == "raylet"]
    found = psutil.Process(raylet.process.pid)
    killed = [*found.children(recursive=True), found]
    for process in killed:
        process.send_signal(signal.SIGKILL)
    return len(killed)


def run(jobs: list[AnnotateJob], nodes: int, *, kill_one: bool = False) -> dict[str, Any]:
    """Return seconds, names and answers of *jobs* on *nodes* nodes; the first annotation of each is not timed."""
    running = cluster(nodes)
    try:
        began, names, answers, killed = time.perf_counter(), [], [], 0
        for number, done in enumerate(map_processes(run_job, jobs, nodes, ray=running.address)):
            if number + 1 == nodes:
                began = time.perf_counter()  # each node has imported what it needs
            names.append(done[0].name)
            answers.append((done[0].error, done[0].annotation and done[0].annotation.canonical_json()))
            if kill_one and number + 1 == len(jobs) // 4:
                killed = kill(sorted(running.worker_nodes, key=lambda node: node.node_id)[0])
        seconds = time.perf_counter() - began
    finally:
        running.shutdown()
    return {"seconds": seconds, "names": names, "answers": answers, "killed": killed}


def main() -> int:
    """Print the three runs; the exit status is 1 when a pack is missing, comes twice or differs."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--packs", type=int, default=24)
    parser.add_argument("--spans", type=int, default=400_000)
    asked = parser.parse_args()
    os.environ["POLARS_MAX_THREADS"] = "1"  # a node has one processor, and takes no other's
    with tempfile.TemporaryDirectory() as folder:
        jobs = trees_of(Path(folder), asked.packs, asked.spans)
        one = run(jobs, 1)
        two = run(jobs, 2)
        killed = run(jobs, 2, kill_one=True)
    expected = [job.path.name for job in jobs]
    alike = all(found["names"] == expected and found["answers"] == one["answers"] for found in (one, two, killed))
    errors = [error for error, _ in one["answers"] if error]
    told = {
        "packs": asked.packs,
        "spans": asked.spans,
        "one_node_s": round(one["seconds"], 2),
        "two_nodes_s": round(two["seconds"], 2),
        "speed_of_two": round(one["seconds"] / two["seconds"], 2),
        "one_of_two_killed_s": round(killed["seconds"], 2),
        "processes_killed": killed["killed"],
        "every_pack_once_and_alike": alike,
        "errors": errors[:3],
    }
    print(json.dumps(told, indent=1))
    return 0 if alike and killed["killed"] and not errors else 1


if __name__ == "__main__":
    sys.exit(main())
