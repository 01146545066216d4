"""Runs on incidents: a method in a worker process, an agent in one or in a sandbox, or an oracle."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from opsassay.core.errors import LostError, OpsAssayError, UserError
from opsassay.core.schema.run import Metric, Run, RunStatus
from opsassay.core.schema.task import Arm
from opsassay.core.schema.trajectory import Trace
from opsassay.core.untrusted import is_plain, read_plain
from opsassay.evals.diagnosis.environment import Canary, IncidentEnvironment, arm_of, masked, opaque_view
from opsassay.evals.diagnosis.score import grade_run
from opsassay.evals.diagnosis.setups.agents import RunSettings, Setup
from opsassay.evals.diagnosis.setups.methods import MethodSetup, method_setup
from opsassay.evals.diagnosis.tasks import IncidentItem, oracle_of
from opsassay.evals.diagnosis.workers.answers import diagnosed, how_it_died, read_worker_answer
from opsassay.evals.diagnosis.workers.pool import shared_workers
from opsassay.evals.diagnosis.workers.template import ANSWER, INCIDENT_FOLDER
from opsassay.evals.runner.commands import WORK_INSIDE
from opsassay.evals.runner.external_agents import APIS, ExternalAgent, ExternalTask, output_of, run_outside
from opsassay.evals.runner.lease import LeasedError, LeaseLostError
from opsassay.evals.runner.mounts import kept_of, require_apart
from opsassay.evals.runner.oracles import AnswerOracle, oracle_solver
from opsassay.evals.runner.processes import kill_sessions
from opsassay.evals.runner.ranking import ORACLE
from opsassay.evals.runner.run import (
    MAX_ANSWER_BYTES,
    AttemptOutcome,
    Isolation,
    RunEnd,
    RunSpec,
    attempt,
    keep_end,
    never,
    open_session,
    reading_what_was_left,
)
from opsassay.evals.runner.store import LOG, RunStore, read_run
from opsassay.scoring.profiles import profile_named
from opsassay.solvers.agents.base import AGENTS
from opsassay.solvers.agents.command import CommandAgent
from opsassay.solvers.agents.contract import Answer, AnswerError, read_answer
from opsassay.solvers.agents.limits import Meter, Price
from opsassay.solvers.agents.mcp_server import DiagnosisToolSession
from opsassay.solvers.agents.models.base import COUNTED
from opsassay.solvers.agents.prompts import task_prompt
from opsassay.solvers.agents.record import ACTIONS, TRACE, AgentRecorder
from opsassay.solvers.proxy.formats.finding import read_one
from opsassay.solvers.sandbox import Ended
from opsassay.telemetry.datapack import Datapack
from opsassay.telemetry.mask import Mask
from opsassay.telemetry.tree import Case

KEYS = (
    "OPENAI_API_KEY", "OPENAI_BASE_URL", "OPENAI_ORG_ID", "OPENAI_PROJECT_ID", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY",
    "SSL_CERT_FILE", "SSL_CERT_DIR",
)  # fmt: skip
"""Variables that a Python agent needs to reach its model; external agents never get them."""


@dataclass(frozen=True)
class IncidentRun:
    """One planned run on an incident: *solver* is a method, an agent, or the name of an oracle."""

    case: Case
    item: IncidentItem
    solver: MethodSetup | Setup | str
    seed: int
    settings: RunSettings
    live = False

    @property
    def task_name(self) -> str:
        """The incident's name for display."""
        return self.case.name

    @property
    def solver_name(self) -> str:
        """The solver's name for display."""
        if isinstance(self.solver, str):
            return self.solver
        return self.solver.solver().label if isinstance(self.solver, Setup) else self.solver.solver.label

    @cached_property
    def oracle(self) -> AnswerOracle | None:
        """The oracle that the solver's name selects, None for other solvers; UserError without a truth."""
        if not isinstance(self.solver, str):
            return None
        return oracle_of(self.case, self.solver.removeprefix(ORACLE))

    @cached_property
    def cell(self) -> RunSpec:
        """The run spec (incident, solver, variant, seed) that identifies the run in a store."""
        mask = self.settings.mask
        if self.oracle is not None:
            return RunSpec(self.item.task, oracle_solver(self.oracle), self.oracle.digest(), arm_of(mask), self.seed)
        if isinstance(self.solver, Setup):
            return cell_of(self.item, self.solver, mask, self.seed)
        assert isinstance(self.solver, MethodSetup)
        return RunSpec(self.item.task, self.solver.solver, self.solver.solver_hash, arm_of(mask), self.seed)

    def run(self, store: RunStore, given_up: Callable[[], bool], say: Callable[[str], None]) -> RunEnd:
        """Run the solver, unless *store* has its result; abort when *given_up* returns True; return how it ended."""
        del say
        settings = self.settings
        try:
            if self.oracle is not None:
                outcome = AttemptOutcome(RunStatus.DONE, diagnosis=self.oracle.diagnosis)
                run_dir = attempt(
                    store, self.cell, lambda *_: outcome, limits={}, repeat=settings.again, given_up=given_up
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
            return RunEnd(self, None, None, str(error), f"not run: {error}")
        return RunEnd(self, run_dir, run, message=_describe_end(run))

    def _run_method(self, store: RunStore, method: MethodSetup, given_up: Callable[[], bool]) -> Path:
        """Run *method* on the telemetry that the mask leaves; return the run's folder. *given_up*: see `run`."""
        settings = self.settings
        with masked(self.item.datapack, settings.mask) as seen:
            return run_method(
                store, IncidentItem(seen, self.item.content_hash), method, seed=self.seed, arm=arm_of(settings.mask),
                timeout_s=settings.limits.seconds, again=settings.again, given_up=given_up,
            )  # fmt: skip

    def evaluate(self, run_dir: Path) -> Mapping[str, Metric]:
        """Return the metrics of the finished run in *run_dir*, {} when the incident has no truth."""
        if self.case.truth is None:
            return {}
        return grade_run(run_dir, self.case, profile_named(self.settings.profile)).metrics

    def end_all(self) -> None:
        """Kill all solver processes that this process started for incidents."""
        shared_workers().close()
        kill_sessions()


def _describe_end(run: Run) -> str:
    """Return status, error, limits and flags as text, such as "failed: no answer (limits hit: seconds) [canary]"."""
    limits = f" (limits hit: {', '.join(run.limits_hit)})" if run.limits_hit else ""
    flags = f" [{', '.join(run.flags)}]" if run.flags else ""
    return run.status.value + (f": {run.error}" if run.error else "") + limits + flags


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
    """Run *method* (a setup or its name) on the incident in a process of its own; return the run's folder.

    A run that has a result is not repeated unless *again*; an aborted one is. The process is forked from a template
    that has imported the methods and nothing else; it sees a copy of the incident's tables under an opaque name, and is
    killed with its children after *timeout_s* of wall clock. A crash, a hang, an exception and an invalid answer are
    recorded in run.json. Raises what `method_setup` raises for a name, and what reading the incident raises, before the
    run folder is created. *given_up* as for `attempt`.
    """
    setup = method_setup(method) if isinstance(method, str) else method
    item = datapack if isinstance(datapack, IncidentItem) else IncidentItem.from_datapack(datapack)
    cell = RunSpec(item.task, setup.solver, setup.solver_hash, arm, seed)
    return attempt(
        store,
        cell,
        lambda run_dir, _: _solve_in_worker(item.datapack, setup, run_dir, timeout_s),
        limits={"wall_clock_s": timeout_s},
        repeat=again,
        given_up=given_up,
    )


def _solve_in_worker(datapack: Datapack, setup: MethodSetup, run_dir: Path, timeout_s: float) -> AttemptOutcome:
    """Run the method in a forked worker for at most *timeout_s*; return its outcome. Its log goes into *run_dir*."""
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
            diagnosis, error = diagnosed(read_worker_answer(folder / ANSWER))
    return AttemptOutcome(RunStatus.FAILED if diagnosis is None else RunStatus.DONE, error, diagnosis)


def cell_of(item: IncidentItem, setup: Setup, mask: Mask, seed: int) -> RunSpec:
    """Return the run spec of an agent: task *item*, solver *setup*, variant (what *mask* withholds), *seed*."""
    return RunSpec(item.task, setup.solver(), setup.solver_hash(), arm_of(mask), seed)


def run_agent(
    store: RunStore,
    item: IncidentItem,
    setup: Setup,
    *,
    mask: Mask | None = None,
    seed: int = 0,
    again: bool = False,
    given_up: Callable[[], bool] = never,
) -> Path:
    """Run the agent of *setup* on incident *item* without the telemetry that *mask* withholds; return the run's folder.

    A Python agent runs in a worker process as a method does, an external one in a sandbox if the machine allows. A
    failure of the model's endpoint aborts the run, so that the next call tries it again, and so does an end after
    *given_up*; anything else is a result. Raises UserError for an agent that could read folders with incidents, truth
    or runs.
    """
    mask = mask or Mask()
    for command in (setup.agent, *setup.servers):
        if isinstance(command, CommandAgent):
            require_apart(command, [store.root, *kept_of([item.datapack.path])])
    sealed = setup.refusal_to_seal is None
    isolation: Isolation = "in_process"
    if setup.is_command or not _is_built_in(setup.name):
        isolation = "sealed" if sealed else "unsealed"

    def solve(run_dir: Path, _: Callable[[], bool]) -> AttemptOutcome:
        """Run the agent, a command or a built-in one, on what the mask leaves of the incident."""
        with masked(item.datapack, mask) as seen:
            if isinstance(setup.agent, CommandAgent):
                meter = Meter(setup.limits, setup.price)
                return examine(setup, seen, run_dir, meter)
            return _run_agent_in_worker(setup, seen, run_dir)

    limits = {k: float(v) for k, v in setup.limits.model_dump().items() if v is not None}
    cell = cell_of(item, setup, mask, seed)
    return attempt(
        store, cell, solve, isolation=isolation, limits=limits, repeat=again, can_be_sealed=sealed, given_up=given_up
    )


def _is_built_in(name: str) -> bool:
    """Return whether the agent *name* comes with OpsAssay."""
    return name in AGENTS.builtin_names()


def _run_agent_in_worker(setup: Setup, incident: Datapack, run_dir: Path) -> AttemptOutcome:
    """Run a Python agent in a forked worker; return the outcome. Its log, trace and actions are kept in *run_dir*."""
    limits = setup.limits
    job = {
        "kind": "agent",
        "name": setup.name,
        "model": setup.model,
        "limits": limits.model_dump(mode="json"),
        "price": setup.price.model_dump(mode="json"),
        "temperature": setup.temperature,
        "servers": [str(server.path.absolute()) for server in setup.servers],
        "sealed": setup.seals_servers,
        "modules": ["openai"] if setup.paid else [],
    }
    keys = {name: os.environ[name] for name in KEYS if name in os.environ} if setup.paid else {}
    with opaque_view(incident) as folder:
        canary = Canary(incident.incident, incident.candidates())
        canary.plant(folder)
        try:
            code = shared_workers().run(job, folder, limits.seconds, keys)
        except TimeoutError:
            spent = _spent_so_far(folder, setup.price)
            return AttemptOutcome(RunStatus.TIMEOUT, f"no answer after {limits.seconds:g} s", None, ("seconds",), spent)
        except LostError as lost:
            return AttemptOutcome(RunStatus.ABORTED, str(lost))
        finally:
            keep_end(folder / LOG, run_dir / LOG)
            for name in (TRACE, ACTIONS):
                if (folder / name).is_file() and not (folder / name).is_symlink():
                    shutil.copyfile(folder / name, run_dir / name)
        if code:
            return AttemptOutcome(RunStatus.FAILED, how_it_died(code), spent=_spent_so_far(folder, setup.price))
        payload = read_worker_answer(folder / ANSWER)
    diagnosis, error = diagnosed(payload)
    if not isinstance(payload, dict):
        return AttemptOutcome(RunStatus.FAILED, error)
    flags = ("canary",) if diagnosis is not None and canary.is_repeated_in(diagnosis) else ()
    status = (
        RunStatus.DONE if diagnosis is not None else RunStatus.ABORTED if payload.get("world") else RunStatus.FAILED
    )
    return AttemptOutcome(
        status, error, diagnosis, tuple(payload.get("limits_hit") or ()), payload.get("spent") or {}, flags,
        notes=tuple(payload.get("notes") or ()),
        isolation="unsealed" if setup.servers and not setup.seals_servers else None,
    )  # fmt: skip


def _spent_so_far(folder: Path, price: Price) -> dict[str, float]:
    """Return a killed run's usage (tool and model calls, tokens, USD by *price*), from its trace in *folder*."""
    try:
        trace: Trace = read_one(folder / TRACE)
    except UserError:
        return {}
    tokens = {name: sum(step.usage.get(name, 0) for step in trace.steps) for name in COUNTED}
    return {
        "tool_calls": sum(len(step.tool_logs) for step in trace.steps),
        "model_calls": len(trace.steps),
        **{name: count for name, count in tokens.items() if count or name in COUNTED[:2]},
        "money_usd": round(price.cost_of(tokens), 6),
    }


def examine(setup: Setup, incident: Datapack, run_dir: Path, meter: Meter) -> AttemptOutcome:
    """Run the external agent of *setup* on *incident*; return the outcome. *run_dir* gets trace, actions and output."""
    agent, sealed = setup.agent, setup.refusal_to_seal is None
    assert isinstance(agent, CommandAgent)
    environment = IncidentEnvironment(
        incident, meter, AgentRecorder(run_dir), with_tools="mcp" in agent.file.needs, servers=setup.servers,
        seal_servers=setup.seals_servers,
    )  # fmt: skip
    with open_session(environment) as session:
        task = ExternalTask(
            environment.folder / INCIDENT_FOLDER,
            lambda places: task_prompt(incident.incident, meter.limits, places),
            session,
            further=lambda work, is_sealed: {"answer": f"{WORK_INSIDE if is_sealed else work}/{ANSWER}"},
            apis=environment.apis() if APIS in agent.file.needs else None,
        )
        with reading_what_was_left():
            end = run_outside(
                ExternalAgent.from_command(agent, setup.model), task, environment.folder, run_dir, meter, sealed=sealed
            )
            if said := output_of(end):
                (run_dir / LOG).write_text(said + "\n", encoding="utf-8", errors="replace")
            outcome = _outcome_of_command(
                end, session, environment.folder / "work", environment.services, environment.canary, meter
            )
        gone = [server.gone for server in environment.servers if server.gone]
    return replace(outcome, notes=(*outcome.notes, *gone, *environment.left))


def _outcome_of_command(
    end: Ended, session: DiagnosisToolSession | None, work: Path, services: Sequence[str], canary: Canary, meter: Meter
) -> AttemptOutcome:
    """Return an external agent's outcome; its answer is the submitted one, else its file in *work*, else its output.

    The flag "canary" marks an answer that repeats the false truth of *canary*.
    """
    killed = end.limit == "wall_clock_s"
    answer: Answer | None = session.answer if session else None
    status, error = RunStatus.DONE, None
    notes = tuple(f"not collected: {what}" for what in end.left_behind)
    if answer is None and not killed and end.exit_code != 0:
        status, error = RunStatus.FAILED, _describe_failure(end)
    elif answer is None:
        try:
            answer = read_answer(_read_answer(work, "" if killed else end.stdout_tail), services)
        except AnswerError as problem:
            status, error = RunStatus.FAILED, f"no answer by the contract: {problem}"
            if killed:
                status, error = RunStatus.TIMEOUT, f"no answer after {meter.limits.seconds:g} s"
                notes += (f"{ANSWER}: {problem}",) if (work / ANSWER).exists() else ()
    flags = ("canary",) if answer is not None and canary.is_repeated_in(answer.diagnosis) else ()
    return AttemptOutcome(
        status, error, answer.diagnosis if answer else None, tuple(meter.hit), meter.spent(), flags, notes
    )


def _describe_failure(end: Ended) -> str:
    """Return why a command gave no answer: how it ended, and the last line of its error output."""
    if not end.started:
        return end.reason
    said = (end.stderr_tail.strip().splitlines() or [""])[-1][:300]
    died = f"the solver was killed by {end.signal}" if end.signal else end.reason
    if end.exit_code is not None and not end.signal:
        died = how_it_died(end.exit_code)
    return died + (f": {said}" if said else "")


def _read_answer(work: Path, stdout: str) -> str | bytes:
    """Return the content of the answer file in *work*, else *stdout*; links are ignored. Raises AnswerError."""
    file = work / ANSWER
    if not is_plain(file):
        return stdout
    try:
        content = read_plain(file, MAX_ANSWER_BYTES)
    except UserError as error:
        raise AnswerError(f"the answer is larger than {MAX_ANSWER_BYTES} bytes") from error
    return content if content.strip() else stdout
