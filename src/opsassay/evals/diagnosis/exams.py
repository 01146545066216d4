"""Runs on incidents: every solver on every incident of a suite, so many times; resumable after any end."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from pydantic import Field, field_validator

from opsassay.core.errors import DatapackError, OpsAssayError
from opsassay.core.schema.base import Written
from opsassay.core.schema.overrides import with_changes
from opsassay.core.schema.run import Metric, Run, RunStatus, Suite
from opsassay.evals.diagnosis.agent_runs import Setup, cell_of, run_agent
from opsassay.evals.diagnosis.grades import grade_run
from opsassay.evals.diagnosis.items import IncidentItem
from opsassay.evals.diagnosis.method_setups import MethodSetup
from opsassay.evals.diagnosis.oracles import NAMES, oracle_of
from opsassay.evals.diagnosis.runner import run_method
from opsassay.evals.diagnosis.views import arm_of, masked
from opsassay.evals.diagnosis.workers import shared_workers
from opsassay.evals.runner.attempt import AttemptOutcome, attempt
from opsassay.evals.runner.commands import Sealing
from opsassay.evals.runner.lease import LeasedError, LeaseLostError
from opsassay.evals.runner.mounts import kept_of, require_apart
from opsassay.evals.runner.oracles import AnswerOracle, oracle_solver, oracles_asked
from opsassay.evals.runner.processes import kill_sessions
from opsassay.evals.runner.ranking import ORACLE
from opsassay.evals.runner.run import JobEnd
from opsassay.evals.runner.run_spec import RunSpec
from opsassay.evals.runner.store import RunStore, read_run
from opsassay.scoring.profiles import profile_named
from opsassay.solvers.agents.command import CommandAgent
from opsassay.solvers.agents.limits import Limits, Price
from opsassay.telemetry.mask import Mask
from opsassay.telemetry.tree import Case, read_noun, resolve

SUITE = "suite.json"


class RunSettings(Written):
    """What `-c KEY=VALUE` may set."""

    limits: Limits = Field(default=Limits(), description="over those of an agent.yaml")
    mask: Mask = Field(default=Mask(), description="how much of the telemetry is seen")
    price: Price = Field(default=Price(), description="USD per million tokens")
    temperature: float | None = Field(default=None, ge=0, le=2, description="the endpoint's own when left out")
    sealing: Sealing = "auto"
    seed: int = Field(default=0, description="of the first repeat; the others follow")
    again: bool = Field(default=False, description="run also what has a result already")
    profile: str = Field(default="default", description="of the grades in the summary")

    @field_validator("mask", mode="before")
    @classmethod
    def _one_or_several(cls, given: Any) -> Any:
        if isinstance(given, dict) and isinstance(given.get("drop"), str):
            return {**given, "drop": [part.strip() for part in given["drop"].split(",")]}
        return given


def read_settings(changes: Sequence[str]) -> RunSettings:
    """Return the settings that *changes* (``key.sub=value``, values as YAML) make; raises ConfigError naming the key."""
    return with_changes(RunSettings, {}, changes, example="mask.drop=logs")


@dataclass(frozen=True)
class IncidentJob:
    """One run that is to be made: a method, an agent, or an oracle by its name, on a case."""

    case: Case
    item: IncidentItem
    solver: MethodSetup | Setup | str
    seed: int
    settings: RunSettings
    live = False

    @property
    def task_name(self) -> str:
        """What the incident is called."""
        return self.case.name

    @property
    def solver_name(self) -> str:
        """What the solver is called in results."""
        if isinstance(self.solver, str):
            return self.solver
        return self.solver.solver().label if isinstance(self.solver, Setup) else self.solver.solver.label

    @cached_property
    def oracle(self) -> AnswerOracle | None:
        """The oracle that answers, None for any other solver; raises UserError for a case that has none."""
        if not isinstance(self.solver, str):
            return None
        return oracle_of(self.case, self.solver.removeprefix(ORACLE))

    @cached_property
    def cell(self) -> RunSpec:
        """The cell that the job's run belongs to."""
        mask = self.settings.mask
        if self.oracle is not None:
            return RunSpec(self.item.task, oracle_solver(self.oracle), self.oracle.digest(), arm_of(mask), self.seed)
        if isinstance(self.solver, Setup):
            return cell_of(self.item, self.solver, mask, self.seed)
        assert isinstance(self.solver, MethodSetup)
        return RunSpec(self.item.task, self.solver.solver, self.solver.solver_hash, arm_of(mask), self.seed)

    def run(self, store: RunStore, given_up: Callable[[], bool], say: Callable[[str], None]) -> JobEnd:
        """Make the run, or find the one that has a result; what cannot even be a run is reported, not raised."""
        del say
        settings = self.settings
        try:
            if self.oracle is not None:
                outcome = AttemptOutcome(RunStatus.DONE, diagnosis=self.oracle.diagnosis)
                run_dir = attempt(
                    store, self.cell, lambda *_: outcome, limits={}, again=settings.again, given_up=given_up
                )
            elif isinstance(self.solver, Setup):
                run_dir = run_agent(
                    store, self.item, self.solver, mask=settings.mask, seed=self.seed, again=settings.again,
                    given_up=given_up,
                )  # fmt: skip
            else:
                assert isinstance(self.solver, MethodSetup)
                run_dir = self._run_method(store, self.solver, given_up)
            run = read_run(run_dir)
        except (LeasedError, LeaseLostError):
            raise
        except OpsAssayError as error:
            return JobEnd(self, None, None, str(error), f"not run: {error}")
        return JobEnd(self, run_dir, run, message=_message(run))

    def _run_method(self, store: RunStore, method: MethodSetup, given_up: Callable[[], bool]) -> Path:
        settings = self.settings
        with masked(self.item.datapack, settings.mask) as seen:
            return run_method(
                store, IncidentItem(seen, self.item.content_hash), method, seed=self.seed, arm=arm_of(settings.mask),
                timeout_s=settings.limits.seconds, again=settings.again, given_up=given_up,
            )  # fmt: skip

    def evaluate(self, run_dir: Path) -> Mapping[str, Metric]:
        """Grade the run in *run_dir* under the profile of the settings; nothing without truth."""
        if self.case.truth is None:
            return {}
        return grade_run(run_dir, self.case, profile_named(self.settings.profile)).metrics

    def end_all(self) -> None:
        """Kill the processes that runs on incidents started: workers, wardens of seals and unsealed commands."""
        shared_workers().close()
        kill_sessions()


def _message(run: Run) -> str:
    limits = f" (limits hit: {', '.join(run.limits_hit)})" if run.limits_hit else ""
    flags = f" [{', '.join(run.flags)}]" if run.flags else ""
    return run.status.value + (f": {run.error}" if run.error else "") + limits + flags


def open_suite(
    path: Path, on_error: Callable[[Path, OpsAssayError], None] | None = None
) -> list[tuple[Case, IncidentItem]]:
    """Return the cases of the suite or folder at *path*; raises DatapackError when a suite is not what it was.

    *on_error* hears of cases that cannot be read, and the rest goes on.
    """
    opened = [(case, IncidentItem.of(case.datapack)) for case in resolve(path, on_error)]
    if (path / SUITE).exists():
        recorded = {item.id: item.content_hash for item in read_noun(Suite, path / SUITE).items}
        for case, item in opened:
            if recorded.get(item.incident.id) != item.content_hash:
                raise DatapackError(
                    f"{case.datapack.path} is not what {path / SUITE} lists; restore it, or make the suite anew."
                )
    return opened


def plan(
    opened: Iterable[tuple[Case, IncidentItem]],
    solvers: Sequence[MethodSetup | Setup | str],
    repeats: int,
    settings: RunSettings,
) -> list[IncidentJob]:
    """Return all runs of *solvers*: repeats are spread, so that an interrupted suite has some of every case.

    ``oracle:right``, ``oracle:wrong`` and ``oracle:*`` are solvers too. Raises NotFoundError for another oracle, and
    UserError for a case without a truth to know.
    """
    cases = list(opened)
    jobs = [
        IncidentJob(case, item, one, settings.seed + repeat, settings)
        for repeat in range(repeats)
        for case, item in cases
        for solver in solvers
        for one in _expanded(solver, case)
    ]
    for job in jobs:
        _ = job.oracle  # a case that has none is refused before anything runs
    return jobs


def _expanded(solver: MethodSetup | Setup | str, case: Case) -> Sequence[MethodSetup | Setup | str]:
    asked = oracles_asked(solver, NAMES, case.name) if isinstance(solver, str) else []
    return [*(ORACLE + name for name in asked)] or [solver]


def require_apart_from(store: RunStore, jobs: Iterable[IncidentJob]) -> None:
    """Raise UserError, before anything runs, for an agent that would see a folder with the store, incidents or truth."""
    jobs = list(jobs)
    kept = {store.root, *kept_of([job.case.datapack.path for job in jobs])}
    for agent in {id(job.solver): job.solver.agent for job in jobs if isinstance(job.solver, Setup)}.values():
        if isinstance(agent, CommandAgent):
            require_apart(agent, sorted(kept))
