"""The protocol of an agent, the exam that it solves (one incident), and the registry of agents."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from opsassay.core.errors import UserError
from opsassay.core.registry import Registry
from opsassay.core.schema.incident import Incident
from opsassay.core.text import first_line
from opsassay.solvers.agents.asking import Asker
from opsassay.solvers.agents.contract import Answer
from opsassay.solvers.agents.limits import Limits, Meter
from opsassay.solvers.agents.tools import TelemetryToolbox


@dataclass(frozen=True)
class Exam:
    """One incident as an agent gets it, with tools over its tables, a model to ask and the account of what is spent.

    *services* are the names in the data, with which the answer is checked; the agent does not see them.
    """

    incident: Incident
    services: tuple[str, ...]
    tools: TelemetryToolbox
    asker: Asker
    meter: Meter

    @property
    def limits(self) -> Limits:
        """The limits of time, tokens, money, model calls and tool calls for the run."""
        return self.meter.limits


@runtime_checkable
class Agent(Protocol):
    """An agent in Python, which asks a model through the exam's *asker*."""

    @property
    def name(self) -> str:
        """The agent's registered name."""

    @property
    def source(self) -> str:
        """The paper or project that the agent comes from, as a phrase."""

    @property
    def configuration(self) -> Mapping[str, Any]:
        """All settings that influence the agent's answers, by name; the solver hash covers them."""

    def solve(self, exam: Exam) -> Answer:
        """Return the agent's answer to the incident of *exam*; raises AnswerError, LimitError, OperationError."""


AGENTS = Registry("agent", "opsassay.agents", {"rca": "opsassay.solvers.agents.rca:RcaAgent"})
"""Classes of agents by name; an installed package adds its own through the entry-point group ``opsassay.agents``."""

TASK_AGENTS = {
    "sre": "opsassay.solvers.agents.sre:SreAgent",
    "ciso": "opsassay.solvers.agents.ciso:ComplianceAgent",
    "finops": "opsassay.solvers.agents.finops:FinopsAgent",
    "triage": "opsassay.solvers.agents.triage:TriageAgent",
}
"""The built-in agents of the other domains, by the name of their domain, which is also the agent's name in a plan."""


def agent_named(name: str) -> Agent:
    """Return the agent called *name*: a registered one, or ``module:class`` of code that can be imported.

    Raises NotFoundError with the nearest registered name, UserError when the code cannot be imported or is no agent.
    """
    if ":" in name:
        module, _, attribute = name.partition(":")
        try:
            made = getattr(importlib.import_module(module), attribute)()
        except (Exception, SystemExit) as error:
            raise UserError(
                f"The agent {name} cannot be imported ({first_line(error)}); give MODULE:CLASS or a known name."
            ) from error
    else:
        made = AGENTS.load(name)()
    if not isinstance(made, Agent):
        raise UserError(f"{name} is no agent: it needs name, source, configuration and solve(exam).")
    return made
