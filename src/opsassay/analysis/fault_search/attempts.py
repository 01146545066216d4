"""Tries candidates on one running system: a clean baseline, the candidate, the scripted operator, and the verifier's word.

The search score is that of "side-effects", App. H: 1.0 when the outcome passes and the committed depth fails, 0.1 when the
operator met a symptom, else 0; and 0 for what the guard refuses, whatever it would have scored.
"""

from __future__ import annotations

import secrets
import time
from pathlib import Path
from typing import Literal

from opsassay.core.schema.base import Noun
from opsassay.core.schema.trajectory import Phase, PhaseName
from opsassay.scoring.verifiers.certify import judge_run
from opsassay.scoring.verifiers.committed import evidence_of
from opsassay.scoring.verifiers.evidence import RunRecording
from opsassay.scoring.verifiers.judgement import Judgement
from opsassay.testbed.operations.search import Composition, Repair, SearchEnvironment
from opsassay.testbed.recording.observer import read_timeline

HIDDEN, DETECTED, NOTHING = 1.0, 0.1, 0.0
SETTLE_S = 2.0

Result = Literal["hidden", "benign", "seen", "refused", "invalid", "fooled", "caught", "right", "strict"]
"""hidden: outcome passes, depth fails; benign: both pass; seen: the outcome fails; refused: outside the reset boundary;
invalid: it cannot be applied, or a precondition does not hold. Of repairs, fooled: certified and harmful; caught: harmful
and rejected; right: certified, no harm; strict: rejected, no harm."""


class Attempt(Noun):
    """What became of one candidate; *raw_fitness* is the score before the guard's word.

    Of a repair it says whether it was *certified*, which predicates *failed*, and what *harm* it did.
    """

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
    certified: bool | None = None
    failed: tuple[str, ...] = ()
    harm: tuple[str, ...] = ()


class Candidates:
    """Tries candidates in *environment*, which is prepared; recordings lie in *folder* meanwhile."""

    def __init__(self, environment: SearchEnvironment, folder: Path) -> None:
        self.environment, self._folder = environment, folder

    def attempt(self, number: int, composition: Composition, families: tuple[str, ...] = ()) -> Attempt:
        """Apply the faults of *composition* to a healthy system, let the scripted operator repair it; score the run.

        Raises OperationError when the baseline does not come back.
        *number* and *families* (kinds of faults) are those of the candidate, for its record.
        """
        began = time.monotonic()
        payload = {"number": number, "composition": composition, "families": families}
        if reason := self.environment.refusal(composition):
            return Attempt(**payload, result="refused", fitness=NOTHING, reason=reason)
        self.environment.start()
        try:
            found = self._try_composition(composition)
        finally:
            self.environment.settle()
        return Attempt(**payload, **found, seconds=round(time.monotonic() - began, 2))

    def _try_composition(self, composition: Composition) -> dict[str, object]:
        """Record the system while *composition* is applied and repaired; return the fields of `Attempt` that result."""
        timeline, phases = self._folder / f"timeline-{secrets.token_hex(4)}.jsonl", list[Phase]()

        def mark_phase(phase: PhaseName) -> None:
            phases.append(Phase(phase=phase, time_ns=time.time_ns()))

        try:
            mark_phase("deployed")
            with self.environment.observed(timeline):
                time.sleep(self.environment.scenario.verification.cadence_s)
                mark_phase("triggered")
                refused = self._apply(composition)
                time.sleep(SETTLE_S)
                broken = None if refused else self.environment.violation()
                mark_phase("agent_started")
                repaired = self.environment.repair()
                mark_phase("agent_ended")
                time.sleep(SETTLE_S)
            mark_phase("ended")
            recording = RunRecording(read_timeline(timeline), tuple(phases), probes_on=False)
        finally:
            timeline.unlink(missing_ok=True)
        judgements, _ = judge_run(evidence_of(recording, self.environment.scenario), self.environment.scenario)
        return scored({j.predicate: j for j in judgements}, repaired, refused or broken)

    def _apply(self, composition: Composition) -> str | None:
        """Apply the changes of *composition*; return why one is impossible here (later ones are skipped), else None."""
        session = self.environment.session()
        for change in composition.changes:
            call = session.call(change.verb, change.arguments)
            if call.status == "error":
                return f"{change.verb} cannot be applied: {call.output}"
        return None


def scored(judgements: dict[str, Judgement], repaired: Repair, objection: str | None) -> dict[str, object]:
    """Return fields of `Attempt` (result, fitness, ...) by *judgements* and repair; an *objection* makes it invalid."""
    outcome, depth = judgements["v_outcome"], judgements["v_depth"]
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
