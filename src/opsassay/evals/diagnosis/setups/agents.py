"""Agents with all that a run needs (model, limits, price, sandbox), and the settings of runs."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import Field, field_validator

from opsassay import __version__
from opsassay.core.errors import NotFoundError, RefusedError, UserError
from opsassay.core.schema.base import Written
from opsassay.core.schema.overrides import with_changes
from opsassay.core.schema.run import Solver
from opsassay.evals.diagnosis.workers.sources import sources_of
from opsassay.evals.runner.commands import Sealing, refusal_to_seal
from opsassay.evals.runner.external_agents import APIS
from opsassay.evals.runner.mounts import mounts_of, require_image
from opsassay.evals.runner.tool_servers import joined_name
from opsassay.solvers import agents
from opsassay.solvers.agents.base import AGENTS, Agent, agent_named
from opsassay.solvers.agents.command import CommandAgent
from opsassay.solvers.agents.limits import Limits, Price
from opsassay.solvers.agents.models.endpoint import base_url_set, parts_of
from opsassay.solvers.agents.models.named import FREE, model_named, require_endpoint
from opsassay.solvers.agents.ready import external_agent, named_path, ready_files
from opsassay.solvers.methods.base import METHODS
from opsassay.telemetry.mask import Mask


class RunSettings(Written):
    """Settings of runs, which `-c KEY=VALUE` may set."""

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
    def _split_into_tuple(cls, value: Any) -> Any:
        """Return *value* with the mask's `drop`, if it is a comma-separated text, split into a list."""
        if isinstance(value, dict) and isinstance(value.get("drop"), str):
            return {**value, "drop": [part.strip() for part in value["drop"].split(",")]}
        return value


def read_settings(changes: Sequence[str]) -> RunSettings:
    """Return the default run settings with *changes* ``key.sub=value`` (values in YAML) applied; raises ConfigError."""
    return with_changes(RunSettings, {}, changes, example="mask.drop=logs")


@dataclass(frozen=True)
class Setup:
    """An agent with all that a run of it needs; *servers* are further MCP servers."""

    name: str
    agent: Agent | CommandAgent
    model: str | None
    limits: Limits
    price: Price = field(default_factory=Price)
    temperature: float | None = None
    sealing: Sealing = "auto"
    servers: Sequence[CommandAgent] = ()
    """MCP servers whose tools it has besides those over the incident."""

    @property
    def is_command(self) -> bool:
        """Whether the agent is an external command, not a Python class."""
        return isinstance(self.agent, CommandAgent)

    @property
    def refusal_to_seal(self) -> str | None:
        """The reason why the agent runs without a sandbox of its own, None when it is sandboxed."""
        if not isinstance(self.agent, CommandAgent):
            return "it is an agent of the package"
        return refusal_to_seal(self.sealing, remote=self.agent.file.remote)

    @property
    def seals_servers(self) -> bool:
        """Whether its MCP servers are sandboxed on this machine."""
        return refusal_to_seal(self.sealing) is None

    @property
    def asks_model(self) -> bool:
        """Whether the agent calls a language model through OpsAssay."""
        return not isinstance(self.agent, CommandAgent) or "model" in self.agent.file.needs

    @property
    def paid(self) -> bool:
        """Whether a run may cost money: its model is called at an endpoint."""
        return self.asks_model and self.model is not None and self.model.partition(":")[0] not in FREE

    def solver(self) -> Solver:
        """Return the Solver record (agent, model, limits) by which results identify this setup."""
        configuration: dict[str, Any] = {"limits": self.limits.model_dump(mode="json", exclude={"pause_s", "retries"})}
        if self.asks_model:
            configuration |= {"model": _label_of_model(self.model), "temperature": self.temperature}
        if self.paid:
            configuration["endpoint"] = parts_of(base_url_set())[1]
        if isinstance(self.agent, CommandAgent):
            configuration |= {"command": list(self.agent.file.command), "needs": list(self.agent.file.needs)}
        else:
            configuration |= dict(self.agent.configuration)
        if self.servers:
            configuration["tools"] = [one.name for one in self.servers]
        name = joined_name(self.agent.name, self.servers)
        label = f"{name} ({_label_of_model(self.model)})" if self.asks_model and self.model else name
        return Solver(name=label, kind="agent", configuration=configuration, version=__version__)

    def solver_hash(self) -> str:
        """Return the SHA-256 over the solver's description, its source code and any scripted model's file."""
        total = hashlib.sha256(self.solver().digest().encode())
        for one in (self.agent, *self.servers):
            if isinstance(one, CommandAgent):
                total.update(one.source_hash.encode())
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
    """Return the agent *name* (registered, MODULE:CLASS, or the path of an agent.yaml) with all that a run needs.

    *limits* override the agent's own, *price* is per million tokens, *sealing* is the sandboxing of commands. Raises
    UserError for an agent that needs a model and gets none, and errors of making agent and model, before any run.
    """
    agent: Agent | CommandAgent
    if name.endswith((".yaml", ".yml")):
        agent = external_agent(Path(name))
        mounts_of(agent)  # what it may not see is refused before anything runs
        require_image(agent, sealing)
        if APIS in agent.file.needs:
            import opsassay.telemetry.backends.serving  # noqa: F401 - and so is what is not installed
        own = agent.file.limits
    else:
        agent, own = agent_named(name), Limits()
    merged = Limits.model_validate({**own.model_dump(), **(limits or {})})
    setup = Setup(name, agent, _absolute_model_name(model), merged, price or Price(), temperature, sealing)
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


def agent_setup(name: str, model: str | None, settings: RunSettings) -> Setup:
    """Return the agent *name* with *model* and the *settings* of its runs; NotFoundError, and as `setup_of`."""
    name = named_path(name)
    if name not in AGENTS.names() and ":" not in name and not name.endswith((".yaml", ".yml")):
        hint = "An external agent is named by its YAML file."
        raise NotFoundError("agent or method", name, [*AGENTS.names(), *ready_files(), *METHODS.names()], hint)
    setup = setup_of(
        name,
        model=model,
        limits=settings.limits.model_dump(exclude_unset=True),
        price=settings.price,
        temperature=settings.temperature,
        sealing=settings.sealing,
    )
    if setup.asks_model:
        require_endpoint(str(setup.model))
    return setup


def _absolute_model_name(model: str | None) -> str | None:
    """Return *model* with the path of a file in its name made absolute; None stays None."""
    kind, _, rest = (model or "").partition(":")
    return f"{kind}:{Path(rest).absolute()}" if kind in FREE and rest else model


def _label_of_model(model: str | None) -> str:
    """Return the model's name for display: a script's file without its folder."""
    kind, _, rest = (model or "").partition(":")
    return f"{kind}:{Path(rest).name}" if kind in FREE else model or ""
