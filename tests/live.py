"""Real systems for tests: a short state folder of their own, nothing left behind, telemetry read back from the receiver."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import polars as pl
import psutil
import pytest

from opsassay.telemetry.otlp.seal import decode_spool
from opsassay.testbed.core.state import MARKER
from opsassay.testbed.substrates.local.substrate import LocalSystem, _started


@contextmanager
def state_folder() -> Iterator[Path]:
    """Point OPSASSAY_STATE at a fresh short folder (Unix sockets have short paths) and fail if anything outlives it."""
    folder = Path(tempfile.mkdtemp(prefix="opsassay-", dir="/tmp"))
    before = os.environ.get("OPSASSAY_STATE")
    os.environ["OPSASSAY_STATE"] = str(folder)
    try:
        yield folder
    finally:
        if before is None:
            del os.environ["OPSASSAY_STATE"]
        else:
            os.environ["OPSASSAY_STATE"] = before
        left = strays(folder)
        for process in left:
            process.kill()
        shutil.rmtree(folder, ignore_errors=True)
        assert not left, f"processes were left behind: {left}"
        ours = [process for state, process in _started.items() if state.is_relative_to(folder)]
        lost = [process.pid for process in ours if process.returncode is None]
        assert not lost, f"supervisors that nobody waited for: {lost}"


def strays(folder: Path) -> list[psutil.Process]:
    """Return the processes that belong to any system below *folder*, by marker, by open files or by working folder."""
    found = []
    for process in psutil.process_iter():
        try:
            traces = [process.environ().get(MARKER, ""), process.cwd(), *process.cmdline()]
            if any(str(folder) in trace for trace in traces) and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except psutil.Error:
            continue
    return found


def run_opsassay(*arguments: str, timeout: float = 280, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run the command line as a user does."""
    command = [sys.executable, "-m", "opsassay", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=timeout, cwd=cwd, check=False)


def skip_if_starved(said: str) -> None:
    """Skip, with its sentence, when *said* names a trial that other work on this machine left without a result."""
    if found := re.search(r"^.*no result: starved.*$", said, re.MULTILINE):
        pytest.skip(f"no repair can be judged on this machine now: {found[0]}")


class Recording:
    """A recording session on a running system; *tables* after the block, in the datapack's columns."""

    def __init__(self, running: LocalSystem, folder: Path) -> None:
        self.running, self.folder = running, folder
        self.tables: dict[str, pl.DataFrame] = {}

    def __enter__(self) -> Recording:
        self._receiver = self.running.receiver
        self._receiver.open_session(self.folder, self.folder.name)
        self.started_ns = time.time_ns()
        return self

    def __exit__(self, *_: object) -> None:
        self.running.flush()
        time.sleep(0.5)
        self.stats = self._receiver.close_session(self.folder.name)
        self.tables = decode_spool(self.folder)

    def spans(self, since_ns: int, until_ns: int, **equal: str) -> pl.DataFrame:
        """Return the spans that began in [since, until) and whose columns equal what is given."""
        columns = {"service": "service_name", "kind": "attr.span_kind", "name": "span_name"}
        found = self.tables["traces"].filter(
            pl.col("time").cast(pl.Int64).is_between(since_ns, until_ns, closed="left")
        )
        for key, value in equal.items():
            found = found.filter(pl.col(columns[key]) == value)
        return found
