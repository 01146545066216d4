"""Stores of runs for the tests of pages: made by the store's own code, graded as `opsassay grade` leaves them."""

from __future__ import annotations

from opsassay.bench.core.grading import verdict_of
from opsassay.bench.core.store import RunStore, cell_hash, write_verdict
from opsassay.model.run import Metric, MetricStatus, Run, RunStatus, Solver


def run_of(solver="good", task="t-00", seed=0, **further):
    given = {
        "cell": cell_hash(task, solver, "default", seed), "attempt": 0, "domain": "finops", "item": task,
        "item_hash": f"form of {task}", "system": "focus", "solver": Solver(name=solver, kind="agent"),
        "solver_hash": f"hash of {solver}", "seed": seed, "started_ns": 10**18, "isolation": "sealed",
        "spent": {"model_calls": 2.0},
    }  # fmt: skip
    return Run(**given | further)


def begun(root, **given):
    """Return the folder and the record of a run that has begun."""
    return RunStore(root).begin(run_of(**given))


def ended(root, passed=True, *, status=RunStatus.DONE, graded=True, reason="", error=None, **given):
    """Return the folder of a run that has ended."""
    folder, run = begun(root, **given)
    finish(root, folder, run, status, error)
    if graded:
        value = None if reason else float(passed)
        metric = Metric(value=value, status=MetricStatus.FAILED if reason else MetricStatus.SCORED, reason=reason)
        write_verdict(folder, verdict_of(run, {"passed": metric}))
    return folder


def finish(root, folder, run, status=RunStatus.DONE, error=None):
    RunStore(root).end(folder, run.model_copy(update={"status": status, "ended_ns": 10**18 + 10**9, "error": error}))


def two_solvers(root, tasks=20):
    """Make a store in which one solver succeeds on all but two tasks and another on two."""
    for at in range(tasks):
        ended(root, at >= 2, solver="good", task=f"t-{at:02}", started_ns=10**18 + at)
        ended(root, at < 3, solver="poor", task=f"t-{at:02}", started_ns=10**18 + at)
    return root
