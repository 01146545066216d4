"""Compliance tasks: how long it takes to judge every oracle of every task, and that each ends where it says.

python benchmarks/compliance.py [--seeds 1] [--class new-opa-ansible]
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory

from opsassay.evals.compliance.clusters.repository import FOLDER
from opsassay.evals.compliance.evidence_collection.cache import EvidenceCache
from opsassay.evals.compliance.score import STAGES, grade_files
from opsassay.evals.compliance.scripts.oracles import ORACLES
from opsassay.evals.compliance.tasks import CLASSES, ComplianceTask, names


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=1, help="so many, from 1000 on")
    parser.add_argument("--class", dest="classes", action="append", choices=CLASSES, help="of these classes alone")
    given = parser.parse_args()
    tasks = [ComplianceTask(name=name, seed=seed) for seed in range(1000, 1000 + given.seeds) for name in names()]
    tasks = [one for one in tasks if not given.classes or one.task_class in given.classes]
    began = time.perf_counter()
    with TemporaryDirectory() as folder, ThreadPoolExecutor(os.cpu_count()) as pool:
        shelf = EvidenceCache(Path(folder))
        rows = [row for some in pool.map(lambda task: list(judged(task, shelf)), tasks) for row in some]
    took = time.perf_counter() - began
    wrong = [problem for problem, _ in rows if problem]
    killed = [rate for _, rate in rows if rate is not None]
    print(f"{len(tasks)} tasks, {len(rows)} answers judged in {took:.1f} s, {took / given.seeds:.1f} s a seed")
    print(f"mutants judged rightly by right oracles: {sum(killed) / len(killed):.4f}")
    print("\n".join(wrong) or "every oracle ends where it says")
    return bool(wrong)


def judged(task: ComplianceTask, shelf: EvidenceCache) -> Iterator[tuple[str | None, float | None]]:
    """Yield for each oracle of *task* what is wrong with its end, and the mutation kill rate of the right one."""
    for oracle, (play, stage) in ORACLES[task.task_class].items():
        asked = (f"{FOLDER}/",) if task.collector is None else ("",)
        files = {path: content for path, content in play(task).items() if path.startswith(asked)}
        found = grade_files(files, task, shelf)
        failed = [one for one in STAGES if found[one].value == 0.0]
        fits = failed == ([stage] if stage else []) and found["passed"].value == float(oracle == "right")
        problem = None if fits else f"{task.name}, seed {task.seed}, {oracle}: {failed} instead of {stage}"
        yield problem, (found["mutation_kill_rate"].value or 0.0) if oracle == "right" else None


if __name__ == "__main__":
    sys.exit(main())
