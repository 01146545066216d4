"""Run one agent on one incident and keep what came out, with its trace; a bad run is data, never an exception."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from opsassay import __version__
from opsassay.core.errors import LostError, RefusedError, UserError
from opsassay.core.schema.run import RunStatus, Solver
from opsassay.core.schema.trajectory import Trace
from opsassay.evals.diagnosis.answers import diagnosed, how_it_died, read_answer
from opsassay.evals.diagnosis.external import examine
from opsassay.evals.diagnosis.items import IncidentItem
from opsassay.evals.diagnosis.solver import sources_of
from opsassay.evals.diagnosis.views import Canary, arm_of, masked, opaque_view
from opsassay.evals.diagnosis.worker import ANSWER
from opsassay.evals.diagnosis.workers import shared_workers
from opsassay.evals.runner.attempt import AttemptOutcome, Isolation, attempt, keep_end, never
from opsassay.evals.runner.commands import Sealing, refusal_to_seal
from opsassay.evals.runner.external_agents import APIS
from opsassay.evals.runner.mounts import kept_of, mounts_of, require_apart
from opsassay.evals.runner.run_spec import RunSpec
from opsassay.evals.runner.store import LOG, RunStore
from opsassay.solvers import agents
from opsassay.solvers.agents.base import AGENTS, Agent, agent_named
from opsassay.solvers.agents.command import CommandAgent
from opsassay.solvers.agents.limits import Limits, Meter, Price
from opsassay.solvers.agents.models.endpoint import base_url_set, parts_of
from opsassay.solvers.agents.models.named import FREE, model_named
from opsassay.solvers.agents.ready import external_agent
from opsassay.solvers.agents.record import ACTIONS, TRACE
from opsassay.solvers.proxy.formats.finding import read_one
from opsassay.telemetry.datapack import Datapack
from opsassay.telemetry.mask import Mask

KEYS = (
    "OPENAI_API_KEY", "OPENAI_BASE_URL", "OPENAI_ORG_ID", "OPENAI_PROJECT_ID", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY",
    "SSL_CERT_FILE", "SSL_CERT_DIR",
)  # fmt: skip
"""Variables that an agent of the package needs to reach its model; external agents never see them."""


@dataclass(frozen=True)
class Setup:
    """An agent with everything that it is run with."""

    name: str
    agent: Agent | CommandAgent
    model: str | None
    limits: Limits
    price: Price = field(default_factory=Price)
    temperature: float | None = None
    sealing: Sealing = "auto"

    @property
    def is_command(self) -> bool:
        """Whether it is an external agent."""
        return isinstance(self.agent, CommandAgent)

    @property
    def refusal_to_seal(self) -> str | None:
        """Why it is not sealed here, None when it is."""
        if not isinstance(self.agent, CommandAgent):
            return "it is an agent of the package"
        return refusal_to_seal(self.sealing, remote=self.agent.file.remote)

    @property
    def asks_model(self) -> bool:
        """Whether a model is asked through us."""
        return not isinstance(self.agent, CommandAgent) or "model" in self.agent.file.needs

    @property
    def paid(self) -> bool:
        """Whether a run may cost money: its model is one of an endpoint."""
        return self.asks_model and self.model is not None and self.model.partition(":")[0] not in FREE

    def solver(self) -> Solver:
        """Return the solver that this is; *limits* are part of it, since they move answers."""
        configuration: dict[str, Any] = {"limits": self.limits.model_dump(mode="json", exclude={"pause_s", "retries"})}
        if self.asks_model:
            configuration |= {"model": _model_label(self.model), "temperature": self.temperature}
        if self.paid:
            configuration["endpoint"] = parts_of(base_url_set())[1]
        if isinstance(self.agent, CommandAgent):
            configuration |= {"command": list(self.agent.file.command), "needs": list(self.agent.file.needs)}
        else:
            configuration |= dict(self.agent.configuration)
        name = self.agent.name
        label = f"{name} ({_model_label(self.model)})" if self.asks_model and self.model else name
        return Solver(name=label, kind="agent", configuration=configuration, version=__version__)

    def solver_hash(self) -> str:
        """Return the SHA-256 of the solver, of its source and of a script that plays its model."""
        total = hashlib.sha256(self.solver().digest().encode())
        if isinstance(self.agent, CommandAgent):
            total.update(self.agent.source_hash.encode())
        own = [] if isinstance(self.agent, CommandAgent) else sources_of(self.agent)
        for file in sorted({*Path(agents.__file__).parent.rglob("*.py"), *own}):
            total.update(f"\0{file.name}\0{hashlib.sha256(file.read_bytes()).hexdigest()}".encode())
        kind, _, rest = (self.model or "").partition(":")
        if kind == "scripted" and Path(rest).is_file():
            total.update(Path(rest).read_bytes())
        return total.hexdigest()


def setup_of(
    name: str,
    *,
    model: str | None = None,
    limits: Mapping[str, Any] | None = None,
    price: Price | None = None,
    temperature: float | None = None,
    sealing: Sealing = "auto",
) -> Setup:
    """Return the agent called *name* (a registered one, MODULE:CLASS, or the path of an agent.yaml), ready to be run.

    *limits* go over the agent's own. Raises UserError for an agent that needs a model and gets none, and what making
    agent and model raise: all of it before anything runs.
    """
    agent: Agent | CommandAgent
    if name.endswith((".yaml", ".yml")):
        agent = external_agent(Path(name))
        mounts_of(agent)  # what it may not see is refused before anything runs
        if APIS in agent.file.needs:
            import opsassay.telemetry.backends.serving  # noqa: F401 - and so is what is not installed
        own = agent.file.limits
    else:
        agent, own = agent_named(name), Limits()
    merged = Limits.model_validate({**own.model_dump(), **(limits or {})})
    setup = Setup(name, agent, _absolute(model), merged, price or Price(), temperature, sealing)
    if setup.asks_model:
        if model is None:
            raise UserError(
                f"{agent.name} asks a model: name one with --model (scripted:FILE.yaml, replayed:SESSION, or one of the "
                "endpoint that OPENAI_BASE_URL and OPENAI_API_KEY tell)."
            )
        model_named(str(setup.model))
    if merged.money_usd is not None and setup.paid and setup.price == Price():
        raise UserError(
            "A limit of money needs prices: give -c price.input=USD -c price.output=USD per million tokens."
        )
    if sealing == "required" and setup.is_command and (why := setup.refusal_to_seal):
        how = "Leave out sealing=required to run unsealed and unranked."
        raise RefusedError(f"{setup.agent.name} cannot be sealed here: {why.rstrip('.')}. {how}")
    return setup


def cell_of(item: IncidentItem, setup: Setup, mask: Mask, seed: int) -> RunSpec:
    """Return the cell of one run; the mask is its arm."""
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
    """Run the agent on the incident and return the folder of the run.

    An agent of the package runs in a worker process as a method does, an external one sealed where this machine can. A
    failure of the endpoint aborts the run, so that the next call tries it again, and so does its end when all was
    *given_up*; all else is a result. Raises UserError for an agent that would see what holds incidents, truth or runs.
    """
    mask = mask or Mask()
    if isinstance(setup.agent, CommandAgent):
        require_apart(setup.agent, [store.root, *kept_of([item.datapack.path])])
    sealed = setup.refusal_to_seal is None
    isolation: Isolation = "in_process"
    if setup.is_command or not _is_ours(setup.name):
        isolation = "sealed" if sealed else "unsealed"

    def solve(run_dir: Path, _: Callable[[], bool]) -> AttemptOutcome:
        with masked(item.datapack, mask) as seen:
            if isinstance(setup.agent, CommandAgent):
                meter = Meter(setup.limits, setup.price)
                return examine(setup.agent, seen, run_dir, meter, model=setup.model, sealed=sealed)
            return _in_worker(setup, seen, run_dir)

    limits = {k: float(v) for k, v in setup.limits.model_dump().items() if v is not None}
    cell = cell_of(item, setup, mask, seed)
    return attempt(
        store, cell, solve, isolation=isolation, limits=limits, again=again, can_be_sealed=sealed, given_up=given_up
    )


def _is_ours(name: str) -> bool:
    return name in AGENTS.builtin_names()


def _in_worker(setup: Setup, incident: Datapack, run_dir: Path) -> AttemptOutcome:
    limits = setup.limits
    job = {
        "kind": "agent",
        "name": setup.name,
        "model": setup.model,
        "limits": limits.model_dump(mode="json"),
        "price": setup.price.model_dump(mode="json"),
        "temperature": setup.temperature,
        "modules": ["openai"] if setup.paid else [],
    }
    keys = {name: os.environ[name] for name in KEYS if name in os.environ} if setup.paid else {}
    with opaque_view(incident) as folder:
        canary = Canary(incident.incident, incident.services())
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
        payload = read_answer(folder / ANSWER)
    diagnosis, error = diagnosed(payload)
    if not isinstance(payload, dict):
        return AttemptOutcome(RunStatus.FAILED, error)
    flags = ("canary",) if diagnosis is not None and canary.is_repeated_in(diagnosis) else ()
    status = (
        RunStatus.DONE if diagnosis is not None else RunStatus.ABORTED if payload.get("world") else RunStatus.FAILED
    )
    return AttemptOutcome(
        status, error, diagnosis, tuple(payload.get("limits_hit") or ()), payload.get("spent") or {}, flags
    )


def _spent_so_far(folder: Path, price: Price) -> dict[str, float]:
    """Return what a killed run had spent, by its trace."""
    try:
        trace: Trace = read_one(folder / TRACE)
    except UserError:
        return {}
    tokens = {name: sum(step.usage.get(name, 0) for step in trace.steps) for name in ("input_tokens", "output_tokens")}
    return {
        "tool_calls": sum(len(step.tool_logs) for step in trace.steps),
        "model_calls": len(trace.steps),
        **tokens,
        "money_usd": round(price.of(tokens["input_tokens"], tokens["output_tokens"]), 6),
    }


def _absolute(model: str | None) -> str | None:
    """Return the name of a model with its file from the root, so that it means the same in every folder."""
    kind, _, rest = (model or "").partition(":")
    return f"{kind}:{Path(rest).absolute()}" if kind in FREE and rest else model


def _model_label(model: str | None) -> str:
    kind, _, rest = (model or "").partition(":")
    return f"{kind}:{Path(rest).name}" if kind in FREE else model or ""
