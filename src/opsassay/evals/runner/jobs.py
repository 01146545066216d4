"""What a command is at work on: a file in the store as long as it runs jobs, so that others see how far it is.

``ROOT/jobs/<pid>.<random>.json`` is removed at the end; that of a killed process by the next command that runs jobs here.
"""

from __future__ import annotations

import os
import secrets
import signal
import socket
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import ClassVar

import psutil

from opsassay.core.errors import OpsAssayError, UserError
from opsassay.core.schema.base import Artefact
from opsassay.core.untrusted import read_plain
from opsassay.evals.runner.lease import is_alive
from opsassay.telemetry.clock import boot_id
from opsassay.telemetry.content import whole_file

JOBS = "jobs"
LARGEST = 64 * 2**20


class JobsAtWork(Artefact):
    """The *cells* that a process runs, *workers* at a time, since *started_ns* of UTC."""

    SCHEMA_VERSION: ClassVar[int] = 1

    pid: int
    process_started: float
    host: str
    boot_id: str
    started_ns: int
    workers: int
    cells: tuple[str, ...]

    def is_here(self) -> bool:
        """Return whether it is of this machine, as it runs now."""
        return self.host == socket.gethostname() and self.boot_id == boot_id()

    def runs(self) -> bool | None:
        """Return whether its process runs, None where it is another machine's."""
        return is_alive(self.model_dump()) if self.is_here() else None


@contextmanager
def at_work(root: Path, cells: Sequence[str], workers: int) -> Iterator[None]:
    """Tell in the store at *root* which *cells* are being run while the block runs, as far as it can be written to."""
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
    """Yield what runs into the store at *root*, with its file; what cannot be read is left out."""
    with suppress(OSError):
        for path in sorted((root / JOBS).glob("*.json")):
            with suppress(OpsAssayError, OSError, ValueError):
                yield path, JobsAtWork.model_validate_json(read_plain(path, LARGEST))


def cancel(work: JobsAtWork) -> None:
    """Interrupt who is at *work*, as Ctrl-C does: what runs is ended and marked as aborted. Raises UserError."""
    if not work.runs():
        raise UserError("Its process does not run on this machine any more; reload the page.")
    try:
        command = psutil.Process(work.pid).cmdline()
        if not any("opsassay" in part for part in command):  # a file in a store may name any process
            raise UserError(f"Process {work.pid} is none of OpsAssay's; nothing was done to it.")
        os.kill(work.pid, signal.SIGINT)
    except (psutil.Error, OSError) as error:
        raise UserError(f"Process {work.pid} cannot be interrupted: {error}; end it where it was started.") from error
