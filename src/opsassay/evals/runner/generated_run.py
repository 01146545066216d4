"""A run on a generated task: an agent, an oracle or a baseline works in a folder and leaves an answer.

A domain subclasses `GeneratedRun` to define its environment, scripts, agent and form of answer; limits, run spec and
attempt are the same in all.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, ClassVar, Generic, TypeVar

from opsassay import __version__
from opsassay.core.errors import NotFoundError, UserError
from opsassay.core.schema.run import Metric, RunStatus, Solver
from opsassay.core.schema.task import Arm
from opsassay.core.schema.tool_session import ToolSpec
from opsassay.evals.runner.commands import refusal_to_seal
from opsassay.evals.runner.external_agents import ExternalAgent, ExternalTask, output_of, run_outside
from opsassay.evals.runner.generated_tasks import AnswerSettings, GeneratedPlan, GeneratedTask
from opsassay.evals.runner.mounts import require_apart, require_image
from opsassay.evals.runner.plan import PlannedAgent
from opsassay.evals.runner.processes import kill_sessions
from opsassay.evals.runner.ranking import ORACLE
from opsassay.evals.runner.rehearsal import Rehearsal, check_end, check_usage, isolated, traced
from opsassay.evals.runner.run import AttemptOutcome, Isolation, RunEnd, RunSpec, attempt, open_session
from opsassay.evals.runner.store import LOG, RunStore, read_run
from opsassay.evals.runner.tool_servers import joined_name, no_mcp, started_servers
from opsassay.solvers.agents.asking import Asker, LimitError
from opsassay.solvers.agents.command import CommandAgent
from opsassay.solvers.agents.conversing import SubmittingAgent
from opsassay.solvers.agents.limits import Limits, Meter
from opsassay.solvers.agents.models.base import ModelError
from opsassay.solvers.agents.models.named import model_named
from opsassay.solvers.agents.ready import external_agent
from opsassay.solvers.agents.record import AgentRecorder
from opsassay.solvers.agents.tool_sessions import SUBMIT, CountedToolSession
from opsassay.solvers.sandbox import Ended

S = TypeVar("S", bound=CountedToolSession)
G = TypeVar("G", bound=GeneratedTask)


class FolderEnvironment(ABC, Generic[S]):
    """An environment that is only a folder: no system is deployed or broken.

    *view* is the part that an external agent reads.
    """

    folder: Path

    def __init__(self, run_dir: Path, meter: Meter) -> None:
        self.run_dir, self.meter = run_dir, meter
        self.stack = ExitStack()

    @property
    def view(self) -> Path:
        """The folder with the files that the agent may read."""
        return self.folder / "view"

    def prepare(self) -> None:
        """Create the temporary folder with an empty folder `view` in it."""
        made = TemporaryDirectory(prefix="opsassay-", ignore_cleanup_errors=True)
        self.folder = Path(self.stack.enter_context(made))
        self.view.mkdir()

    def start(self) -> None:
        """Do nothing: there is no system to break."""

    @abstractmethod
    def session(self) -> S:
        """Return the session with the agent's tools; its calls are logged in the run folder."""

    settle = start

    def remove(self) -> None:
        """Delete the temporary folder and stop the processes of the tools."""
        self.stack.close()

    def verify(self) -> list[str]:
        """Return a sentence if the temporary folder still exists, [] when it is removed."""
        return [f"the folder {self.folder} is still there"] if self.folder.exists() else []


@dataclass(frozen=True)
class GeneratedRun(ABC, Generic[G, S]):
    """One planned run: *agent* works on *task*; *seed* numbers the repeat, *arm* is the variant."""

    kind_of_task: ClassVar[str]
    """The name of one task of the domain in messages."""
    built_in: ClassVar[str]
    """The name of the domain's built-in agent, which asks a model."""
    baselines: ClassVar[tuple[str, ...]]
    """Names of solvers that use neither a model nor the truth."""

    task: G
    agent: PlannedAgent
    seed: int
    settings: AnswerSettings
    arm: Arm = field(default_factory=Arm)
    servers: Sequence[CommandAgent] = field(default=(), kw_only=True)
    """MCP servers whose tools the agent has in addition to those of the task."""
    live = False

    def __post_init__(self) -> None:
        name, oracles = self.agent.name, self.task.task_info.oracles
        if self.oracle is not None and self.oracle not in oracles:
            raise NotFoundError(f"oracle of {self.task.name}", self.oracle, oracles)
        if name == self.built_in and self.agent.model is None:
            raise UserError(f"The agent {name} asks a model: give `model: NAME`, or `scripted:FILE` for a script.")
        known = [*self.baselines, self.built_in]
        if self.oracle is None and not self.agent.is_file and name not in known:
            raise NotFoundError(f"agent of {self.kind_of_task}s", name, [*known, f"{ORACLE}right"])
        if self.joining and self.command is not None and "mcp" not in self.command.file.needs:
            raise no_mcp(self.command.name)

    @property
    def oracle(self) -> str | None:
        """The name of the oracle that is the solver, None for other solvers."""
        return self.agent.name.removeprefix(ORACLE) if self.agent.name.startswith(ORACLE) else None

    @cached_property
    def command(self) -> CommandAgent | None:
        """The external agent that is the solver, None for other solvers."""
        return external_agent(Path(self.agent.name)) if self.agent.is_file else None

    @cached_property
    def limits(self) -> Limits:
        """The limits of the run: the plan's settings override the agent's, and these 900 seconds by default."""
        own = self.command.file.limits.model_dump(exclude_unset=True) if self.command else {}
        return Limits.model_validate({"seconds": 900.0, **own, **self.settings.limits})

    @property
    def task_name(self) -> str:
        """The task's name for display."""
        return self.task.task_info.id

    @property
    def solver_name(self) -> str:
        """The solver's name for display."""
        if self.command is not None:
            return joined_name(self.command.name, self.joining)
        name = joined_name(self.agent.name, self.joining)
        return f"{name} ({_label_of_model(self.agent.model)})" if self.agent.name == self.built_in else name

    @property
    def joining(self) -> Sequence[CommandAgent]:
        """The MCP servers that join the run; () for oracles and baselines, which use no tools."""
        return self.servers if self.command is not None or self.agent.name == self.built_in else ()

    @property
    def commands(self) -> list[CommandAgent]:
        """All external commands of the run: the external agent if there is one, and the MCP servers."""
        return [*([] if self.command is None else [self.command]), *self.joining]

    @cached_property
    def cell(self) -> RunSpec:
        """The run spec (task, solver, variant, seed) that identifies the run in a store."""
        configuration: dict[str, Any] = {"limits": self.limits.model_dump(mode="json", exclude={"pause_s", "retries"})}
        if self.agent.model is not None:
            configuration |= {"model": _label_of_model(self.agent.model), "temperature": self.settings.temperature}
        solver = Solver(name=self.solver_name, kind="agent", configuration=configuration, version=__version__)
        total = hashlib.sha256(solver.digest().encode())
        for one in self.commands:
            total.update(one.source_hash.encode())
        kind, _, rest = (self.agent.model or "").partition(":")
        if kind == "scripted" and Path(rest).is_file():
            total.update(Path(rest).read_bytes())
        return RunSpec(self.task.task_info, solver, total.hexdigest(), self.arm, self.seed)

    def run(self, store: RunStore, given_up: Callable[[], bool], say: Callable[[str], None]) -> RunEnd:
        """Run the solver, unless *store* has its result; return the end.

        The run is aborted when *given_up* returns True; *say* is not used. Raises UserError.
        """
        del say
        for one in self.commands:
            require_apart(one, [store.root])
        if self.command is not None:
            require_image(self.command, self.settings.sealing)
        self.task.keep(store.root)
        sealed = (
            self.command is not None and refusal_to_seal(self.settings.sealing, remote=self.command.file.remote) is None
        )
        isolation: Isolation = "in_process"
        if self.command is not None:
            isolation = "sealed" if sealed else "unsealed"
        elif self.joining and not self._seals_servers:
            isolation = "unsealed"
        known = store.finished(self.cell.hash)
        run_dir = attempt(
            store, self.cell, lambda folder, _: self.solve(folder, sealed=sealed), isolation=isolation,
            limits={"seconds": self.limits.seconds}, can_be_sealed=sealed, given_up=given_up,
        )  # fmt: skip
        run = read_run(run_dir)
        message = run.status.value + (f": {run.error}" if run.error else "")
        return RunEnd(self, run_dir, run, message=message, known=run_dir == known)

    def solve(self, run_dir: Path, *, sealed: bool) -> AttemptOutcome:
        """Run the solver (*sealed*: in a sandbox) and write its answer into *run_dir*; return how it ended."""
        meter = Meter(self.limits, self.settings.price)
        environment = self.environment(run_dir, meter)
        with open_session(environment) as session:
            joining = started_servers(
                self.joining, environment.view, environment.folder, self.limits.seconds, sealed=self._seals_servers
            )
            with joining as servers:
                session.join(servers)
                error = self._run_solver(environment, session, sealed=sealed)
            gone = tuple(server.gone for server in servers if server.gone)
            reason = self.collect(environment, session)
            spent = {**meter.spent(), **self.further_usage(session)}
            if reason is None:
                return AttemptOutcome(RunStatus.DONE, error, limits_hit=tuple(meter.hit), spent=spent, notes=gone)
            status = RunStatus.TIMEOUT if "seconds" in meter.hit else RunStatus.FAILED
            why = f"no answer: {error or reason}"
            return AttemptOutcome(status, why, limits_hit=tuple(meter.hit), spent=spent, notes=gone)

    @property
    def _seals_servers(self) -> bool:
        """Whether MCP servers are sandboxed on this machine with these settings."""
        return refusal_to_seal(self.settings.sealing) is None

    def _run_solver(self, environment: FolderEnvironment[S], session: S, *, sealed: bool) -> str | None:
        """Run the agent (*sealed*: in a sandbox), oracle or baseline; return why it gave no answer, else None."""
        if self.command is not None:
            return self._run_external_agent(self.command, environment, session, sealed=sealed)
        if self.agent.name != self.built_in:
            return self.play(session)
        return self._run_built_in_agent(environment, session)

    def _run_external_agent(
        self, command: CommandAgent, environment: FolderEnvironment[S], session: S, *, sealed: bool
    ) -> str | None:
        """Run *command*, in a sandbox if *sealed*; return why there is no valid answer, else None."""
        with_tools = "mcp" in command.file.needs
        task = ExternalTask(
            environment.view,
            lambda places: self.prompt(places, with_tools=with_tools),
            session if with_tools else None,
            lambda work, is_sealed: {"answer": self.answer_place(work, sealed=is_sealed)},
        )
        agent = ExternalAgent.from_command(command, self.agent.model)
        folder, run_dir = environment.folder, environment.run_dir
        end = run_outside(agent, task, folder, run_dir, environment.meter, sealed=sealed)
        if said := output_of(end):
            (run_dir / LOG).write_text(said + "\n", encoding="utf-8", errors="replace")
        return self.take(end, folder / "work", session)

    def _run_built_in_agent(self, environment: FolderEnvironment[S], session: S) -> str | None:
        """Run the built-in agent; return why it gave no answer, None when it did; raises ModelError."""
        assert self.agent.model is not None
        meter = environment.meter
        model = model_named(self.agent.model, retries=0, timeout_s=min(meter.limits.seconds, 300.0))
        asker = Asker(model, meter, AgentRecorder(environment.run_dir), temperature=self.settings.temperature)
        try:
            agent, goal = self.conversation(asker, session)
            if (answer := agent.run(goal)) is None:
                return "its turns were over"
        except (LimitError, ModelError) as error:
            if isinstance(error, ModelError) and error.passing:
                raise
            return str(error)
        session.call(SUBMIT, answer)
        return None

    @abstractmethod
    def environment(self, run_dir: Path, meter: Meter) -> FolderEnvironment[S]:
        """Return a new environment of the task for the run in *run_dir*; *meter* counts the usage of its tools."""

    @abstractmethod
    def play(self, session: S) -> str | None:
        """Submit the answer of the oracle or baseline in *session*; return why there is none, else None."""

    @abstractmethod
    def conversation(self, asker: Asker, session: S) -> tuple[SubmittingAgent, str]:
        """Return the domain's built-in agent, which asks its model by *asker*, and its first message."""

    @abstractmethod
    def prompt(self, places: Mapping[str, str], *, with_tools: bool) -> str:
        """Return the external agent's prompt with the paths *places* and, *with_tools*, how to use the tools."""

    @abstractmethod
    def answer_place(self, work: Path, *, sealed: bool) -> str:
        """Prepare the folder *work*; return the path, in the sandbox if *sealed*, for the agent's answer."""

    @abstractmethod
    def take(self, end: Ended, work: Path, session: S) -> str | None:
        """Submit the answer that an external agent, ended by *end*, left in *work* or printed; return why not, or None."""

    @abstractmethod
    def collect(self, environment: FolderEnvironment[S], session: S) -> str | None:
        """Write the submitted answer into the run folder; return why there is none, else None."""

    def further_usage(self, session: S) -> Mapping[str, float]:
        """Return usage by name that *meter* does not count; {} by default."""
        del session
        return {}

    @abstractmethod
    def tools(self) -> tuple[ToolSpec, ...]:
        """Return the specifications of the tools that the agent sees."""

    def rehearse(self, seconds: float | None) -> Rehearsal:
        """Run the solver on the task in a temporary store; return the checks of its behaviour. *seconds* is ignored."""
        del seconds
        with TemporaryDirectory(prefix="opsassay-", ignore_cleanup_errors=True) as folder:
            end = self.run(RunStore(Path(folder)), lambda: False, lambda _: None)
            assert end.run is not None
            assert end.run_dir is not None
            found = [
                check_end(end.run, end.run_dir),
                traced(end.run_dir),
                isolated(end.run.isolation),
                *check_usage(end.run),
            ]
        return Rehearsal(self.tools(), tuple(found), end.run.isolation, end.run.spent)

    @abstractmethod
    def evaluate(self, run_dir: Path) -> Mapping[str, Metric]:
        """Return the metrics of the finished run in *run_dir*."""

    def end_all(self) -> None:
        """Kill the processes of all external agents that this process started."""
        kill_sessions()


def require_apart_from_secret(runs: Sequence[GeneratedRun[Any, Any]], plan: GeneratedPlan, folder: Path) -> None:
    """Raise UserError if an external agent of *runs* could read the secret file of *plan* in *folder*."""
    if plan.held_out is None:
        return
    for command in {one.path: one for run in runs for one in run.commands}.values():
        require_apart(command, [folder / plan.held_out.secret])


def _label_of_model(model: str | None) -> str:
    """Return the model's name for display: a script's or recording's file without its folder."""
    kind, _, rest = (model or "").partition(":")
    return f"{kind}:{Path(rest).name}" if kind in {"scripted", "replayed"} else model or ""
