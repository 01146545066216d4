"""Run one method on one incident and keep what came out; a bad run is data, never an exception."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path

from opsassay.bench.attempts import Cell, Item, Outcome, attempt, diagnosed, keep_end, read_told
from opsassay.bench.solver import solver_hash, solver_of
from opsassay.bench.store import LOG, RunStore
from opsassay.bench.views import opaque_view
from opsassay.bench.worker import ANSWER
from opsassay.bench.workers import shared_workers
from opsassay.methods.base import method_named
from opsassay.model.run import RunStatus
from opsassay.telemetry.datapack import Datapack


def run_method(
    store: RunStore,
    datapack: Datapack | Item,
    method_name: str,
    *,
    seed: int = 0,
    arm: str = "default",
    timeout_s: float = 120.0,
    again: bool = False,
    given_up: Callable[[], bool] = lambda: False,
) -> Path:
    """Run the method on the incident in a process of its own and return the folder of the run.

    A cell that came to a result is not run again unless *again* asks for it; an aborted one is. The process is forked
    from a template that has imported the methods and nothing else; it sees a copy of the incident's tables under a name
    that says nothing, and is killed with its children after *timeout_s* of wall clock. A crash, a hang, an exception and
    an invalid answer end up in run.json. Raises NotFoundError for an unknown method, and what reading the incident
    raises; both before anything is claimed. *given_up* as for `attempt`.
    """
    method = method_named(method_name)
    item = datapack if isinstance(datapack, Item) else Item.of(datapack)
    cell = Cell(item, solver_of(method), solver_hash(method), arm, seed)
    return attempt(
        store,
        cell,
        lambda run_dir: _in_worker(item.datapack, method_name, run_dir, timeout_s),
        limits={"wall_clock_s": timeout_s},
        again=again,
        given_up=given_up,
    )


def _in_worker(datapack: Datapack, method_name: str, run_dir: Path, timeout_s: float) -> Outcome:
    with opaque_view(datapack) as folder:
        try:
            code = shared_workers().run({"kind": "method", "name": method_name}, folder, timeout_s)
        except TimeoutError:
            return Outcome(RunStatus.TIMEOUT, f"no answer after {timeout_s:g} s")
        finally:
            keep_end(folder / LOG, run_dir / LOG)
        if code:
            return Outcome(RunStatus.FAILED, how_it_died(code))
        diagnosis, error = diagnosed(read_told(folder / ANSWER))
    return Outcome(RunStatus.FAILED if diagnosis is None else RunStatus.DONE, error, diagnosis)


def how_it_died(code: int) -> str:
    """Return what an exit code of a solver that gave no answer says."""
    if code < 0:
        return f"the solver was killed by {signal.Signals(-code).name}"
    return f"the solver ended with exit code {code} and no answer"
