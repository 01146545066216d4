"""Run one solver on one incident and keep what came out; a bad run is data, never an exception."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from pydantic import ValidationError

from assay.bench.solver import solver_hash, solver_of
from assay.bench.store import LOG, RunStore, cell_hash
from assay.bench.worker import INCIDENT_FOLDER
from assay.methods.base import method_named
from assay.model.diagnosis import Diagnosis
from assay.model.run import Run, RunStatus
from assay.telemetry.clock import boot_id
from assay.telemetry.content import ENV, INCIDENT, TABLES, content_hash
from assay.telemetry.datapack import Datapack

MAX_ANSWER_BYTES = 16 * 2**20
"""A larger answer is not read."""

LOG_KEPT_BYTES = 64 * 2**10
"""The end of what the solver printed, which is kept."""

_PASSED_ON = ("PATH", "LANG", "LC_ALL", "TZ", "LD_LIBRARY_PATH", "SYSTEMROOT")


@dataclass(frozen=True)
class Outcome:
    """How a worker ended, and the answer if there is a valid one."""

    status: RunStatus
    error: str | None = None
    diagnosis: Diagnosis | None = None


def run_method(
    store: RunStore,
    datapack: Datapack,
    method_name: str,
    *,
    seed: int = 0,
    arm: str = "default",
    timeout_s: float = 120.0,
    again: bool = False,
) -> Path:
    """Run the method on the incident in a process of its own and return the folder of the run.

    A cell that came to a result is not run again unless *again* asks for it; an aborted one is. The process sees a copy
    of the incident's tables under a name that says nothing, and is killed with its children after *timeout_s* of wall
    clock. A crash, a hang, an exception and an invalid answer end up in run.json. Raises NotFoundError for an unknown
    method, and what reading the incident raises; both before anything is claimed.
    """
    method = method_named(method_name)
    item_hash, of_solver = content_hash(datapack.path), solver_hash(method)
    cell = cell_hash(item_hash, of_solver, arm, seed)
    store.mark_aborted(cell)
    if not again and (known := store.finished(cell)):
        return known
    run_dir, run = store.begin(
        Run(
            cell=cell,
            attempt=0,
            item=datapack.incident.id,
            item_hash=item_hash,
            system=datapack.incident.system,
            solver=solver_of(method),
            solver_hash=of_solver,
            arm=arm,
            seed=seed,
            started_ns=time.time_ns(),
            boot_id=boot_id(),
            versions={name: version(name) for name in ("assay", "polars")},
            limits={"wall_clock_s": timeout_s},
        )
    )
    try:
        outcome = _in_worker(datapack, method_name, run_dir, timeout_s)
    except BaseException as error:
        ended = {
            "status": RunStatus.ABORTED,
            "error": f"{type(error).__name__} in the runner",
            "ended_ns": time.time_ns(),
        }
        store.end(run_dir, run.model_copy(update=ended))
        raise
    ended = {"status": outcome.status, "error": outcome.error, "ended_ns": time.time_ns()}
    store.end(run_dir, run.model_copy(update=ended), outcome.diagnosis)
    return run_dir


@contextmanager
def opaque_view(datapack: Datapack) -> Iterator[Path]:
    """Yield a fresh folder with nothing in it but ``incident``: a copy of the datapack's own files, and incident.json.

    A copy, not a link: what a solver writes to it changes nothing. It goes when the block ends.
    """
    with tempfile.TemporaryDirectory(prefix="assay-", ignore_cleanup_errors=True) as folder:
        incident = Path(folder) / INCIDENT_FOLDER
        incident.mkdir()
        for name in (*TABLES, ENV):
            if (datapack.path / name).is_file():
                shutil.copyfile(datapack.path / name, incident / name)
        (incident / INCIDENT).write_text(datapack.incident.pretty_json(), encoding="utf-8")
        yield Path(folder)


def _in_worker(datapack: Datapack, method_name: str, run_dir: Path, timeout_s: float) -> Outcome:
    with opaque_view(datapack) as folder:
        answer, log = folder / "answer.json", folder / "solver.log"
        with log.open("wb") as output:
            worker = subprocess.Popen(
                [sys.executable, "-m", "assay.bench.worker", method_name, answer.name],
                cwd=folder,
                env=_environment(folder),
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        try:
            worker.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return Outcome(RunStatus.TIMEOUT, f"no answer after {timeout_s:g} s")
        finally:
            _kill_group(worker)
            _keep_end(log, run_dir / LOG)
        if worker.returncode:
            return Outcome(RunStatus.FAILED, _how_it_died(worker.returncode))
        return _read_answer(answer)


def _read_answer(path: Path) -> Outcome:
    """Return what the worker wrote, which may be anything: only a valid Diagnosis is an answer."""
    if path.is_symlink() or not path.is_file():
        return Outcome(RunStatus.FAILED, "the solver ended without an answer")
    if path.stat().st_size > MAX_ANSWER_BYTES:
        return Outcome(RunStatus.FAILED, f"the answer is larger than {MAX_ANSWER_BYTES} bytes")
    try:
        told = json.loads(path.read_bytes(), parse_constant=_refuse_constant)
    except ValueError as error:
        return Outcome(RunStatus.FAILED, f"the answer is no JSON: {error}")
    if not isinstance(told, dict) or "diagnosis" not in told:
        return Outcome(
            RunStatus.FAILED, str(told.get("error")) if isinstance(told, dict) else "the answer is no object"
        )
    try:
        return Outcome(RunStatus.DONE, diagnosis=Diagnosis.model_validate(told["diagnosis"]))
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        return Outcome(RunStatus.FAILED, f"the answer is not valid: {where}: {first['msg']}")


def _refuse_constant(name: str) -> float:
    raise ValueError(f"it holds the number {name}")


def _environment(folder: Path) -> dict[str, str]:
    """Return an environment that names no other folder than the worker's own and those of the code.

    One polars thread: sums of floats depend on the number of threads, and the same inputs must give the same bytes.
    """
    kept = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
    code = os.pathsep.join(entry for entry in sys.path if entry)
    own = {"HOME": str(folder), "TMPDIR": str(folder), "PYTHONPATH": code}
    return {**kept, **own, "PYTHONHASHSEED": "0", "POLARS_MAX_THREADS": "1"}


def _kill_group(worker: subprocess.Popen[bytes]) -> None:
    """Kill the worker and every process that it started and left in its session."""
    with suppress(ProcessLookupError):  # all of them ended by themselves
        os.killpg(worker.pid, signal.SIGKILL)
    worker.wait()
    assert worker.stdin is not None
    worker.stdin.close()


def _keep_end(log: Path, kept: Path) -> None:
    with log.open("rb") as stream:
        stream.seek(max(0, log.stat().st_size - LOG_KEPT_BYTES))
        end = stream.read()
    if end:
        kept.write_bytes(end)


def _how_it_died(code: int) -> str:
    if code < 0:
        return f"the solver was killed by {signal.Signals(-code).name}"
    return f"the solver ended with exit code {code} and no answer"
