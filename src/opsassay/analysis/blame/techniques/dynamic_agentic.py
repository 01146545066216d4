"""The dynamic agentic technique: suspected steps (candidates), each tested by re-running the system with its input edited.

Source: "trace-elephant", App. A.6.3. A candidate has an expected oracle, the behaviour without the mistake, and
guidance that is added to the step's input. The system is replayed up to the step, that step and the next w run live,
and the model judges whether they meet the oracle.
"""

from __future__ import annotations

from typing import Any

from pydantic import Field, ValidationError

from opsassay.analysis.blame.asking import BlameAsker, json_in
from opsassay.analysis.blame.definition import DEFINITION
from opsassay.analysis.blame.rendering import metadata_text, steps_text
from opsassay.analysis.blame.rerun import Rerun
from opsassay.analysis.blame.settings import BlameSettings
from opsassay.analysis.blame.techniques.static_agentic import walk
from opsassay.core.errors import OperationError, UserError
from opsassay.core.schema.base import Noun
from opsassay.core.schema.tool_session import ToolSpec
from opsassay.core.schema.trajectory import Attribution, Trace, TraceStep
from opsassay.solvers.proxy.policies import StepIntervention

_JUDGE = (
    "You judge an experiment. A failed run of a multi-agent system was run again up to one step, that step's input was "
    f"edited to avoid a suspected mistake, and the next steps were observed. {DEFINITION}"
)


class StepCandidate(Noun):
    """A suspected decisive step and its test; *duty*: earlier steps that its component had to check."""

    agent: str = ""
    step: int = Field(ge=1)
    reason: str = ""
    oracle: str = ""
    guidance: str = ""
    duty: tuple[int, ...] = ()


class Experiment(Noun):
    """A tested candidate: whether the re-run *confirmed* it, and the model's *reason*."""

    candidate: StepCandidate
    confirmed: bool
    reason: str


_CANDIDATE = {
    "type": "object",
    "properties": {
        "agent": {"type": "string"},
        "step": {"type": "integer"},
        "reason": {"type": "string", "description": "the suspected mistake"},
        "oracle": {"type": "string", "description": "what the step and the next ones should show without the mistake"},
        "guidance": {"type": "string", "description": "a message for the step's input that keeps it from the mistake"},
        "duty": {
            "type": "array",
            "items": {"type": "integer"},
            "description": "earlier candidate steps that this component had the duty to check",
        },
    },
    "required": ["agent", "step", "reason", "oracle", "guidance"],
}


def submit_candidates(k: int) -> ToolSpec:
    """Return the specification of the tool by which a model submits up to *k* suspected steps."""
    listed = {"type": "array", "items": _CANDIDATE, "maxItems": k}
    return ToolSpec(
        name="submit_candidates",
        description=f"Give up to {k} candidates, most suspect first; each will be tested by a re-run. This ends the work.",
        parameters={"type": "object", "properties": {"candidates": listed}, "required": ["candidates"]},
    )


def dynamic_agentic(
    trace: Trace, asker: BlameAsker, settings: BlameSettings, rerun: Rerun | None = None
) -> Attribution:
    """Let the model suspect steps, rerun each with guidance, and blame a confirmed one, else its first suspect.

    Raises UserError without *rerun*, and OperationError where the upstream of a rerun does not answer.
    """
    if rerun is None:
        raise UserError("The dynamic technique runs the system again; say how with --rerun, or use --technique static.")
    proposed = candidates_in(
        walk(trace, asker, settings, submit_candidates(settings.candidates)), trace, settings.candidates
    )
    if not proposed:
        return Attribution(reason="no candidate was proposed")
    return decide(trace, [_rerun_with_guidance(trace, asker, settings, rerun, candidate) for candidate in proposed])


def candidates_in(submitted: dict[str, Any] | None, trace: Trace, k: int) -> list[StepCandidate]:
    """Return up to *k* valid suspected steps (candidates) in the tool arguments *submitted*, all of them in *trace*."""
    listed = (submitted or {}).get("candidates")
    found = []
    for value in listed if isinstance(listed, list) else ():
        try:
            candidate = StepCandidate.model_validate(value)
        except ValidationError:
            continue  # one that cannot be read is none; the others still count
        if trace.step(candidate.step) is not None:
            found.append(candidate)
    return found[:k]


def decide(trace: Trace, tested: list[Experiment]) -> Attribution:
    """Return the step to blame among the *tested* candidates (suspected steps); the first if no rerun confirmed any.

    It is the earliest confirmed one, unless a later confirmed step had the duty to check that step: then the failure
    was not inevitable before the later one.
    """
    confirmed = sorted((t for t in tested if t.confirmed), key=lambda t: t.candidate.step)
    if not confirmed:
        first = tested[0].candidate
        why = f"no candidate was confirmed ({tested[0].reason}); the most suspect one stands: {first.reason}"
        return _blame_candidate(trace, first, why)
    decisive = confirmed[0]
    for later in confirmed[1:]:
        if decisive.candidate.step in later.candidate.duty:
            decisive = later
    return _blame_candidate(
        trace, decisive.candidate, f"{decisive.candidate.reason} (confirmed by a re-run: {decisive.reason})"
    )


def _rerun_with_guidance(
    trace: Trace, asker: BlameAsker, settings: BlameSettings, rerun: Rerun, candidate: StepCandidate
) -> Experiment:
    """Rerun with guidance added to *candidate*'s step; return whether the model finds the mistake gone."""
    guidance = candidate.guidance or f"Take care here. {candidate.reason}"
    run = rerun.observe(StepIntervention(step=candidate.step, add=guidance, observe=settings.window))
    asker.notes += [f"re-run for step {candidate.step}: {difference}" for difference in run.differences]
    if run.outage is not None:
        raise OperationError(f"the upstream of the re-run for step {candidate.step} did not answer: {run.outage}")
    observed = [step for step in run.steps if candidate.step <= step.step_id <= candidate.step + settings.window]
    if not observed or observed[0].error:
        why = next((step.error for step in reversed(run.steps) if step.error), "it ended before")
        return Experiment(candidate=candidate, confirmed=False, reason=f"the re-run did not get past the step: {why}")
    answer = json_in(asker.question(_JUDGE, _format_experiment(trace, settings, candidate, observed))) or {}
    return Experiment(
        candidate=candidate, confirmed=answer.get("confirmed") is True, reason=str(answer.get("reason", ""))
    )


def _format_experiment(
    trace: Trace, settings: BlameSettings, candidate: StepCandidate, observed: list[TraceStep]
) -> str:
    """Return the question to the judging model: steps of *trace*, of the rerun (*observed*), and expected ones."""
    before = [s for s in trace.steps if candidate.step <= s.step_id <= candidate.step + settings.window]
    return (
        f"{metadata_text(trace)}\n\nSuspected: step {candidate.step} by {candidate.agent}. {candidate.reason}\n"
        f"Expected without the mistake: {candidate.oracle}\n\n"
        f"--- In the failed run:\n{steps_text(before, inputs=False)}\n\n"
        f"--- In the re-run with the edited input:\n{steps_text(observed, inputs=False)}\n\n"
        "Do the observed steps meet the expectation, and is the mistake gone from them? Answer with one JSON object: "
        '{"confirmed": true or false, "reason": "<one sentence>"}.'
    )


def _blame_candidate(trace: Trace, candidate: StepCandidate, reason: str) -> Attribution:
    """Blame the suspected step *candidate* and the agent it names, else the agent of that step in *trace*."""
    acting = trace.step(candidate.step)
    return Attribution(
        agent_name=candidate.agent or (acting.agent_name if acting else None), step_id=candidate.step, reason=reason
    )
