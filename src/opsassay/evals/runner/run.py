"""The life of one run, whatever its domain; each step is one function below, in this order.

lease      one worker at a time has the run spec (`take_lease`)
begin      a folder is claimed for the attempt (`RunStore.begin`)
prepare    the environment is deployed and healthy            `open_session`, over the `Environment` of the
start      it is broken, and the first alert can be seen      domain; a live system has it in a process of
session    the agent has its tools                            its own, and a run without one has nothing
solve      the agent works                                    to prepare
settle     the system has settled, and the fault is undone
remove     all of it is removed
verify     nothing is left
store      how it ended is stored under the store's lock, while the lease is held (`RunStore.end`)
score      the domain scores what was stored (`score`)
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeVar

from opsassay.core.errors import LeftByAgentError
from opsassay.core.schema.diagnosis import Diagnosis
from opsassay.core.schema.run import Metric, Run, RunStatus, Solver, Verdict
from opsassay.core.schema.task import Arm, Task
from opsassay.core.untrusted import CAUSED_BY_CONTENT, is_plain, open_plain, storable
from opsassay.evals.runner.lease import LeaseLostError, take_lease
from opsassay.evals.runner.ranking import run_id
from opsassay.evals.runner.store import FINISHED, VERDICTS, RunStore, cell_hash, read_run, write_verdict
from opsassay.telemetry.clock import boot_id

if TYPE_CHECKING:
    from opsassay.testbed.operations.environment import Environment


@dataclass(frozen=True)
class RunSpec:
    """The identity of a planned run: a solver on a task, in a variant (arm), with a seed for the repeat.

    *solver_hash* covers all that the solver is made of; *identity* replaces it in the run's id if given. *body*: data
    of the domain for making the run.
    """

    task: Task
    solver: Solver
    solver_hash: str
    arm: Arm = field(default_factory=Arm)
    seed: int = 0
    identity: str = ""
    body: Any = field(default=None, compare=False)

    @property
    def hash(self) -> str:
        """The id of the planned run: 16 hexadecimal digits."""
        return cell_hash(self.task.commitment, self.identity or self.solver_hash, self.arm.label, self.seed)

    @property
    def label(self) -> str:
        """The name of the planned run for display: task, solver, variant and seed."""
        return f"{self.task.id}, {self.solver.label}, {self.arm.label}, seed {self.seed}"


T = TypeVar("T")

MAX_ANSWER_BYTES = 16 * 2**20
"""Larger answers are refused."""

MAX_ERROR = 4000
"""Error messages are cut to so many characters."""

LOG_KEPT_BYTES = 64 * 2**10
"""So much of the end of a solver's output is stored."""

Isolation = Literal["sealed", "unsealed", "in_process"]


@dataclass(frozen=True)
class AttemptOutcome:
    """How an attempt ended, and its valid answer if any; *isolation* is set where only the end tells."""

    status: RunStatus
    error: str | None = None
    diagnosis: Diagnosis | None = None
    limits_hit: tuple[str, ...] = ()
    spent: Mapping[str, float] = field(default_factory=dict)
    flags: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    isolation: Isolation | None = None


Solve = Callable[[Path, Callable[[], bool]], AttemptOutcome]
"""The work of an attempt, called with the run folder and a function that returns True when it must stop."""


def never() -> bool:
    """Return False: the default of *given_up* parameters, which makes a run go on to its end."""
    return False


def attempt(
    store: RunStore,
    cell: RunSpec,
    solve: Solve,
    *,
    isolation: Isolation = "in_process",
    limits: Mapping[str, float],
    repeat: bool = False,
    can_be_sealed: bool = False,
    given_up: Callable[[], bool] = never,
) -> Path:
    """Run *solve* with the folder of a new attempt of *cell*, record how it ended, and return the folder.

    The attempt is made under the lease of its cell; raises LeasedError while another process holds it, LeaseLostError
    when it was taken over before the end, so that there is no result. A cell with a result is not run again unless
    *repeat*; an aborted one is, and one without a sandbox that *can_be_sealed* now. A LeftByAgentError from *solve*,
    and an outcome that cannot be written and read back, are a failed attempt of the solver. Any other exception from
    *solve* is ours: the attempt is marked as aborted and the exception goes on. A solver without an answer when
    *given_up* returns True is aborted too, since it was killed. *isolation* and *limits* are only recorded.
    """
    lease = take_lease(store.root, cell.hash, store.lease_times)
    try:
        store.mark_aborted(cell.hash, taken_over=lease.took_over)
        known = store.finished(cell.hash)
        if known is not None and not repeat and not (can_be_sealed and read_run(known).isolation == "unsealed"):
            return known
        run_dir, run = store.begin(_run_of(cell, isolation, limits))
        try:
            try:
                outcome = solve(run_dir, lambda: given_up() or lease.lost)
            except LeftByAgentError as error:
                outcome = AttemptOutcome(RunStatus.FAILED, str(error))
        except BaseException as error:
            why = "interrupted" if given_up() else f"{type(error).__name__} in the runner"
            with suppress(LeaseLostError), lease.held():
                gone = {"status": RunStatus.ABORTED, "error": why, "ended_ns": time.time_ns()}
                store.end(run_dir, run.model_copy(update=gone))
            raise
        if outcome.status is not RunStatus.DONE and given_up():
            outcome = replace(outcome, status=RunStatus.ABORTED, error="interrupted")
        outcome = _storable_outcome(run, outcome)
        with lease.held():
            store.end(run_dir, _with_outcome(run, outcome), outcome.diagnosis)
        return run_dir
    finally:
        lease.release()


@contextmanager
def open_session(environment: Environment[T]) -> Iterator[T]:
    """Prepare and start *environment*, yield its session, then settle it; remove and verify it in any case."""
    try:
        environment.prepare()
        environment.start()
        yield environment.session()
        environment.settle()
    finally:
        try:
            environment.remove()
        finally:
            environment.verify()


def score(end: RunEnd) -> dict[str, Metric]:
    """Return the metrics of an ended run ({} without a folder); write its verdict if none exists. Raises OpsAssayError."""
    if end.run_dir is None:
        return {}
    metrics = dict(end.job.evaluate(end.run_dir))
    if end.run and end.run.status in FINISHED and not (end.run_dir / VERDICTS).exists():
        write_verdict(end.run_dir, verdict_of(end.run, metrics))
    return metrics


def verdict_of(run: Run, metrics: Mapping[str, Metric]) -> Verdict:
    """Return a verdict on *run* with *metrics*, under the profile ``default``."""
    return Verdict(
        run=run_id(run), item=run.item, system=run.system, solver=run.solver.label, profile="default",
        metrics=dict(metrics),
    )  # fmt: skip


class PlannedRun(Protocol):
    """A run that is planned: its run spec, and how its domain makes and evaluates it."""

    @property
    def cell(self) -> RunSpec:
        """The run spec (task, solver, variant, seed) that identifies the run in a store."""

    @property
    def task_name(self) -> str:
        """The task's name for display."""

    @property
    def solver_name(self) -> str:
        """The solver's name for display."""

    @property
    def live(self) -> bool:
        """Whether the run deploys and breaks a live system and records its phases in the run folder."""

    def run(self, store: RunStore, given_up: Callable[[], bool], say: Callable[[str], None]) -> RunEnd:
        """Run the solver unless *store* has the result; return how it ended. Raises LeasedError.

        The run is aborted when *given_up* returns True; *say* is called with messages on progress.
        """

    def evaluate(self, run_dir: Path) -> Mapping[str, Metric]:
        """Return the metrics of the finished run in *run_dir*, {} without ground truth."""

    def end_all(self) -> None:
        """End all running jobs of this class at once; called again until they have ended."""


@dataclass(frozen=True)
class RunEnd:
    """How a planned run ended: the folder and record of its run, or the *error* without one.

    *message* summarises it in a line; *known*: it had its result before.
    """

    job: Any
    run_dir: Path | None
    run: Run | None
    error: str | None = None
    message: str = ""
    known: bool = False

    @property
    def spent(self) -> Mapping[str, float]:
        """The usage of the run, amount by unit; {} without a run."""
        return self.run.spent if self.run is not None else {}


@contextmanager
def reading_what_was_left() -> Iterator[None]:
    """Within the with block, which reads an agent's files, convert errors of content to LeftByAgentError."""
    try:
        yield
    except CAUSED_BY_CONTENT as error:
        said = f"{type(error).__name__}: {error}"[:300]
        raise LeftByAgentError(f"what it left cannot be read ({said})") from error


def _storable_outcome(run: Run, outcome: AttemptOutcome) -> AttemptOutcome:
    """Return *outcome*, or a failed one when it cannot be written to the record of *run* and read back."""
    try:
        ended = _with_outcome(run, outcome)
        Run.model_validate({name: getattr(ended, name) for name in Run.model_fields})
        Run.model_validate_json(ended.pretty_json())
        if outcome.diagnosis is not None:
            Diagnosis.model_validate_json(outcome.diagnosis.pretty_json())
    except CAUSED_BY_CONTENT as error:
        said = str(error).splitlines()[0][:200]
        return AttemptOutcome(RunStatus.FAILED, f"what it left cannot be kept ({said})", isolation=outcome.isolation)
    return outcome


@cache
def _read_versions() -> dict[str, str]:
    """Return the installed versions of opsassay and polars, by package name."""
    return {name: version(name) for name in ("opsassay", "polars")}


def _run_of(cell: RunSpec, isolation: Isolation, limits: Mapping[str, float]) -> Run:
    """Return a new record of a running run of *cell* that starts now, with *isolation* and *limits*."""
    return Run(
        cell=cell.hash,
        attempt=0,
        domain=cell.task.domain,
        item=cell.task.id,
        item_hash=cell.task.commitment,
        system=cell.task.system,
        solver=cell.solver,
        solver_hash=cell.solver_hash,
        arm=cell.arm.label,
        seed=cell.seed,
        isolation=isolation,
        started_ns=time.time_ns(),
        boot_id=boot_id(),
        versions=_read_versions(),
        limits=dict(limits),
    )


def _with_outcome(run: Run, outcome: AttemptOutcome) -> Run:
    """Return the record of *run* as ended now with *outcome*."""
    return run.model_copy(
        update={
            "status": outcome.status,
            "error": None if outcome.error is None else storable(outcome.error)[:MAX_ERROR],
            "ended_ns": time.time_ns(),
            "limits_hit": outcome.limits_hit,
            "spent": dict(outcome.spent),
            "flags": outcome.flags,
            "notes": tuple(storable(list(outcome.notes))),
            "isolation": outcome.isolation or run.isolation,
        }
    )


def keep_end(log: Path, target: Path) -> None:
    """Copy the last `LOG_KEPT_BYTES` of the file *log* to *target*, unless it is empty or no plain file."""
    if not is_plain(log):
        return
    with open_plain(log) as stream:
        stream.seek(max(0, log.stat().st_size - LOG_KEPT_BYTES))
        end = stream.read()
    if end:
        target.write_bytes(end)
