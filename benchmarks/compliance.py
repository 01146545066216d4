"""Compliance tasks: how long it takes to judge every oracle of every task, and that each ends where it says.

python benchmarks/compliance.py [--seeds 5]
"""

from __future__ import annotations

import argparse
import sys
import time

from opsassay.bench.domains.ciso.grading import STAGES, grade_files
from opsassay.bench.domains.ciso.oracles import ORACLES
from opsassay.bench.domains.ciso.repository import FOLDER
from opsassay.bench.domains.ciso.tasks import ComplianceTask, names


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5, help="so many, from 1000 on")
    given = parser.parse_args()
    began, judged, wrong, killed = time.perf_counter(), 0, [], []
    for seed in range(1000, 1000 + given.seeds):
        for name in names():
            task = ComplianceTask(name=name, seed=seed)
            for oracle, (play, stage) in ORACLES[task.task_class].items():
                files = {path: content for path, content in play(task).items() if path.startswith(f"{FOLDER}/")}
                found = grade_files(files, task)
                failed = [one for one in STAGES if found[one].value == 0.0]
                judged += 1
                if failed != ([stage] if stage else []):
                    wrong.append(f"{name}, seed {seed}, {oracle}: {failed} instead of {stage}")
                if oracle == "right":
                    killed.append(found["mutation_kill_rate"].value or 0.0)
    took = time.perf_counter() - began
    print(
        f"{judged} answers judged in {took:.1f} s, {1000 * took / judged:.1f} ms each, {took / given.seeds:.1f} s a seed"
    )
    print(f"mutants judged rightly by right oracles: {sum(killed) / len(killed):.4f}")
    print("\n".join(wrong) or "every oracle ends where it says")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
