"""Running: jobs of any domain side by side, each until it has a result; resumable after any end, shared by many workers."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from opsassay.core.parallel import heed_interrupts
from opsassay.core.schema.progress import SILENT, Progress
from opsassay.core.schema.run import Metric, Run
from opsassay.evals.runner.jobs import at_work
from opsassay.evals.runner.lease import LeasedError, LeaseLostError
from opsassay.evals.runner.run_spec import RunSpec
from opsassay.evals.runner.store import RunStore

LOOK_S = 0.5
"""How often a cell that another worker runs is looked at."""


class Job(Protocol):
    """One cell that is to be run: a domain knows how."""

    @property
    def cell(self) -> RunSpec:
        """The cell."""

    @property
    def task_name(self) -> str:
        """What the task is called."""

    @property
    def solver_name(self) -> str:
        """What the solver is called."""

    @property
    def live(self) -> bool:
        """Whether a system is deployed and broken for it, whose phases are written to the folder of its run."""

    def run(self, store: RunStore, given_up: Callable[[], bool], say: Callable[[str], None]) -> JobEnd:
        """Run the cell until it has a result, or find the one that it has; raises LeasedError."""

    def evaluate(self, run_dir: Path) -> Mapping[str, Metric]:
        """Grade the run in *run_dir* and return its metrics; none when nothing is known to grade it by."""

    def end_all(self) -> None:
        """End what jobs of this kind run, at once; called again until they have ended."""


@dataclass(frozen=True)
class JobEnd:
    """What became of a job: the folder and record of its run, or the error that kept it from being one.

    *message* says it in a line; *known* tells that it had its result before.
    """

    job: Any
    run_dir: Path | None
    run: Run | None
    error: str | None = None
    message: str = ""
    known: bool = False

    @property
    def spent(self) -> Mapping[str, float]:
        """What its run spent."""
        return self.run.spent if self.run is not None else {}


def run_jobs(store: RunStore, jobs: Sequence[Job], workers: int = 1, progress: Progress = SILENT) -> Iterator[JobEnd]:
    """Yield what becomes of each of *jobs* in their order, *workers* at a time.

    A job that another worker runs is looked at again after the others, until it has a result or can be taken over. When
    the caller is interrupted or wants no more, what runs is ended and marked as aborted.
    """
    heed_interrupts()
    stopped = threading.Event()
    futures: list[Future[JobEnd]] = [Future() for _ in jobs]
    waiting = deque(
        (f"{number}/{len(jobs)} {job.task_name}: {job.solver_name}", job, future)
        for number, (job, future) in enumerate(zip(jobs, futures, strict=True), 1)
    )

    def work() -> None:
        while not stopped.is_set():
            try:
                name, job, future = entry = waiting.popleft()
            except IndexError:
                return
            try:
                progress.started(name)
                end = job.run(store, stopped.is_set, partial(progress.advanced, name))
                progress.finished(name, end.message, end.spent)
                future.set_result(end)
            except (LeasedError, LeaseLostError):
                waiting.append(entry)
                stopped.wait(LOOK_S)
            except BaseException as error:  # noqa: BLE001 - the caller gets it
                future.set_exception(error)

    pool = ThreadPoolExecutor(max(1, workers), thread_name_prefix="opsassay-run")
    running = [pool.submit(work) for _ in range(min(max(1, workers), len(jobs)))]
    try:
        with at_work(store.root, [job.cell.hash for job in jobs], workers):
            for future in futures:
                yield future.result()
    finally:
        stopped.set()
        kinds = {type(job): job for job in jobs}.values()
        given_up = not all(future.done() for future in futures)
        while given_up and not all(one.done() for one in running):  # what was just about to start has to end too
            for job in kinds:
                job.end_all()
            for one in running:
                with suppress(TimeoutError):
                    one.exception(0.2)
        pool.shutdown(wait=True)
