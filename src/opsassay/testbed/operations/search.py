"""The environment of a search for faults: a running system with a healthy baseline; each substrate implements it."""

from __future__ import annotations

import os
import secrets
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import yaml
from pydantic import Field

from opsassay.core.errors import NotFoundError, RefusedError, UserError
from opsassay.core.registry import Registry
from opsassay.core.schema.base import Written
from opsassay.core.schema.files import parse_yaml
from opsassay.core.schema.scenario import OpsCall, Scenario
from opsassay.core.schema.system import System
from opsassay.core.schema.tool_session import ToolSpec
from opsassay.core.schema.trajectory import ToolCall
from opsassay.testbed.scenarios import system_of

CHANGES_LIMIT = 6


class Block(NamedTuple):
    """A building block of candidates: *family* is the kind of mistake, *changes* are its calls."""

    name: str
    family: str
    changes: tuple[OpsCall, ...]


class Composition(Written):
    """The changes by which a candidate breaks a healthy system; () is allowed."""

    changes: tuple[OpsCall, ...] = Field(default=(), max_length=CHANGES_LIMIT)

    @property
    def name(self) -> str:
        """The calls of the composition as text, such as "scale(cart, 0)"."""
        return " + ".join(_format_call(change) for change in self.changes) or "nothing"

    def text(self) -> str:
        """Return this composition as YAML, which `parse` reads."""
        return yaml.safe_dump(self.model_dump(mode="json"), sort_keys=False)


def parse(text: str, name: str = "candidate") -> Composition:
    """Return the composition in the YAML *text*; raises ConfigError that gives *name*, line and field."""
    return parse_yaml(text, Composition, name)


def _format_call(change: OpsCall) -> str:
    """Return the call *change* as "verb(value, value)", with the values of its arguments."""
    payload = [str(value) for value in change.arguments.values()]
    return f"{change.verb}({', '.join(payload)})"


PASSES = 3
"""Most rounds of checking and repairing by the scripted operator."""


class Repair(NamedTuple):
    """The scripted operator's actions, in words, and whether the system looked healthy afterwards."""

    actions: tuple[str, ...]
    healthy: bool


def repair_what_shows(settled: Callable[[], bool], apply_repairs: Callable[[], list[str]]) -> Repair:
    """Alternate *settled* (healthy?) and *apply_repairs* until healthy or no repair is left, at most PASSES times."""
    actions: list[str] = []
    for _ in range(PASSES):
        if settled():
            return Repair(tuple(actions), healthy=True)
        done = apply_repairs()
        if not done:
            break
        actions += done
    return Repair(tuple(actions), healthy=settled())


class SearchEnvironment(ABC):
    """One running system under search, with one workload that candidates break and the scripted operator repairs.

    `prepare` deploys it once; each candidate runs between `start`, which waits for the healthy baseline, and `settle`,
    which restores it.
    """

    def __init__(self, scenario: Scenario, target: str, seed: int, settings: Mapping[str, Any]) -> None:
        self.scenario, self.target, self.seed, self.settings = scenario, target, seed, settings
        self.system = require_target(scenario, target)
        self.name = f"discover-{os.getpid()}-{secrets.token_hex(2)}"
        self._deployment = ExitStack()

    def prepare(self) -> None:
        """Deploy the system without a fault."""
        self._deployment.enter_context(self.deployed())

    def session(self) -> CandidateToolSession:
        """Return the tool session that applies the changes of a candidate, a fault that a search tries out."""
        return CandidateToolSession(self.make)

    def remove(self) -> None:
        """Remove the system."""
        self._deployment.close()

    def verify(self) -> list[str]:
        """Return a sentence if the removed system still runs, else []."""
        return [f"the system {self.name} still runs"] if self.name in self.running_names() else []

    @abstractmethod
    def start(self) -> None:
        """Wait until the system is healthy; raises OperationError when it does not become so."""

    @abstractmethod
    def settle(self) -> None:
        """Undo all changes and wait until the system is healthy; raises OperationError."""

    @abstractmethod
    def deployed(self) -> AbstractContextManager[None]:
        """Run the system while the block runs."""

    @abstractmethod
    def running_names(self) -> Collection[str]:
        """Return the names of all systems that the substrate runs now."""

    @abstractmethod
    def refusal(self, composition: Composition) -> str | None:
        """Return why *composition*, the changes of a candidate fault, must not be applied; None when it may."""

    @abstractmethod
    def make(self, change: OpsCall) -> None:
        """Apply one *change* of a candidate fault to the system; raises UserError when it has no such change."""

    @abstractmethod
    def violation(self) -> str | None:
        """Return which condition of a valid fault the system violates, with the candidate fault applied; else None."""

    @abstractmethod
    def repair(self) -> Repair:
        """Let the scripted operator repair the system; return its actions and whether it looks healthy."""

    @abstractmethod
    def observed(self, timeline: Path) -> AbstractContextManager[Any]:
        """Record the system in *timeline* during the block; user requests are sent only at its end."""


class CandidateToolSession:
    """Takes the changes of a candidate as tool calls and carries each out by *make*."""

    def __init__(self, make: Callable[[OpsCall], None]) -> None:
        self._make = make

    def specs(self) -> tuple[ToolSpec, ...]:
        """Return (): the changes that a candidate (a fault that is tried) may make are listed in the task's text."""
        return ()

    def call(self, tool: str, arguments: Mapping[str, Any], step_id: int | None = None) -> ToolCall:
        """Apply the change *tool* with *arguments*; return output, or a UserError as output; *step_id* is ignored."""
        del step_id
        try:
            self._make(OpsCall(verb=tool, arguments=dict(arguments)))
        except UserError as error:
            return ToolCall(tool=tool, arguments=dict(arguments), output=str(error), status="error")
        return ToolCall(tool=tool, arguments=dict(arguments), output="done")


@dataclass(frozen=True)
class FaultSearch:
    """The parts of a fault search that a substrate provides; *settings* in their arguments are those of the substrate.

    *blocks* returns the building blocks by system and target; *invalid* one candidate of each invalid class of
    "side-effects", App. H.3; *task* the prompt of a model that rewrites candidates; *operator* is text on what the
    scripted operator does and does not check; *environment* is made from (scenario, target, seed, settings).
    """

    blocks: Callable[[System, str, Mapping[str, Any]], tuple[Block, ...]]
    invalid: Callable[[System, str], tuple[Block, ...]]
    task: Callable[[System, str, Mapping[str, Any]], str]
    operator: tuple[str, str]
    environment: Callable[[Scenario, str, int, Mapping[str, Any]], SearchEnvironment]


FAULT_SEARCHES = Registry(
    "substrate for searches",
    "opsassay.fault_searches",
    {
        "local": "opsassay.testbed.substrates.local.search.environment:FAULT_SEARCH",
        "kubernetes": "opsassay.testbed.substrates.kubernetes.search.environment:FAULT_SEARCH",
    },
)
"""Substrate of a scenario to its `FaultSearch`; packages add to them by the entry point ``opsassay.fault_searches``."""


def fault_search_for(scenario: Scenario) -> FaultSearch:
    """Return the fault search of the scenario's substrate; raises RefusedError where it has none."""
    substrate = scenario.environment.substrate
    if substrate not in (known := FAULT_SEARCHES.names()):
        raise RefusedError(f"{scenario.id} needs {substrate}; faults are searched on {' and '.join(known)}.")
    found: FaultSearch = FAULT_SEARCHES.load(substrate)
    return found


def require_target(scenario: Scenario, target: str) -> System:
    """Return the system of *scenario*; raises NotFoundError unless the service *target*, to be faulted, is in it."""
    system = system_of(scenario)
    if target not in system.services:
        raise NotFoundError("service", target, system.services)
    return system
