"""Many runs: every solver on every incident of a suite, so many times, side by side; resumable after any end."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import psutil
import yaml
from pydantic import Field, field_validator

from opsassay.agents.command import CommandAgent
from opsassay.agents.limits import Limits, Price
from opsassay.bench.agent_runs import Setup, cell_of, run_agent
from opsassay.bench.attempts import Cell, Item
from opsassay.bench.lending import kept_of, require_apart
from opsassay.bench.parallel import heed_interrupts
from opsassay.bench.runner import run_method
from opsassay.bench.solver import solver_hash, solver_of
from opsassay.bench.store import RunStore, read_run
from opsassay.bench.views import arm_of, masked
from opsassay.bench.worker import kill_session
from opsassay.bench.workers import shared_workers
from opsassay.errors import ConfigError, DatapackError, OpsAssayError
from opsassay.methods.base import method_named
from opsassay.model.base import Written
from opsassay.model.files import parse_yaml
from opsassay.model.run import Run, Suite
from opsassay.telemetry.mask import Mask
from opsassay.telemetry.tree import Case, read_noun, resolve

SUITE = "suite.json"


class RunSettings(Written):
    """What `-c KEY=VALUE` may set."""

    limits: Limits = Field(default=Limits(), description="over those of an agent.yaml")
    mask: Mask = Field(default=Mask(), description="how much of the telemetry is seen")
    price: Price = Field(default=Price(), description="USD per million tokens")
    temperature: float | None = Field(default=None, ge=0, le=2, description="the endpoint's own when left out")
    sealing: Literal["auto", "required", "off"] = "auto"
    seed: int = Field(default=0, description="of the first repeat; the others follow")
    again: bool = Field(default=False, description="run also what has a result already")
    profile: str = Field(default="default", description="of the grades in the summary")
    metric: str = Field(default="any_service", description="of the score table")

    @field_validator("sealing", mode="before")
    @classmethod
    def _off_is_a_word(cls, given: Any) -> Any:
        return "off" if given is False else given  # YAML takes it for a truth value

    @field_validator("mask", mode="before")
    @classmethod
    def _one_or_several(cls, given: Any) -> Any:
        if isinstance(given, dict) and isinstance(given.get("drop"), str):
            return {**given, "drop": [part.strip() for part in given["drop"].split(",")]}
        return given


def read_settings(changes: Sequence[str]) -> RunSettings:
    """Return the settings that *changes* (``key.sub=value``, values as YAML) make; raises ConfigError naming the key."""
    merged: dict[str, Any] = {}
    for change in changes:
        key, sign, text = change.partition("=")
        if not sign or not key.strip():
            raise ConfigError(f"-c {change}: expected KEY=VALUE, as in -c mask.drop=logs.")
        try:
            value = yaml.safe_load(text)
        except yaml.YAMLError as error:
            raise ConfigError(f"-c {change}: the value is not valid YAML; put it in quotes.") from error
        target, parts = merged, key.strip().split(".")
        for part in parts[:-1]:
            target = target.setdefault(part, {})
            if not isinstance(target, dict):
                raise ConfigError(f"-c {key}: {part} is a value, not a group of settings.")
        target[parts[-1]] = value
        parse_yaml(yaml.safe_dump(merged), RunSettings, f"-c {key}", lines=False)
    return RunSettings.model_validate(merged)


@dataclass(frozen=True)
class Job:
    """One run that is to be made: a method by its name, or an agent, on a case."""

    case: Case
    item: Item
    solver: str | Setup
    seed: int

    @property
    def label(self) -> str:
        """What the solver is called in results."""
        return self.solver if isinstance(self.solver, str) else self.solver.solver().name


@dataclass(frozen=True)
class Made:
    """What became of a job: the folder and record of its run, or the error that kept it from being one."""

    job: Job
    run_dir: Path | None
    run: Run | None
    error: str | None = None


def open_suite(path: Path, on_error: Callable[[Path, OpsAssayError], None] | None = None) -> list[tuple[Case, Item]]:
    """Return the cases of the suite or folder at *path*; raises DatapackError when a suite is not what it was.

    *on_error* is told of cases that cannot be read, and the rest goes on.
    """
    opened = [(case, Item.of(case.datapack)) for case in resolve(path, on_error)]
    if (path / SUITE).exists():
        recorded = {item.id: item.content_hash for item in read_noun(Suite, path / SUITE).items}
        for case, item in opened:
            if recorded.get(item.incident.id) != item.content_hash:
                raise DatapackError(
                    f"{case.datapack.path} is not what {path / SUITE} lists; restore it, or make the suite anew."
                )
    return opened


def plan(opened: Iterable[tuple[Case, Item]], solvers: Sequence[str | Setup], repeats: int, seed: int = 0) -> list[Job]:
    """Return all runs of *solvers*: repeats are spread, so that an interrupted suite has some of every case."""
    cases = list(opened)
    return [
        Job(case, item, solver, seed + repeat)
        for repeat in range(repeats)
        for case, item in cases
        for solver in solvers
    ]


def require_apart_from(store: RunStore, jobs: Iterable[Job]) -> None:
    """Raise UserError, before anything runs, for an agent that is lent a folder with the store, incidents or truth."""
    jobs = list(jobs)
    kept = {store.root, *kept_of([job.case.datapack.path for job in jobs])}
    for agent in {id(job.solver): job.solver.agent for job in jobs if isinstance(job.solver, Setup)}.values():
        if isinstance(agent, CommandAgent):
            require_apart(agent, sorted(kept))


def cell_of_job(job: Job, mask: Mask) -> Cell:
    """Return the cell that the job's run belongs to."""
    if isinstance(job.solver, Setup):
        return cell_of(job.item, job.solver, mask, job.seed)
    method = method_named(job.solver)
    return Cell(job.item, solver_of(method), solver_hash(method), arm_of(mask), job.seed)


def run_job(store: RunStore, job: Job, settings: RunSettings, given_up: Callable[[], bool] = lambda: False) -> Made:
    """Make the run of *job*, or find the one that has a result; what cannot even be a run is told, not raised."""
    try:
        if isinstance(job.solver, Setup):
            again, seed = settings.again, job.seed
            run_dir = run_agent(
                store, job.item, job.solver, mask=settings.mask, seed=seed, again=again, given_up=given_up
            )
        else:
            run_dir = _run_method(store, job, settings, given_up)
        return Made(job, run_dir, read_run(run_dir))
    except OpsAssayError as error:
        return Made(job, None, None, str(error))


def _run_method(store: RunStore, job: Job, settings: RunSettings, given_up: Callable[[], bool]) -> Path:
    assert isinstance(job.solver, str)
    with masked(job.item.datapack, settings.mask) as seen:
        item = Item(seen, job.item.content_hash)
        return run_method(
            store,
            item,
            job.solver,
            seed=job.seed,
            arm=arm_of(settings.mask),
            timeout_s=settings.limits.seconds,
            again=settings.again,
            given_up=given_up,
        )


def run_all(
    store: RunStore,
    jobs: Sequence[Job],
    settings: RunSettings,
    workers: int,
    began: Callable[[Job], None] = lambda _: None,
) -> Iterator[Made]:
    """Yield what becomes of each of *jobs* in their order, *workers* at a time; *began* is told of each in its thread.

    When the caller is interrupted or wants no more, what runs is killed and marked as aborted.
    """
    heed_interrupts()
    pool = ThreadPoolExecutor(max(1, workers), thread_name_prefix="opsassay-run")
    stopped = threading.Event()

    def one(job: Job) -> Made:
        if stopped.is_set():
            return Made(job, None, None, "interrupted")
        began(job)
        return run_job(store, job, settings, stopped.is_set)

    futures: list[Future[Made]] = []
    try:
        futures = [pool.submit(one, job) for job in jobs]
        for future in futures:
            yield future.result()
    finally:
        stopped.set()
        pool.shutdown(wait=False, cancel_futures=True)
        while not all(future.done() for future in futures):  # what was just about to start has to end too
            _kill_what_runs()
            time.sleep(0.2)
        pool.shutdown(wait=True)


def _kill_what_runs() -> None:
    """Kill the processes that runs of this process started: workers, wardens of seals and unsealed commands.

    All of them lead a session, which other children (SQL workers, which end by themselves) do not.
    """
    shared_workers().close()
    for child in psutil.Process().children():
        with suppress(psutil.Error, ProcessLookupError):
            if psutil.Process(child.pid).is_running() and _leads_session(child.pid):
                kill_session(child.pid)


def _leads_session(pid: int) -> bool:
    try:
        return os.getsid(pid) == pid
    except OSError:
        return False
