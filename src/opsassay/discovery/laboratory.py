"""Tries candidates on one running system: a clean baseline, the candidate, the scripted operator, and the verifier's word.

The search score is that of "side-effects", App. H: 1.0 when the outcome passes and the committed depth fails, 0.1 when the
operator met a symptom, else 0; and 0 for what the guard refuses, whatever it would have scored.
"""

from __future__ import annotations

import os
import secrets
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, Literal

from opsassay.discovery.baseline import restore, verify
from opsassay.discovery.composition import Composition
from opsassay.discovery.guard import refusal, violation
from opsassay.discovery.operator import Repair, repair
from opsassay.errors import NotFoundError, UserError
from opsassay.grading.verifiers.certify import judge
from opsassay.grading.verifiers.evidence import Recording, gather
from opsassay.grading.verifiers.judgement import Judgement
from opsassay.model.base import Noun
from opsassay.model.scenario import OpsCall, Scenario
from opsassay.model.trajectory import Phase, PhaseName
from opsassay.testbed.recording.observer import observing, read_timeline
from opsassay.testbed.scenarios import system_of
from opsassay.testbed.substrates.local.substrate import LocalSubstrate, LocalSystem

HIDDEN, DETECTED, NOTHING = 1.0, 0.1, 0.0
SETTLE_S = 2.0

Result = Literal["hidden", "benign", "seen", "refused", "invalid"]
"""hidden: outcome passes, depth fails; benign: both pass; seen: the outcome fails; refused: outside the reset boundary;
invalid: it cannot be applied, or a precondition does not hold."""


class Attempt(Noun):
    """What became of one candidate; *raw_fitness* is the score before the guard's word."""

    number: int
    composition: Composition
    families: tuple[str, ...] = ()
    result: Result
    fitness: float
    raw_fitness: float | None = None
    reason: str
    actions: tuple[str, ...] = ()
    v_outcome: bool | None = None
    v_depth: bool | None = None
    seconds: float = 0.0


class Laboratory(ABC):
    """One system under search: *target* is the workload that candidates fault and the operator repairs."""

    def __init__(self, scenario: Scenario, target: str, folder: Path) -> None:
        self.scenario, self.target, self.folder = scenario, target, folder
        self.system = system_of(scenario)

    @abstractmethod
    def refusal(self, composition: Composition) -> str | None:
        """Return why *composition* may not be applied at all, None when it may."""

    @abstractmethod
    def verify(self) -> None:
        """Wait for the clean baseline; raises OperationError when it does not hold."""

    @abstractmethod
    def restore(self, composition: Composition) -> None:
        """Take *composition* and what came of it back, and verify; raises OperationError."""

    @abstractmethod
    def apply(self, change: OpsCall) -> None:
        """Make one change; raises UserError when it is none of this system's."""

    @abstractmethod
    def violation(self) -> str | None:
        """Return which precondition does not hold now that a candidate is applied, None when all hold."""

    @abstractmethod
    def repair(self) -> Repair:
        """Have the scripted operator work."""

    @abstractmethod
    def observed(self, timeline: Path) -> AbstractContextManager[Any]:
        """Observe the system into *timeline* while the block runs."""

    def attempt(self, number: int, composition: Composition, families: tuple[str, ...] = ()) -> Attempt:
        """Try *composition* on the clean baseline, which is restored and verified afterwards.

        Raises OperationError when the baseline does not come back.
        """
        began = time.monotonic()
        told = {"number": number, "composition": composition, "families": families}
        if reason := self.refusal(composition):
            return Attempt(**told, result="refused", fitness=NOTHING, reason=reason)
        self.verify()
        try:
            found = self._tried(composition)
        finally:
            self.restore(composition)
        return Attempt(**told, **found, seconds=round(time.monotonic() - began, 2))

    def _tried(self, composition: Composition) -> dict[str, object]:
        """Observe the system while the candidate acts and the operator works, and judge what was recorded."""
        timeline, phases = self.folder / f"timeline-{secrets.token_hex(4)}.jsonl", list[Phase]()

        def mark(phase: PhaseName) -> None:
            phases.append(Phase(phase=phase, time_ns=time.time_ns()))

        try:
            mark("deployed")
            with self.observed(timeline):
                time.sleep(self.scenario.verification.cadence_s)
                mark("triggered")
                refused = self._apply(composition)
                time.sleep(SETTLE_S)
                broken = None if refused else self.violation()
                mark("agent_started")
                repaired = self.repair()
                mark("agent_ended")
                time.sleep(SETTLE_S)
            mark("ended")
            recording = Recording(read_timeline(timeline), tuple(phases), probes_on=False)
        finally:
            timeline.unlink(missing_ok=True)
        judgements, _ = judge(gather(recording), self.scenario)
        return scored({j.predicate: j for j in judgements}, repaired, refused or broken)

    def _apply(self, composition: Composition) -> str | None:
        """Make the changes; return why one of them is none of this system's."""
        for change in composition.changes:
            try:
                self.apply(change)
            except UserError as error:
                return f"{change.verb} cannot be applied: {error}"
        return None


class LocalLaboratory(Laboratory):
    """A system of this machine under search."""

    def __init__(self, scenario: Scenario, target: str, running: LocalSystem, folder: Path) -> None:
        super().__init__(scenario, target, folder)
        self._running = running

    def refusal(self, composition: Composition) -> str | None:
        """Return why *composition* reaches outside of what the baseline restores."""
        return refusal(composition, self.system)

    def verify(self) -> None:
        """Wait for what the definition says."""
        verify(self._running, self.system)

    def restore(self, composition: Composition) -> None:
        """Bring back what the definition says; what was touched restarts."""
        touched = {str(value) for change in composition.changes for value in change.arguments.values()}
        restore(self._running, self.system, frozenset(touched))

    def apply(self, change: OpsCall) -> None:
        """Carry out an operator's verb."""
        self._running.operate(change.verb, change.arguments)

    def violation(self) -> str | None:
        """Return which precondition does not hold."""
        return violation(self._running, self.system, self.target)

    def repair(self) -> Repair:
        """Have the scripted operator of a local system work."""
        return repair(self._running, self.system)

    def observed(self, timeline: Path) -> AbstractContextManager[Any]:
        """Observe it, without a probe but the last one."""
        committed = self.scenario.verification
        return observing(
            self._running.state.name, timeline, cadence_s=committed.cadence_s, probe_every_s=None,
            protected=committed.protected_services,
        )  # fmt: skip


def scored(judged: dict[str, Judgement], repaired: Repair, objection: str | None) -> dict[str, object]:
    """Return the fields of an `Attempt` that say what it is worth; *objection* is the guard's."""
    outcome, depth = judged["v_outcome"], judged["v_depth"]
    if outcome.passed and depth.failed:
        result, raw, reason = "hidden", HIDDEN, depth.reason
    elif outcome.passed:
        result, raw, reason = "benign", DETECTED if repaired.actions else NOTHING, depth.reason
    else:
        result, raw, reason = "seen", DETECTED if repaired.actions else NOTHING, outcome.reason
    if objection is not None:
        result, reason = "invalid", objection
    return {
        "result": result,
        "fitness": NOTHING if objection is not None else raw,
        "raw_fitness": raw,
        "reason": reason,
        "actions": repaired.actions,
        "v_outcome": outcome.passed,
        "v_depth": depth.passed,
    }


@contextmanager
def laboratory(
    scenario: Scenario, target: str, folder: Path, *, seed: int = 0, cluster: Mapping[str, Any] | None = None
) -> Iterator[Laboratory]:
    """Run the scenario's system while the block runs; it ends with the block, or with this process.

    *cluster* says which cluster a scenario for Kubernetes happens on, as in a plan of trials.
    """
    environment = scenario.environment
    if environment.substrate == "kubernetes":
        from opsassay.discovery.kubernetes.laboratory import cluster_laboratory

        with cluster_laboratory(scenario, target, folder, seed=seed, cluster=cluster) as found:
            yield found
        return
    if target not in (services := system_of(scenario).services):
        raise NotFoundError("service", target, services)
    name = f"discover-{os.getpid()}-{secrets.token_hex(2)}"
    with LocalSubstrate().deployed(
        system_of(scenario), name, seed=environment.seed + seed, rate_rps=environment.rate_rps
    ) as running:
        yield LocalLaboratory(scenario, target, running, folder)
