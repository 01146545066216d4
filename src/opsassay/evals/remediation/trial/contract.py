"""What performs a trial, and what it leaves in the run folder.

A run claims a folder, writes run.json and calls one function, `perform` of `opsassay.evals.remediation.trial.perform`.
It writes, each line as it happens::

    timeline.jsonl   by the observer, a process of its own, from before the trigger until after the agent
    phases.jsonl     `Phase`: deployed, baseline, triggered, agent_started, agent_ended, ended
    actions.jsonl    `Action`: every tool call that reached the system
    noise.jsonl      `EnvironmentAction`: background noise, in the arm that has it
    alerts.jsonl     `AlertReading`: every evaluation of the alert rules, also when nothing fires
    trace.jsonl      `TraceStep`: the steps of the agent
    diagnoses.jsonl  `OperatorDiagnosis`: what the agent says is the cause, as it says so; there for agents that are asked
    settings.jsonl   `SettingsReading`: how the system is set before the fault, before the agent, at its end and at the end
    outcomes.jsonl   `TrialOutcome`: bad luck and bad manners, each with its reason
    baseline.json    whether all of the system was gone at the end, and what was left

It raises OpsAssayError when the machinery failed. The attempt is aborted then: it is no result, it is not scored, and the
run is made again. An agent that fails is a result, not an error: it is recorded and scored.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, Protocol, Self

from pydantic import ConfigDict, Field, ValidationError, field_validator, model_validator

from opsassay.core.errors import NotFoundError, UserError
from opsassay.core.schema.base import Written
from opsassay.core.schema.json_lines import append_line
from opsassay.core.schema.run_folder import OUTCOMES, PHASES
from opsassay.core.schema.scenario import Scenario
from opsassay.core.schema.trajectory import OutcomeName, Phase, PhaseName, TrialOutcome
from opsassay.core.schema.validation_errors import problem
from opsassay.evals.runner.commands import Sealing
from opsassay.evals.runner.external_agents import ExternalAgent
from opsassay.evals.runner.mounts import require_apart, require_image
from opsassay.evals.runner.ranking import ORACLE
from opsassay.evals.runner.tool_servers import PlannedTools, joined_name, tool_servers
from opsassay.solvers.agents.command import PLACES, CommandAgent
from opsassay.solvers.agents.limits import Limits, Price
from opsassay.solvers.agents.ready import external_agent, or_a_name, resolve_ready_agent
from opsassay.telemetry.mask import Mask

REPORT = "agent.json"
"""File on the agent's end: its notes and usage, and for a command whether it was sandboxed."""
BASELINE = "baseline.json"
"""File on the removal of the system: whether it was ``verified``, and what was ``left``."""
GATE_S = 900.0
"""Seconds that a prepared system waits for its gate file."""
PromptArm = Literal["baseline", "constrained"]
SRE = "sre"


class CommandSettings(Written):
    """The `settings` of an external agent in a plan; they override those of its agent.yaml."""

    files: tuple[str, ...] = Field(default=(), description="its files and folders, as the caller's folder finds them")
    sealing: Sealing = Field(default="auto", description="off: a process of this user")
    needs: tuple[Literal["model", "mcp", "apis"], ...] = Field(
        default=(), description="its model, the APIs of backends"
    )
    limits: dict[str, Any] = Field(default_factory=dict, description="tokens, model_calls, money_usd and others")
    price: Price = Field(default=Price(), description="USD per million tokens")

    @field_validator("limits")
    @classmethod
    def _are_limits(cls, settings: dict[str, Any]) -> dict[str, Any]:
        """Return *settings*; raises ValueError for a key that is no limit, and for seconds."""
        if "seconds" in settings:
            raise ValueError("seconds: how long an agent may work is the scenario's agent_timeout_s")
        Limits.model_validate(settings)
        return settings


class TrialAgent(Written):
    """The operator of a trial: ``oracle:NAME`` of the scenario, the built-in agent ``sre``, or an external one.

    An external agent is a *command*, or *name* is its agent.yaml. The JSON of this model is the configuration in stored
    runs and, hashed, part of their ids, with limits as written; a `Setup` hashes the limits in force, so these are two
    models.
    """

    model_config = ConfigDict(json_schema_extra=or_a_name)

    name: str = Field(min_length=1)
    command: tuple[str, ...] = Field(default=(), description="an external agent and its arguments")
    model: str | None = Field(default=None, description="model of the agent, if it asks one")
    settings: dict[str, Any] = Field(default_factory=dict)
    tools: tuple[str, ...] = Field(
        default=(), description="files of MCP servers whose tools it has too", exclude_if=lambda files: not files
    )

    @model_validator(mode="before")
    @classmethod
    def _wrap_bare_name(cls, value: Any) -> Any:
        """Return {"name": value} when *value* is a text, else *value*."""
        return resolve_ready_agent(value)

    @model_validator(mode="after")
    def _can_operate(self) -> Self:
        """Return the agent; raises ValueError if it is unknown, or has settings that do not fit it."""
        if self.oracle is None and not self.is_outside and self.name != SRE:
            hint = "Use oracle:NAME too, an agent.yaml, or give a `command`."
            known = NotFoundError("operator", self.name, [SRE], hint)
            raise ValueError(str(known).rstrip("."))
        if self.name == SRE and not self.command and self.model is None:
            raise ValueError("the agent sre needs a model: give `model: NAME`, or `scripted:FILE` for a script")
        if self.oracle is not None and (self.settings or self.command or self.model or self.tools):
            raise ValueError(f"{self.name} is a script of its scenario and takes no command, model, settings or tools")
        if not self.is_outside and "seconds" in self.settings:
            raise ValueError("settings.seconds: how long an agent may work is the scenario's agent_timeout_s")
        try:
            (CommandSettings if self.is_outside else Limits).model_validate(self.settings)
        except ValidationError as error:
            raise ValueError(f"settings.{problem(error)}") from error
        return self

    @property
    def oracle(self) -> str | None:
        """The name of the scenario's oracle to carry out, None for an agent."""
        return self.name.removeprefix(ORACLE) if self.name.startswith(ORACLE) else None

    @property
    def is_outside(self) -> bool:
        """Whether the agent is an external command."""
        return bool(self.command) or self.name.endswith((".yaml", ".yml"))

    @property
    def solver_name(self) -> str:
        """The display name of the agent in results."""
        name = self.name if self._external_agent is None else self._external_agent.name
        return joined_name(name, self.servers)

    @property
    def own_settings(self) -> CommandSettings:
        """The validated settings of an external agent: limits, needs, files and sandboxing."""
        return CommandSettings.model_validate(self.settings)

    @property
    def sealing(self) -> Literal["auto", "required", "off"]:
        """Whether an external agent is sandboxed, and the servers of *tools*."""
        return self.own_settings.sealing if self.is_outside else "auto"

    @property
    def remote(self) -> bool:
        """Whether the external agent forwards its task to an agent on another machine."""
        return self._external_agent is not None and self._external_agent.file.remote

    @cached_property
    def _external_agent(self) -> CommandAgent | None:
        """The agent that the agent.yaml *name* describes; None for plain commands and built-in agents."""
        return None if self.command or not self.is_outside else external_agent(Path(self.name))

    @cached_property
    def servers(self) -> tuple[CommandAgent, ...]:
        """The MCP servers of *tools*; raises as `tool_servers`."""
        return tuple(tool_servers([PlannedTools(mcp=file) for file in self.tools], Path()))

    def require_apart(self, store: Path) -> None:
        """Raise UserError, before a run, when the agent or a server could read the *store*, or an image is missing."""
        for server in self.servers:
            require_apart(server, [store])
        if self._external_agent is not None:
            require_apart(self._external_agent, [store])
            require_image(self._external_agent, self.sealing)

    def limits(self, timeout_s: float) -> Limits:
        """Return the limits of an external agent, with *timeout_s* seconds of working time."""
        own = {} if self._external_agent is None else self._external_agent.file.limits.model_dump(exclude_unset=True)
        return Limits.model_validate({**own, **self.own_settings.limits, "seconds": timeout_s})

    def outside(self) -> ExternalAgent:
        """Return the external agent ready to be run; raises UserError for a missing file."""
        if self._external_agent is not None:
            return ExternalAgent.from_command(self._external_agent, self.model)
        return ExternalAgent(
            self.name,
            lambda places: [word.format(**{**dict.fromkeys(PLACES, ""), **places}) for word in self.command],
            self.files(),
            self.own_settings.needs,
            model=self.model,
        )

    def files(self) -> list[tuple[str, Path]]:
        """Return the (name, path) of each file or folder that an external agent consists of.

        Those of a command are in ``settings.files``. Raises UserError for a missing one.
        """
        if self._external_agent is not None:
            return [(self._external_agent.path.name, self._external_agent.path), *self._external_agent.each_file()]
        found: list[tuple[str, Path]] = []
        for top in map(Path, self.own_settings.files if self.command else ()):
            if not top.exists():
                raise UserError(
                    f"Agent {self.name}: settings.files: there is no {top}; name what the agent is made of."
                )
            inside = sorted(top.rglob("*")) if top.is_dir() else [top]
            found += [
                (str(file.relative_to(top.parent)), file)
                for file in inside
                if file.is_file() and "__pycache__" not in file.parts
            ]
        return found


class Perform(Protocol):
    """A function that deploys a system, breaks it, runs *agent* on it, records everything, and removes the system."""

    def __call__(
        self,
        scenario: Scenario,
        agent: TrialAgent,
        arm: PromptArm,
        *,
        probes: bool,
        seed: int,
        run_dir: Path,
        cluster: Mapping[str, Any] | None = None,
        mask: Mask | None = None,
        rollback: bool = False,
        noise: bool = False,
    ) -> None:
        """Perform one trial into *run_dir*; without *probes* only the final committed probe is sent. Raises OpsAssayError.

        *cluster* is which cluster a scenario for Kubernetes happens on, *mask* what of the telemetry tools leave out; with
        *rollback* one of them takes the agent's own changes back; with *noise* harmless things happen besides.
        """
        ...


def mark_phase(run_dir: Path, phase: PhaseName) -> int:
    """Append *phase* with the current time to the record in *run_dir*; return that time, ns of UTC."""
    now = time.time_ns()
    append_line(run_dir / PHASES, Phase(phase=phase, time_ns=now))
    return now


def note_outcome(run_dir: Path, outcome: OutcomeName, reason: str) -> None:
    """Append an *outcome* with its *reason* to the record in *run_dir*; it does not affect the verdict."""
    append_line(run_dir / OUTCOMES, TrialOutcome(time_ns=time.time_ns(), outcome=outcome, reason=reason))
