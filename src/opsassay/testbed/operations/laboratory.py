"""What a search for faults happens in: a running system with a clean baseline; each substrate brings its own laboratory."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from opsassay.core.errors import NotFoundError, RefusedError
from opsassay.core.registry import Registry
from opsassay.core.schema.scenario import OpsCall, Scenario
from opsassay.core.schema.system import System
from opsassay.testbed.operations.composition import Block, Composition
from opsassay.testbed.scenarios import system_of

PASSES = 3
"""How often the scripted operator looks and repairs."""


class Repair(NamedTuple):
    """What the scripted operator did, in words, and whether it left the surface healthy."""

    actions: tuple[str, ...]
    healthy: bool


def repair_what_shows(settled: Callable[[], bool], treat: Callable[[], list[str]]) -> Repair:
    """Look, repair, look again, until the surface is *settled* or *treat* knows nothing more to try."""
    actions: list[str] = []
    for _ in range(PASSES):
        if settled():
            return Repair(tuple(actions), healthy=True)
        done = treat()
        if not done:
            break
        actions += done
    return Repair(tuple(actions), healthy=settled())


class Laboratory(Protocol):
    """One running system under search, with one workload that candidates fault and the scripted operator repairs."""

    def refusal(self, composition: Composition) -> str | None:
        """Return why *composition* may not be applied at all, None when it may."""

    def verify(self) -> None:
        """Wait for the clean baseline; raises OperationError when it does not hold."""

    def restore(self, composition: Composition) -> None:
        """Take *composition* and what came of it back, and verify; raises OperationError."""

    def apply(self, change: OpsCall) -> None:
        """Make one change; raises UserError when it is none of this system's."""

    def violation(self) -> str | None:
        """Return which precondition does not hold now that a candidate is applied, None when all hold."""

    def repair(self) -> Repair:
        """Have the scripted operator work."""

    def observed(self, timeline: Path) -> AbstractContextManager[Any]:
        """Observe the system into *timeline* while the block runs, without a request but the last one."""


@dataclass(frozen=True)
class LaboratorySetup:
    """What a substrate brings for a search. *settings* are those of the substrate.

    *blocks* are what candidates are made of, by system and target; *invalid* one candidate of each invalid class of
    "side-effects", App. H.3; *task* what a model that rewrites candidates is given; *operator* what the scripted operator
    does, and what it does not look at; *deploy* runs the scenario's system, unbroken, while the block runs: from (scenario,
    target, seed, settings).
    """

    blocks: Callable[[System, str, Mapping[str, Any]], tuple[Block, ...]]
    invalid: Callable[[System, str], tuple[Block, ...]]
    task: Callable[[System, str, Mapping[str, Any]], str]
    operator: tuple[str, str]
    deploy: Callable[[Scenario, str, int, Mapping[str, Any]], AbstractContextManager[Laboratory]]


LABORATORIES = Registry(
    "substrate for searches",
    "opsassay.laboratories",
    {
        "local": "opsassay.testbed.substrates.local.laboratory.laboratory:LABORATORY",
        "kubernetes": "opsassay.testbed.substrates.kubernetes.laboratory.laboratory:LABORATORY",
    },
)
"""A `LaboratorySetup` by the substrate of a scenario; packages add to them by the entry point ``opsassay.laboratories``."""


def setup_for(scenario: Scenario) -> LaboratorySetup:
    """Return the setup of the scenario's substrate; raises RefusedError where no faults are searched."""
    substrate = scenario.environment.substrate
    if substrate not in (known := LABORATORIES.names()):
        raise RefusedError(f"{scenario.id} needs {substrate}; faults are searched on {' and '.join(known)}.")
    setup: LaboratorySetup = LABORATORIES.load(substrate)
    return setup


def require_target(scenario: Scenario, target: str) -> System:
    """Return the system of *scenario*; raises NotFoundError when *target* is no service of it."""
    system = system_of(scenario)
    if target not in system.services:
        raise NotFoundError("service", target, system.services)
    return system
