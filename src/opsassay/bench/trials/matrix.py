"""Running a plan into a store: some cells side by side, resumable, watched, no cell scored twice.

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
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from opsassay import __version__
from opsassay.bench.parallel import heed_interrupts
from opsassay.bench.store import RunStore
from opsassay.bench.trials.contract import REPORT
from opsassay.bench.trials.grading import grade_trial, keep_scenario
from opsassay.bench.trials.plan import Cell, TrialPlan
from opsassay.errors import OpsAssayError, UserError
from opsassay.logs import last_words
from opsassay.model.run import Run, RunStatus, Solver
from opsassay.telemetry.clock import boot_id

PERFORM = "opsassay.bench.trials.perform:perform"
GRACE_S = 20.0
"""How long a trial that was told to end may take to remove its system."""
LOOK_S = 0.5
"""How often a trial that runs is looked at."""
WORKER_LOG, LOCK = "solver.log", "matrix.lock"

Tell = Callable[[str], None]


def run_matrix(
    plan: TrialPlan,
    cells: Sequence[Cell],
    store: RunStore,
    *,
    jobs: int = 1,
    performer: str = PERFORM,
    tell: Tell = lambda _: None,
) -> list[Path]:
    """Run every cell that has no result yet and grade it; return the folders of all results, in the order of *cells*.

    *jobs* trials run side by side, each on a system of its own. *performer* is the dotted path of what performs a trial.
    A cell whose attempts all failed has no folder in the answer. An interrupted call ends its trials, which remove their
    systems; so does one that is killed. Raises UserError when another matrix runs into the same store.
    """
    store.root.mkdir(parents=True, exist_ok=True)
    with _alone(store.root):
        return _run(_Matrix(plan, store, performer, tell), cells, jobs)


@contextmanager
def _alone(root: Path) -> Iterator[None]:
    """Hold the store's lock; it ends with the process, however that ends."""
    with (root / LOCK).open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise UserError(f"Another matrix is running into {root}; wait for it or choose another folder.") from error
        yield


@dataclass(frozen=True)
class _Matrix:
    """What all trials of one call share; *given_up* is set when it is interrupted."""

    plan: TrialPlan
    store: RunStore
    performer: str
    tell: Tell
    given_up: threading.Event = field(default_factory=threading.Event)


def _run(matrix: _Matrix, cells: Sequence[Cell], jobs: int) -> list[Path]:
    heed_interrupts()
    with ThreadPoolExecutor(max(1, jobs), thread_name_prefix="trial") as pool:
        try:
            named = ((f"{number}/{len(cells)} {cell.label}", cell) for number, cell in enumerate(cells, 1))
            futures = [pool.submit(_run_cell, matrix, name, cell) for name, cell in named]
            return [folder for future in futures if (folder := future.result()) is not None]
        except BaseException:
            matrix.given_up.set()
            pool.shutdown(wait=True, cancel_futures=True)
            raise


def _run_cell(matrix: _Matrix, name: str, cell: Cell) -> Path | None:
    """Run *cell* until it has a result or no attempt is left, and grade it; KeyboardInterrupt when all is given up."""
    if matrix.given_up.is_set():
        raise KeyboardInterrupt
    store, tell = matrix.store, matrix.tell
    keep_scenario(store.root, cell.scenario)
    store.mark_aborted(cell.key)
    folder = store.finished(cell.key)
    tell(name + (": done before" if folder else ""))
    for _ in range(0 if folder else matrix.plan.retries + 1):
        folder, problem = _attempt(matrix, cell)
        if problem is None:
            break
        tell(f"{name}: aborted: {problem}")
        folder = None
    if folder is None:
        return None
    try:
        certificate = grade_trial(folder, cell.scenario).judgement("certificate")
    except OpsAssayError as error:  # its record is torn: the run stays, ungraded
        tell(f"{name}: failed to grade: {error}")
        return None
    tell(f"{name}: {'certified' if certificate.passed else certificate.reason}")
    return folder


def _attempt(matrix: _Matrix, cell: Cell) -> tuple[Path, str | None]:
    """Make one attempt; return its folder, and why it is no result."""
    store, timeout_s, started_ns = matrix.store, cell.timeout_s(matrix.plan), time.time_ns()
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
        versions={"opsassay": __version__},
        limits={"timeout_s": timeout_s, "agent_timeout_s": cell.scenario.environment.agent_timeout_s},
    )
    run_dir, run = store.begin(run)
    try:
        problem = _perform(matrix, cell, run_dir, timeout_s)
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


def _perform(matrix: _Matrix, cell: Cell, run_dir: Path, timeout_s: float) -> str | None:
    """Perform the trial in a process group of its own; return what went wrong with the machinery, None for nothing.

    Raises KeyboardInterrupt when the matrix is given up.
    """
    order: dict[str, Any] = {
        "performer": matrix.performer,
        "matrix": os.getpid(),
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
            [sys.executable, "-m", "opsassay.bench.trials.worker"],
            stdin=subprocess.PIPE, stdout=log, stderr=log, start_new_session=True,
        )  # fmt: skip
        assert process.stdin is not None
        try:
            with suppress(BrokenPipeError):  # it ended at once, which its exit code tells
                process.stdin.write(json.dumps(order).encode())
                process.stdin.close()
            code = _wait(process, timeout_s, matrix.given_up)
        except subprocess.TimeoutExpired:
            return f"it hung: no end after {timeout_s:g} s"
        finally:
            _end(process)
    if code == 0:
        return None
    return last_words((run_dir / WORKER_LOG).read_text(errors="replace")) or f"its process ended with {code}"


def _wait(process: subprocess.Popen[bytes], timeout_s: float, given_up: threading.Event) -> int:
    """Return the exit code of *process*; raises TimeoutExpired, and KeyboardInterrupt when it is *given_up*."""
    ends = time.monotonic() + timeout_s
    while not given_up.is_set():
        with suppress(subprocess.TimeoutExpired):
            return process.wait(min(LOOK_S, max(0.0, ends - time.monotonic())))
        if time.monotonic() >= ends:
            raise subprocess.TimeoutExpired(process.args, timeout_s)
    raise KeyboardInterrupt


def _end(process: subprocess.Popen[bytes]) -> None:
    """End the whole group: first asked, so that it removes its system, then killed."""
    with suppress(ProcessLookupError):
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGTERM)
            with suppress(subprocess.TimeoutExpired):
                process.wait(GRACE_S)
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
