"""Every oracle of the live cost tasks, and whether each ends where its file says: certificate, mark, metrics.

    python benchmarks/cost_oracles.py STORE [--cluster FILE] [--only TASK ...] [--at-most N] [-j JOBS]

With a FILE, the `cluster` block of a plan, it is the tasks on Kubernetes, else those on this machine. A store that is
given again is gone on with, by *N* trials at most.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from opsassay.core.schema.files import load_yaml
from opsassay.core.schema.progress import ProgressLines
from opsassay.evals.cost.live.solve import LiveCostRun, evaluate_live
from opsassay.evals.cost.live.tasks import LOCAL_TASKS, ON_KUBERNETES, live_task
from opsassay.evals.remediation.score import grade_trial
from opsassay.evals.remediation.trial.contract import TrialAgent
from opsassay.evals.runner.queue import make_runs
from opsassay.evals.runner.store import RunStore
from opsassay.testbed.substrates.kubernetes.settings import ClusterSettings


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("store", type=Path)
    parser.add_argument("--cluster", type=Path, help="a YAML file: the `cluster` block of a plan")
    parser.add_argument("--only", nargs="*", choices=LOCAL_TASKS, default=LOCAL_TASKS)
    parser.add_argument("--at-most", type=int, default=100, help="trials that are made by this call")
    parser.add_argument("-j", "--jobs", type=int, default=1, help="trials side by side")
    given = parser.parse_args()
    settings = load_yaml(given.cluster, ClusterSettings) if given.cluster else ClusterSettings()
    names = [name + (ON_KUBERNETES if given.cluster else "") for name in given.only]
    jobs = [
        LiveCostRun.for_task(name, TrialAgent(name=f"oracle:{oracle}"), 0, settings)
        for name in names
        for oracle in live_task(name).scenario.oracles
    ]
    jobs.sort(key=lambda job: job.agent.oracle != "right")  # whether a task can be solved at all is known first
    store, began = RunStore(given.store), time.monotonic()
    store.root.mkdir(parents=True, exist_ok=True)
    waiting = [job for job in jobs if store.finished(job.cell.hash) is None]
    for end in make_runs(
        store, waiting[: given.at_most], given.jobs, ProgressLines(lambda line: print(line, flush=True))
    ):
        print(end.message, flush=True)
    print(f"{min(given.at_most, len(waiting))} trials in {time.monotonic() - began:.0f} s")
    judged = [_judged(job, folder) for job in jobs if (folder := store.finished(job.cell.hash)) is not None]
    print(f"{sum(judged)} of {len(judged)} as their files say, {len(jobs) - len(judged)} not run")
    return 0 if sum(judged) == len(jobs) else 1


def _judged(job: LiveCostRun, folder: Path) -> bool:
    """Print what came of one trial; return whether it is what its file says."""
    name, oracle = job.scenario.id, job.agent.oracle or ""
    block, expected = live_task(name).cost, job.scenario.oracles[oracle]
    metrics = evaluate_live(folder, job.scenario)
    failed = {one.predicate for one in grade_trial(folder, job.scenario).judgements if one.failed} - {"certificate"}
    mark = block.fails.get(oracle)
    right = expected.is_met(failed)
    if mark is None:
        right &= metrics["passed"].value == 1.0 and metrics["diagnosis_right"].value == 1.0
    else:
        right &= metrics["passed"].value == 0.0 and metrics[mark].value == 0.0
    near = " ".join(f"{metrics[f'proximity_{one}'].value or float('nan'):.2f}" for one in ("cpu_cost", "memory_cost"))
    why = metrics["passed"].reason or "passed"
    print(f"{name:30} {oracle:16} {'as said' if right else 'NOT AS SAID':12} {mark or 'passes':22} {near}  {why}")
    if not right:
        print(f"{'':30} predicates failed: {sorted(failed)}, by its file {sorted(expected.fails)}")
    return right


if __name__ == "__main__":
    sys.exit(main())
