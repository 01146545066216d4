"""The laboratory on this machine: a local system whose baseline is its definition."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

from opsassay.core.schema.scenario import OpsCall, Scenario
from opsassay.core.schema.system import System
from opsassay.testbed.operations.composition import Composition
from opsassay.testbed.operations.laboratory import LaboratorySetup, Repair, require_target
from opsassay.testbed.recording.observer import observing
from opsassay.testbed.scenarios import system_of
from opsassay.testbed.substrates.local.laboratory.baseline import restore, verify
from opsassay.testbed.substrates.local.laboratory.blocks import audit_cases, blocks
from opsassay.testbed.substrates.local.laboratory.guard import refusal, violation
from opsassay.testbed.substrates.local.laboratory.operator import repair
from opsassay.testbed.substrates.local.substrate import LocalSubstrate, LocalSystem

TASK = """You search for faults that a scripted operator believes to have repaired while a deeper property stays broken.
A program is a YAML text with the one key `changes`: a list of at most six {{verb, arguments}}. Verbs: config set (target,
key, value), config unset (target, key), release (service, version), scale (service, replicas), restart (target), firewall
add (service, client), clock set (host, offset_s). The target `names` holds the name server's records. Services: {services}.
The workload to fault is {target}; it must go on existing. Answer with one ```yaml block that holds the whole program."""


OPERATOR = (
    "It looks at replicas and releases; it scales back, rolls back, and restarts with known good settings.",
    "It sends no request, and reads no firewall rule, no name record and no clock.",
)
"""What the scripted operator does, and what it does not look at."""


class LocalLaboratory:
    """The *running* system of *scenario* under search; *target* is the workload that is faulted."""

    def __init__(self, scenario: Scenario, target: str, running: LocalSystem) -> None:
        self._scenario, self._target, self._running = scenario, target, running
        self._system = system_of(scenario)

    def refusal(self, composition: Composition) -> str | None:
        """Return why *composition* reaches outside of what the baseline restores."""
        return refusal(composition, self._system)

    def verify(self) -> None:
        """Wait for what the definition says."""
        verify(self._running, self._system)

    def restore(self, composition: Composition) -> None:
        """Bring back what the definition says; what was touched restarts."""
        touched = {str(value) for change in composition.changes for value in change.arguments.values()}
        restore(self._running, self._system, frozenset(touched))

    def apply(self, change: OpsCall) -> None:
        """Carry out an operator's verb."""
        self._running.operate(change.verb, change.arguments)

    def violation(self) -> str | None:
        """Return which precondition does not hold."""
        return violation(self._running, self._system, self._target)

    def repair(self) -> Repair:
        """Have the scripted operator of a local system work."""
        return repair(self._running, self._system)

    def observed(self, timeline: Path) -> AbstractContextManager[Any]:
        """Observe it, without a probe but the last one."""
        committed = self._scenario.verification
        return observing(
            self._running.state.name, timeline, cadence_s=committed.cadence_s, probe_every_s=None,
            protected=committed.protected_services,
        )  # fmt: skip


@contextmanager
def _deployed(scenario: Scenario, target: str, seed: int, _settings: Mapping[str, Any]) -> Iterator[LocalLaboratory]:
    system, environment = require_target(scenario, target), scenario.environment
    name = f"discover-{os.getpid()}-{secrets.token_hex(2)}"
    with LocalSubstrate().deployed(
        system, name, seed=environment.seed + seed, rate_rps=environment.rate_rps
    ) as running:
        yield LocalLaboratory(scenario, target, running)


def _task(system: System, target: str, _settings: Mapping[str, Any]) -> str:
    return TASK.format(services=", ".join(system.services), target=target)


LABORATORY = LaboratorySetup(
    blocks=lambda system, target, _settings: blocks(system, target),
    invalid=audit_cases,
    task=_task,
    operator=OPERATOR,
    deploy=_deployed,
)
