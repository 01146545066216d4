"""Runs planned runs in parallel until each has a result; can be resumed, and many workers can share a store.

While a command runs, ``ROOT/jobs/<pid>.<random>.json`` lists its runs. The file is removed at the end; that of a killed
process is removed by the next command on that store.
"""

from __future__ import annotations

import os
import secrets
import signal
import socket
import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import ClassVar

import psutil

from opsassay.core.errors import OpsAssayError, UserError
from opsassay.core.parallel import heed_interrupts
from opsassay.core.schema.base import Artefact, Int64
from opsassay.core.schema.progress import SILENT, Progress
from opsassay.core.untrusted import read_plain
from opsassay.evals.runner.lease import LeasedError, LeaseLostError, is_alive
from opsassay.evals.runner.run import PlannedRun, RunEnd
from opsassay.evals.runner.store import RunStore
from opsassay.telemetry.clock import boot_id
from opsassay.telemetry.content import whole_file

LOOK_S = 0.5
"""Seconds between two checks of a cell that another worker runs."""


JOBS = "jobs"
LARGEST = 64 * 2**20


class JobsAtWork(Artefact):
    """The *cells* that a command runs, *workers* at a time, since *started_ns* (UTC)."""

    SCHEMA_VERSION: ClassVar[int] = 1

    pid: int
    process_started: float
    host: str
    boot_id: str
    started_ns: Int64
    workers: int
    cells: tuple[str, ...]

    def is_here(self) -> bool:
        """Return whether the command was started on this machine since its last boot."""
        return self.host == socket.gethostname() and self.boot_id == boot_id()

    def runs(self) -> bool | None:
        """Return whether the command's process is running, None when it is on another machine."""
        return is_alive(self.model_dump()) if self.is_here() else None


@contextmanager
def at_work(root: Path, cells: Sequence[str], workers: int) -> Iterator[None]:
    """Record in the store *root*, if writable, that this process runs *cells* with *workers* during the with block."""
    path = root / JOBS / f"{os.getpid()}.{secrets.token_hex(4)}.json"
    work = JobsAtWork(
        pid=os.getpid(), process_started=psutil.Process().create_time(), host=socket.gethostname(), boot_id=boot_id(),
        started_ns=time.time_ns(), workers=workers, cells=tuple(cells),
    )  # fmt: skip
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        for left, other in jobs_of(root):
            if other.runs() is False:
                left.unlink(missing_ok=True)
        with whole_file(path) as partial:
            partial.write_text(work.pretty_json(), encoding="utf-8")
    try:
        yield
    finally:
        with suppress(OSError):
            path.unlink(missing_ok=True)
            path.parent.rmdir()


def jobs_of(root: Path) -> Iterator[tuple[Path, JobsAtWork]]:
    """Yield (file, record) of each command recorded as running in the store *root*; unreadable files are skipped."""
    with suppress(OSError):
        for path in sorted((root / JOBS).glob("*.json")):
            with suppress(OpsAssayError, OSError, ValueError):
                yield path, JobsAtWork.model_validate_json(read_plain(path, LARGEST))


def cancel(work: JobsAtWork) -> None:
    """Interrupt the command of *work* as Ctrl-C does, so that its runs are aborted; UserError if it is not running here."""
    if not work.runs():
        raise UserError("Its process does not run on this machine any more; reload the page.")
    try:
        command = psutil.Process(work.pid).cmdline()
        if not any("opsassay" in part for part in command):  # a file in a store may name any process
            raise UserError(f"Process {work.pid} is none of OpsAssay's; nothing was done to it.")
        os.kill(work.pid, signal.SIGINT)
    except (psutil.Error, OSError) as error:
        raise UserError(f"Process {work.pid} cannot be interrupted: {error}; end it where it was started.") from error


def make_runs(
    store: RunStore, jobs: Sequence[PlannedRun], workers: int = 1, progress: Progress = SILENT
) -> Iterator[RunEnd]:
    """Yield how each of *jobs* ended, in order, running *workers* at a time.

    A job that another process is running is tried again after the others, until it has a result or can be taken over.
    When the caller stops early, running jobs are ended and marked as aborted.
    """
    heed_interrupts()
    stopped = threading.Event()
    futures: list[Future[RunEnd]] = [Future() for _ in jobs]
    waiting = deque(
        (f"{number}/{len(jobs)} {job.task_name}: {job.solver_name}", job, future)
        for number, (job, future) in enumerate(zip(jobs, futures, strict=True), 1)
    )

    def work() -> None:
        """Make runs until none waits; one that another process has leased goes back to the end."""
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
