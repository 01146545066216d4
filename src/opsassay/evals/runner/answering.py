"""Jobs in which an agent, an oracle or a baseline works on one made task, in this process or in a command of its own.

A domain says with a `MadeTask` what is asked and with an `AnswerJob` of its own how it is worked on and graded; who
answers, the cell of the run, its limits and its attempt are the same in all of them.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, ClassVar, Protocol

from pydantic import Field, field_validator

from opsassay import __version__
from opsassay.core.errors import NotFoundError, UserError
from opsassay.core.schema.base import Written
from opsassay.core.schema.run import Metric, RunStatus, Solver
from opsassay.core.schema.task import Arm, Task
from opsassay.evals.runner.attempt import AttemptOutcome, Isolation, attempt
from opsassay.evals.runner.commands import Sealing, refusal_to_seal
from opsassay.evals.runner.held_out import HeldOutSeeds
from opsassay.evals.runner.mounts import require_apart
from opsassay.evals.runner.oracles import EVERY_ORACLE
from opsassay.evals.runner.plan import PlannedAgent
from opsassay.evals.runner.processes import kill_sessions
from opsassay.evals.runner.ranking import ORACLE
from opsassay.evals.runner.rehearsal import Rehearsal, ended, isolated, spent, traced
from opsassay.evals.runner.run import JobEnd
from opsassay.evals.runner.run_spec import RunSpec
from opsassay.evals.runner.store import RunStore, read_run
from opsassay.solvers.agents.asking import Asker, LimitError
from opsassay.solvers.agents.command import CommandAgent
from opsassay.solvers.agents.limits import Limits, Meter, Price
from opsassay.solvers.agents.models.base import ModelError, ToolSpec
from opsassay.solvers.agents.models.named import model_named
from opsassay.solvers.agents.ready import external_agent
from opsassay.solvers.agents.record import AgentRecorder


class AnswerSettings(Written):
    """What a run of a made task may be set to."""

    limits: dict[str, Any] = Field(default_factory=dict, description="over those of an agent.yaml")
    price: Price = Field(default=Price(), description="USD per million tokens")
    temperature: float | None = Field(default=None, ge=0, le=2, description="the endpoint's own when left out")
    sealing: Sealing = Field(default="auto", description="of external agents")

    @field_validator("limits")
    @classmethod
    def _are_limits(cls, given: dict[str, Any]) -> dict[str, Any]:
        Limits.model_validate(given)
        return given


class MadePlan(Written):
    """What plans of made tasks have in common: who, on which seeds, how often."""

    agents: tuple[PlannedAgent, ...] = Field(
        min_length=1, description="oracle:NAME, oracle:*, a baseline or the agent of the domain, or an agent.yaml"
    )
    published: bool = Field(default=True, description="the seed that everybody knows")
    held_out: HeldOutSeeds | None = None
    repeats: int = Field(default=1, ge=1)
    seed: int = Field(default=0, ge=0, description="of the first repeat; the next ones count up")
    settings: AnswerSettings = Field(default=AnswerSettings())


class MadeTask(Protocol):
    """One made task: what everybody may know of it, and what a store keeps so that its runs can be graded for ever."""

    @property
    def name(self) -> str:
        """What it is called, whatever its seed."""

    @property
    def head(self) -> Task:
        """What everybody may know."""

    def keep(self, root: Path) -> None:
        """Write its body into the store at *root*, if it is not there."""


@dataclass(frozen=True)
class AnswerJob(ABC):
    """One run that is to be made: who answers (*agent*), which *task*, and the *seed* that stands for the repeat."""

    kind_of_task: ClassVar[str]
    """What messages call the tasks of the domain."""
    built_in: ClassVar[str | None] = None
    """The built-in agent of the domain, if it has one."""
    baselines: ClassVar[tuple[str, ...]]
    """Who answers without a model and without the truth."""

    task: MadeTask
    agent: PlannedAgent
    seed: int
    settings: AnswerSettings
    arm: Arm = field(default_factory=Arm)
    live = False

    def __post_init__(self) -> None:
        name, oracles = self.agent.name, self.task.head.oracles
        if self.oracle is not None and self.oracle not in oracles:
            raise NotFoundError(f"oracle of {self.task.name}", self.oracle, oracles)
        if name == self.built_in and self.agent.model is None:
            raise UserError(f"The agent {name} asks a model: give `model: NAME`, or `scripted:FILE` for a script.")
        known = [*self.baselines, *([self.built_in] if self.built_in else [])]
        if self.oracle is None and not self.agent.is_file and name not in known:
            raise NotFoundError(f"agent of {self.kind_of_task}s", name, [*known, f"{ORACLE}right"])

    @property
    def oracle(self) -> str | None:
        """The name of the oracle that answers, None for anybody else."""
        return self.agent.name.removeprefix(ORACLE) if self.agent.name.startswith(ORACLE) else None

    @cached_property
    def command(self) -> CommandAgent | None:
        """The external agent that answers, None for anybody else."""
        return external_agent(Path(self.agent.name)) if self.agent.is_file else None

    @cached_property
    def limits(self) -> Limits:
        """The limits of the run: those of the plan go over the agent's own."""
        own = self.command.file.limits.model_dump(exclude_unset=True) if self.command else {}
        return Limits.model_validate({"seconds": 900.0, **own, **self.settings.limits})

    @property
    def task_name(self) -> str:
        """What the task is called."""
        return self.task.head.id

    @property
    def solver_name(self) -> str:
        """What the solver is called in results."""
        if self.command is not None:
            return self.command.name
        name = self.agent.name
        return f"{name} ({_model_label(self.agent.model)})" if name == self.built_in else name

    @cached_property
    def cell(self) -> RunSpec:
        """The cell that the run belongs to."""
        configuration: dict[str, Any] = {"limits": self.limits.model_dump(mode="json", exclude={"pause_s", "retries"})}
        if self.agent.model is not None:
            configuration |= {"model": _model_label(self.agent.model), "temperature": self.settings.temperature}
        solver = Solver(name=self.solver_name, kind="agent", configuration=configuration, version=__version__)
        total = hashlib.sha256(solver.digest().encode())
        if self.command is not None:
            total.update(self.command.source_hash.encode())
        kind, _, rest = (self.agent.model or "").partition(":")
        if kind == "scripted" and Path(rest).is_file():
            total.update(Path(rest).read_bytes())
        return RunSpec(self.task.head, solver, total.hexdigest(), self.arm, self.seed)

    def run(self, store: RunStore, given_up: Callable[[], bool], say: Callable[[str], None]) -> JobEnd:
        """Have the task worked on, unless the store has its result."""
        del say
        if self.command is not None:
            require_apart(self.command, [store.root])
        self.task.keep(store.root)
        sealed = (
            self.command is not None and refusal_to_seal(self.settings.sealing, remote=self.command.file.remote) is None
        )
        isolation: Isolation = "in_process"
        if self.command is not None:
            isolation = "sealed" if sealed else "unsealed"
        known = store.finished(self.cell.hash)
        run_dir = attempt(
            store, self.cell, lambda folder, _: self.solve(folder, sealed=sealed), isolation=isolation,
            limits={"seconds": self.limits.seconds}, can_be_sealed=sealed, given_up=given_up,
        )  # fmt: skip
        run = read_run(run_dir)
        message = run.status.value + (f": {run.error}" if run.error else "")
        return JobEnd(self, run_dir, run, message=message, known=run_dir == known)

    @abstractmethod
    def solve(self, run_dir: Path, *, sealed: bool) -> AttemptOutcome:
        """Have the task worked on, what is graded written into *run_dir*, and return how it ended."""

    @abstractmethod
    def tools(self) -> tuple[ToolSpec, ...]:
        """Return the tools that the agent sees."""

    def rehearse(self, seconds: float | None) -> Rehearsal:
        """Have the task worked on as it is in a run, in a store that goes again; its limits are its own."""
        del seconds
        with TemporaryDirectory(prefix="opsassay-", ignore_cleanup_errors=True) as folder:
            end = self.run(RunStore(Path(folder)), lambda: False, lambda _: None)
            assert end.run is not None
            assert end.run_dir is not None
            found = [ended(end.run, end.run_dir), traced(end.run_dir), isolated(end.run.isolation), *spent(end.run)]
        return Rehearsal(self.tools(), tuple(found), end.run.isolation, end.run.spent)

    @abstractmethod
    def evaluate(self, run_dir: Path) -> Mapping[str, Metric]:
        """Grade the run in *run_dir*."""

    def end_all(self) -> None:
        """Kill what external agents started."""
        kill_sessions()


def conversed(job: AnswerJob, meter: Meter, run_dir: Path, work: Callable[[Asker], str | None]) -> str | None:
    """Let the built-in agent of *job* work with its model, by *work*; return why it did not answer.

    Raises ModelError when the endpoint failed, which is not the agent's doing: the attempt is aborted and made again.
    """
    assert job.agent.model is not None
    model = model_named(job.agent.model, retries=0, timeout_s=min(meter.limits.seconds, 300.0))
    try:
        return work(Asker(model, meter, AgentRecorder(run_dir), temperature=job.settings.temperature))
    except LimitError as error:
        return str(error)
    except ModelError as error:
        if error.passing:
            raise
        return str(error)


def ended_without(reason: str | None, limits_hit: list[str], spent: Mapping[str, float]) -> AttemptOutcome:
    """Return the outcome of a run that has no answer, for that *reason*."""
    status = RunStatus.TIMEOUT if "seconds" in limits_hit else RunStatus.FAILED
    return AttemptOutcome(
        status, f"no answer: {reason or 'it ended without one'}", limits_hit=tuple(limits_hit), spent=spent
    )


def agents_for(given: PlannedAgent, oracles: tuple[str, ...], folder: Path) -> list[PlannedAgent]:
    """Return who *given* stands for in a task with these *oracles*; files are looked for in *folder*."""
    if given.name == EVERY_ORACLE:
        return [PlannedAgent(name=ORACLE + name) for name in oracles]
    model = given.model
    kind, _, rest = (model or "").partition(":")
    if kind in {"scripted", "replayed"}:
        model = f"{kind}:{(folder / rest).absolute()}"
    return [PlannedAgent(name=str(folder / given.name) if given.is_file else given.name, model=model)]


def _model_label(model: str | None) -> str:
    kind, _, rest = (model or "").partition(":")
    return f"{kind}:{Path(rest).name}" if kind in {"scripted", "replayed"} else model or ""
