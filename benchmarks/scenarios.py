"""Every oracle of every scenario, five times: the gentle ones certify, the others fail exactly what their file says.

Resumable: a store that is given again is gone on with, and no cell is run or scored twice. Hours on a small machine.

    python benchmarks/scenarios.py STORE [--repeats 5] [-j 1] [--only NAME ...]
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from pathlib import Path

from opsassay.bench.core.oracles import EVERY_ORACLE
from opsassay.bench.core.store import RunStore
from opsassay.bench.domains.sre.contract import TrialAgent
from opsassay.bench.domains.sre.grading import grade_trial
from opsassay.bench.domains.sre.plan import TrialPlan, cells_of
from opsassay.bench.domains.sre.trials import TrialJob, run_trials
from opsassay.model.progress import ProgressLines
from opsassay.testbed.scenarios import names

PROBED = ("slow-archive", "oracle:patient")
"""Rejected for the probe alone: with probes off the same repair is certified."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("store", type=Path, help="folder of the runs")
    parser.add_argument("--repeats", type=int, default=5, help="runs of each oracle")
    parser.add_argument("-j", "--jobs", type=int, default=1, help="trials side by side")
    parser.add_argument("--only", nargs="*", default=names("local"), help="scenarios; all when left out")
    arguments = parser.parse_args()
    plan = TrialPlan(
        scenarios=tuple(arguments.only), agents=(TrialAgent(name=EVERY_ORACLE),), repeats=arguments.repeats
    )
    cells = list(cells_of(plan))
    if PROBED[0] in arguments.only:
        off = TrialPlan(
            scenarios=PROBED[:1], agents=(TrialAgent(name=PROBED[1]),), probes=(False,), repeats=arguments.repeats
        )
        cells += cells_of(off)
    store = RunStore(arguments.store)
    run_trials(
        store, cells, arguments.jobs, progress=ProgressLines(lambda line: print(f"{line}\n", end="", flush=True))
    )
    right, seen = Counter[str](), Counter[str]()
    for cell in cells:
        if (folder := store.finished(cell.cell.hash)) is None:
            continue
        verdict = grade_trial(folder, cell.scenario)
        failed = {judged.predicate for judged in verdict.judgements if judged.failed} - {"certificate"}
        row = f"{cell.scenario.id:30} {cell.agent.name:22} {cell.cell.arm.label}"
        seen[row] += 1
        right[row] += failed == _expected(cell)
    for row in sorted(seen):
        print(f"{row:75} {right[row]} of {seen[row]} as its file says")
    wanted = len({(c.scenario.id, c.agent.name, c.cell.arm.label) for c in cells}) * arguments.repeats
    print(f"{right.total()} of {wanted} runs as they should be")
    return 0 if right.total() == wanted else 1


def _expected(cell: TrialJob) -> set[str]:
    fails: set[str] = set(cell.scenario.oracles[cell.agent.oracle or ""].fails)
    return fails if cell.probes else fails - {"v_probe"}


if __name__ == "__main__":
    sys.exit(main())
