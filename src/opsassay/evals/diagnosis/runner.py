"""Run one method on one incident and keep what came out; a bad run is data, never an exception."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from opsassay.core.schema.run import RunStatus
from opsassay.core.schema.task import Arm
from opsassay.evals.diagnosis.answers import diagnosed, how_it_died, read_answer
from opsassay.evals.diagnosis.items import IncidentItem
from opsassay.evals.diagnosis.method_setups import MethodSetup, method_setup
from opsassay.evals.diagnosis.views import opaque_view
from opsassay.evals.diagnosis.worker import ANSWER
from opsassay.evals.diagnosis.workers import shared_workers
from opsassay.evals.runner.attempt import AttemptOutcome, attempt, keep_end, never, reading_what_was_left
from opsassay.evals.runner.run_spec import RunSpec
from opsassay.evals.runner.store import LOG, RunStore
from opsassay.telemetry.datapack import Datapack


def run_method(
    store: RunStore,
    datapack: Datapack | IncidentItem,
    method: str | MethodSetup,
    *,
    seed: int = 0,
    arm: Arm = Arm(),  # noqa: B008 - frozen
    timeout_s: float = 120.0,
    again: bool = False,
    given_up: Callable[[], bool] = never,
) -> Path:
    """Run the method on the incident in a process of its own and return the folder of the run.

    A cell that came to a result is not run again unless *again* asks for it; an aborted one is. The process is forked
    from a template that has imported the methods and nothing else; it sees a copy of the incident's tables under a name
    that says nothing, and is killed with its children after *timeout_s* of wall clock. A crash, a hang, an exception and
    an invalid answer end up in run.json. Raises what `method_setup` raises for a name, and what reading the incident
    raises; both before anything is claimed. *given_up* as for `attempt`.
    """
    setup = method_setup(method) if isinstance(method, str) else method
    item = datapack if isinstance(datapack, IncidentItem) else IncidentItem.of(datapack)
    cell = RunSpec(item.task, setup.solver, setup.solver_hash, arm, seed)
    return attempt(
        store,
        cell,
        lambda run_dir, _: _in_worker(item.datapack, setup, run_dir, timeout_s),
        limits={"wall_clock_s": timeout_s},
        again=again,
        given_up=given_up,
    )


def _in_worker(datapack: Datapack, setup: MethodSetup, run_dir: Path, timeout_s: float) -> AttemptOutcome:
    with opaque_view(datapack) as folder:
        try:
            code = shared_workers().run(setup.job(), folder, timeout_s)
        except TimeoutError:
            return AttemptOutcome(RunStatus.TIMEOUT, f"no answer after {timeout_s:g} s")
        finally:
            keep_end(folder / LOG, run_dir / LOG)
        if code:
            return AttemptOutcome(RunStatus.FAILED, how_it_died(code))
        with reading_what_was_left():
            diagnosis, error = diagnosed(read_answer(folder / ANSWER))
    return AttemptOutcome(RunStatus.FAILED if diagnosis is None else RunStatus.DONE, error, diagnosis)
