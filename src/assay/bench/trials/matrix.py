"""Running a plan into a store: one cell after the other, resumable, watched, no cell scored twice.

Each attempt is a process group of its own under a watchdog. One that hangs, dies or whose machinery fails is *aborted*:
it is logged, it is no result, and its cell is run again. What an agent did is a result whatever it was.
"""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from assay import __version__
from assay.bench.store import RunStore
from assay.bench.trials.contract import REPORT
from assay.bench.trials.grading import grade_trial, keep_scenario
from assay.bench.trials.plan import Cell, TrialPlan
from assay.errors import AssayError, UserError
from assay.model.run import Run, RunStatus, Solver
from assay.telemetry.clock import boot_id

PERFORM = "assay.bench.trials.perform:perform"
GRACE_S = 20.0
"""How long a trial that was told to end may take to remove its system."""
WORKER_LOG, LOCK = "solver.log", "matrix.lock"

Tell = Callable[[str], None]


def run_matrix(
    plan: TrialPlan, cells: Sequence[Cell], store: RunStore, *, performer: str = PERFORM, tell: Tell = lambda _: None
) -> list[Path]:
    """Run every cell that has no result yet and grade it; return the folders of all results, in the order of *cells*.

    *performer* is the dotted path of what performs a trial. A cell whose attempts all failed has no folder in the answer.
    Raises UserError when another matrix runs into the same store.
    """
    store.root.mkdir(parents=True, exist_ok=True)
    with _alone(store.root):
        return _run(plan, cells, store, performer, tell)


@contextmanager
def _alone(root: Path) -> Iterator[None]:
    """Hold the store's lock; it ends with the process, however that ends."""
    with (root / LOCK).open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise UserError(f"Another matrix is running into {root}; wait for it or choose another folder.") from error
        yield


def _run(plan: TrialPlan, cells: Sequence[Cell], store: RunStore, performer: str, tell: Tell) -> list[Path]:
    done: list[Path] = []
    for number, cell in enumerate(cells, 1):
        keep_scenario(store.root, cell.scenario)
        store.mark_aborted(cell.key)
        folder = store.finished(cell.key)
        tell(f"{number}/{len(cells)} {cell.label}" + (": done before" if folder else ""))
        for _ in range(0 if folder else plan.retries + 1):
            folder, problem = _attempt(cell, store, cell.timeout_s(plan), performer)
            if problem is None:
                break
            tell(f"  aborted: {problem}")
            folder = None
        if folder is not None:
            try:
                certificate = grade_trial(folder, cell.scenario).judgement("certificate")
            except AssayError as error:  # its record is torn: the run stays, ungraded
                tell(f"  failed to grade: {error}")
                continue
            tell(f"  {'certified' if certificate.passed else certificate.reason}")
            done.append(folder)
    return done


def _attempt(cell: Cell, store: RunStore, timeout_s: float, performer: str) -> tuple[Path, str | None]:
    """Make one attempt; return its folder, and why it is no result."""
    started_ns = time.time_ns()
    run = Run(
        cell=cell.key,
        attempt=0,
        item=cell.scenario.id,
        item_hash=cell.scenario.digest(),
        system=cell.scenario.environment.system,
        solver=Solver(name=cell.agent.name, kind="agent", configuration=cell.agent.model_dump(mode="json")),
        solver_hash=cell.agent_digest,
        arm=cell.arms,
        seed=cell.seed,
        isolation="unsealed" if cell.agent.command else "in_process",
        started_ns=started_ns,
        boot_id=boot_id(),
        versions={"assay": __version__},
        limits={"timeout_s": timeout_s, "agent_timeout_s": cell.scenario.environment.agent_timeout_s},
    )
    run_dir, run = store.begin(run)
    try:
        problem = _perform(cell, run_dir, timeout_s, performer)
    except BaseException:
        gone = {"status": RunStatus.ABORTED, "error": "interrupted", "ended_ns": time.time_ns()}
        store.end(run_dir, run.model_copy(update=gone))
        raise
    status = RunStatus.DONE if problem is None else RunStatus.ABORTED
    ended = {"status": status, "error": problem, "ended_ns": time.time_ns(), "isolation": _isolation(run_dir, run)}
    store.end(run_dir, run.model_copy(update=ended))
    return run_dir, problem


def _isolation(run_dir: Path, run: Run) -> str:
    """Return how the agent was kept apart: what is told of a command when it has ended, else what *run* began with."""
    report = run_dir / REPORT
    if run.isolation == "unsealed" and report.exists() and json.loads(report.read_text(encoding="utf-8"))["sealed"]:
        return "sealed"
    return run.isolation


def _perform(cell: Cell, run_dir: Path, timeout_s: float, performer: str) -> str | None:
    """Perform the trial in a process group of its own; return what went wrong with the machinery, None for nothing."""
    order: dict[str, Any] = {
        "performer": performer,
        "scenario": cell.scenario.model_dump(mode="json", by_alias=True),
        "agent": cell.agent.model_dump(mode="json"),
        "arm": cell.arm,
        "probes": cell.probes,
        "seed": cell.seed,
        "cluster": cell.cluster.model_dump(mode="json") if cell.scenario.cluster is not None else None,
        "run_dir": str(run_dir.resolve()),
    }
    with (run_dir / WORKER_LOG).open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "assay.bench.trials.worker"],
            stdin=subprocess.PIPE, stdout=log, stderr=log, start_new_session=True,
        )  # fmt: skip
        assert process.stdin is not None
        try:
            with suppress(BrokenPipeError):  # it ended at once, which its exit code tells
                process.stdin.write(json.dumps(order).encode())
                process.stdin.close()
            code = process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return f"it hung: no end after {timeout_s:g} s"
        finally:
            _end(process)
    if code == 0:
        return None
    last = (run_dir / WORKER_LOG).read_text(errors="replace").strip().splitlines()[-1:]
    return " ".join(last) or f"its process ended with {code}"


def _end(process: subprocess.Popen[bytes]) -> None:
    """End the whole group: first asked, so that it removes its system, then killed."""
    with suppress(ProcessLookupError):
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGTERM)
            with suppress(subprocess.TimeoutExpired):
                process.wait(GRACE_S)
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
