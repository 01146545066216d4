"""Tries candidates on one running system: a clean baseline, the candidate, the scripted operator, and the verifier's word.

The search score is that of "side-effects", App. H: 1.0 when the outcome passes and the committed depth fails, 0.1 when the
operator met a symptom, else 0; and 0 for what the guard refuses, whatever it would have scored.
"""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

from assay.discovery.baseline import restore, verify
from assay.discovery.composition import Composition
from assay.discovery.guard import refusal, violation
from assay.discovery.operator import Repair, repair
from assay.errors import NotFoundError, UserError
from assay.grading.verifiers.certify import judge
from assay.grading.verifiers.evidence import Recording, gather
from assay.grading.verifiers.judgement import Judgement
from assay.model.base import Noun
from assay.model.scenario import Scenario
from assay.model.trajectory import Phase, PhaseName
from assay.testbed.local.substrate import LocalSubstrate, LocalSystem
from assay.testbed.observer import observing, read_timeline
from assay.testbed.scenarios import system_of

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


class Laboratory:
    """One system under search: *target* is the workload that candidates fault and the operator repairs."""

    def __init__(self, scenario: Scenario, target: str, running: LocalSystem, folder: Path) -> None:
        self.scenario, self.target, self.folder = scenario, target, folder
        self.system = system_of(scenario)
        self._running = running

    def attempt(self, number: int, composition: Composition, families: tuple[str, ...] = ()) -> Attempt:
        """Try *composition* on the clean baseline, which is restored and verified afterwards.

        Raises OperationError when the baseline does not come back.
        """
        began = time.monotonic()
        told = {"number": number, "composition": composition, "families": families}
        if reason := refusal(composition, self.system):
            return Attempt(**told, result="refused", fitness=NOTHING, reason=reason)
        verify(self._running, self.system)
        try:
            found = self._tried(composition)
        finally:
            touched = {str(value) for change in composition.changes for value in change.arguments.values()}
            restore(self._running, self.system, frozenset(touched))
        return Attempt(**told, **found, seconds=round(time.monotonic() - began, 2))

    def _tried(self, composition: Composition) -> dict[str, object]:
        """Observe the system while the candidate acts and the operator works, and judge what was recorded."""
        timeline, phases = self.folder / f"timeline-{secrets.token_hex(4)}.jsonl", list[Phase]()

        def mark(phase: PhaseName) -> None:
            phases.append(Phase(phase=phase, time_ns=time.time_ns()))

        committed = self.scenario.verification
        try:
            mark("deployed")
            with observing(
                self._running.state.name, timeline, cadence_s=committed.cadence_s, probe_every_s=None,
                protected=committed.protected_services,
            ):  # fmt: skip
                time.sleep(committed.cadence_s)
                mark("triggered")
                refused = self._apply(composition)
                time.sleep(SETTLE_S)
                broken = None if refused else violation(self._running, self.system, self.target)
                mark("agent_started")
                repaired = repair(self._running, self.system)
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
                self._running.operate(change.verb, change.arguments)
            except UserError as error:
                return f"{change.verb} cannot be applied: {error}"
        return None


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
def laboratory(scenario: Scenario, target: str, folder: Path, *, seed: int = 0) -> Iterator[Laboratory]:
    """Run the scenario's system while the block runs; it ends with the block, or with this process."""
    if target not in (services := system_of(scenario).services):
        raise NotFoundError("service", target, services)
    environment, name = scenario.environment, f"discover-{os.getpid()}-{secrets.token_hex(2)}"
    with LocalSubstrate().deployed(
        system_of(scenario), name, seed=environment.seed + seed, rate_rps=environment.rate_rps
    ) as running:
        yield Laboratory(scenario, target, running, folder)
