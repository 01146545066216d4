"""One attempt, whoever is solving: its cell is claimed, the solving ends in an outcome, and the outcome is kept."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

from pydantic import ValidationError

from opsassay.bench.store import RunStore, cell_hash, read_run
from opsassay.model.diagnosis import Diagnosis
from opsassay.model.incident import Incident
from opsassay.model.run import Run, RunStatus, Solver
from opsassay.telemetry.clock import boot_id
from opsassay.telemetry.content import content_hash
from opsassay.telemetry.datapack import Datapack

MAX_ANSWER_BYTES = 16 * 2**20
"""A larger answer is not read."""

LOG_KEPT_BYTES = 64 * 2**10
"""The end of what the solver printed, which is kept."""

Isolation = Literal["sealed", "unsealed", "in_process"]


@dataclass(frozen=True)
class Item:
    """An incident with the hash of all that is handed out of it; made once for all runs on it."""

    datapack: Datapack
    content_hash: str

    @classmethod
    def of(cls, datapack: Datapack) -> Item:
        """Return the item that *datapack* is; raises DatapackError."""
        return cls(datapack, content_hash(datapack.path))

    @property
    def incident(self) -> Incident:
        """The description of the incident."""
        return self.datapack.incident


@dataclass(frozen=True)
class Cell:
    """What is run: a solver, known by its hash, on an item, in an arm, with a seed that stands for the repeat."""

    item: Item
    solver: Solver
    solver_hash: str
    arm: str = "default"
    seed: int = 0

    @property
    def hash(self) -> str:
        """The 16 hexadecimal digits that name it."""
        return cell_hash(self.item.content_hash, self.solver_hash, self.arm, self.seed)


@dataclass(frozen=True)
class Outcome:
    """How a solver ended, and the answer if there is a valid one."""

    status: RunStatus
    error: str | None = None
    diagnosis: Diagnosis | None = None
    limits_hit: tuple[str, ...] = ()
    spent: Mapping[str, float] = field(default_factory=dict)
    flags: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def attempt(
    store: RunStore,
    cell: Cell,
    solve: Callable[[Path], Outcome],
    *,
    isolation: Isolation = "in_process",
    limits: Mapping[str, float],
    again: bool = False,
    given_up: Callable[[], bool] = lambda: False,
) -> Path:
    """Run *solve* with the folder of a new attempt and return that folder.

    A cell that came to a result is not run again unless *again* asks for it; an aborted one is, and an unsealed one that
    can be sealed now. An exception out of
    *solve* is ours: the attempt is marked as aborted and the exception goes on. So is a solver that ended without an
    answer when the whole was *given_up*, since it was killed for that.
    """
    store.mark_aborted(cell.hash)
    known = store.finished(cell.hash)
    if known is not None and not again and not (isolation == "sealed" and read_run(known).isolation == "unsealed"):
        return known
    incident = cell.item.incident
    run_dir, run = store.begin(
        Run(
            cell=cell.hash,
            attempt=0,
            item=incident.id,
            item_hash=cell.item.content_hash,
            system=incident.system,
            solver=cell.solver,
            solver_hash=cell.solver_hash,
            arm=cell.arm,
            seed=cell.seed,
            isolation=isolation,
            started_ns=time.time_ns(),
            boot_id=boot_id(),
            versions={name: version(name) for name in ("opsassay", "polars")},
            limits=dict(limits),
        )
    )
    try:
        outcome = solve(run_dir)
    except BaseException as error:
        ended = {
            "status": RunStatus.ABORTED,
            "error": f"{type(error).__name__} in the runner",
            "ended_ns": time.time_ns(),
        }
        store.end(run_dir, run.model_copy(update=ended))
        raise
    if outcome.status is not RunStatus.DONE and given_up():
        outcome = replace(outcome, status=RunStatus.ABORTED, error="interrupted")
    ended = {
        "status": outcome.status,
        "error": outcome.error,
        "ended_ns": time.time_ns(),
        "limits_hit": outcome.limits_hit,
        "spent": dict(outcome.spent),
        "flags": outcome.flags,
        "notes": outcome.notes,
    }
    store.end(run_dir, run.model_copy(update=ended), outcome.diagnosis)
    return run_dir


def read_told(path: Path) -> dict[str, Any] | str:
    """Return the object that a worker wrote, which may be anything, or why there is none."""
    if path.is_symlink() or not path.is_file():
        return "the solver ended without an answer"
    if path.stat().st_size > MAX_ANSWER_BYTES:
        return f"the answer is larger than {MAX_ANSWER_BYTES} bytes"
    try:
        told = json.loads(path.read_bytes(), parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        return f"the answer is no JSON: {error}"
    return told if isinstance(told, dict) else "the answer is no object"


def diagnosed(told: dict[str, Any] | str) -> tuple[Diagnosis | None, str | None]:
    """Return the diagnosis in what a worker *told*, or why there is none: only a valid Diagnosis is an answer."""
    if isinstance(told, str):
        return None, told
    if "diagnosis" not in told:
        return None, str(told.get("error"))
    try:
        return Diagnosis.model_validate(told["diagnosis"]), None
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        return None, f"the answer is not valid: {where}: {first['msg']}"


def keep_end(log: Path, kept: Path) -> None:
    """Keep the end of what a solver printed; nothing is kept of nothing."""
    if log.is_symlink() or not log.is_file():
        return
    with log.open("rb") as stream:
        stream.seek(max(0, log.stat().st_size - LOG_KEPT_BYTES))
        end = stream.read()
    if end:
        kept.write_bytes(end)


def _refuse_constant(name: str) -> float:
    raise ValueError(f"it holds the number {name}")
