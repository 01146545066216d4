"""The search for faults on this machine: a local system whose clean baseline is its definition."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

from opsassay.core.schema.scenario import OpsCall, Scenario
from opsassay.core.schema.system import System
from opsassay.testbed.operations.search import Composition, FaultSearch, Repair, SearchEnvironment
from opsassay.testbed.recording.observer import observing
from opsassay.testbed.substrates.local.search.baseline import restore, verify
from opsassay.testbed.substrates.local.search.candidates import audit_cases, blocks, refusal, violation
from opsassay.testbed.substrates.local.search.operator import repair
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


class LocalSearchEnvironment(SearchEnvironment):
    """A system on this machine under search; its definition is the clean baseline."""

    running: LocalSystem

    def __init__(self, scenario: Scenario, target: str, seed: int, settings: Mapping[str, Any]) -> None:
        super().__init__(scenario, target, seed, settings)
        self._substrate, self._touched = LocalSubstrate(), set[str]()

    @contextmanager
    def deployed(self) -> Iterator[None]:
        """Run the system while the block runs."""
        environment = self.scenario.environment
        with self._substrate.deployed(
            self.system, self.name, seed=environment.seed + self.seed, rate_rps=environment.rate_rps
        ) as self.running:
            yield

    def running_names(self) -> Collection[str]:
        """Return the names of the systems on this machine."""
        return self._substrate.names()

    def refusal(self, composition: Composition) -> str | None:
        """Return why *composition* must not be applied, since a restore does not undo it; None when it may."""
        return refusal(composition, self.system)

    def start(self) -> None:
        """Wait until the system equals its definition and is ready; raises OperationError."""
        verify(self.running, self.system)

    def settle(self) -> None:
        """Restore the system to its definition and restart the services that were changed."""
        restore(self.running, self.system, frozenset(self._touched))
        self._touched.clear()

    def make(self, change: OpsCall) -> None:
        """Apply *change*, a call of an operator's verb; raises UserError for an unknown one."""
        self._touched |= {str(value) for value in change.arguments.values()}
        self.running.operate(change.verb, change.arguments)

    def violation(self) -> str | None:
        """Return why the target service is not valid (gone, or its name leads nowhere), None when it is."""
        return violation(self.running, self.system, self.target)

    def repair(self) -> Repair:
        """Let the scripted operator repair the system; return what it did."""
        return repair(self.running, self.system)

    def observed(self, timeline: Path) -> AbstractContextManager[Any]:
        """Record the system in *timeline* during the block; user requests are sent only at the end."""
        committed = self.scenario.verification
        return observing(
            self.running.state.name, timeline, cadence_s=committed.cadence_s, probe_every_s=None,
            protected=committed.protected_services,
        )  # fmt: skip


def _format_task(system: System, target: str, _settings: Mapping[str, Any]) -> str:
    """Return the text that asks a model to find faults of *target*."""
    return TASK.format(services=", ".join(system.services), target=target)


FAULT_SEARCH = FaultSearch(
    blocks=lambda system, target, _settings: blocks(system, target),
    invalid=audit_cases,
    task=_format_task,
    operator=OPERATOR,
    environment=LocalSearchEnvironment,
)
