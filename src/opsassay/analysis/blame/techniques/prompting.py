"""All-at-once, binary search and step-by-step: three ways to show a trace to a model (paper, App. A.6.3)."""

from __future__ import annotations

from collections.abc import Sequence

from opsassay.analysis.blame.asking import BlameAsker, attribution_in, json_in
from opsassay.analysis.blame.definition import DEFINITION, QUESTION
from opsassay.analysis.blame.rendering import metadata_text, step_text, steps_text
from opsassay.analysis.blame.rerun import Rerun
from opsassay.analysis.blame.settings import BlameSettings
from opsassay.core.schema.trajectory import Attribution, Trace, TraceStep

_ROLE = f"You find out why a multi-agent system failed. {DEFINITION}"


def all_at_once(trace: Trace, asker: BlameAsker, settings: BlameSettings, rerun: Rerun | None = None) -> Attribution:
    """Blame the step that the model names when asked once about the whole trace; *settings*, *rerun* are not used."""
    del settings, rerun
    return attribution_in(json_in(asker.question(*whole_question(trace))), trace)


def whole_question(trace: Trace) -> tuple[str, str]:
    """Return (system prompt, user message) of the one question about the whole *trace*."""
    return _ROLE, f"{metadata_text(trace)}\n\n{steps_text(trace.steps)}\n\nThe run failed. {QUESTION}"


def binary_search(trace: Trace, asker: BlameAsker, settings: BlameSettings, rerun: Rerun | None = None) -> Attribution:
    """Blame a step by asking the model which half of the steps contains it, ceil(log2 n) times.

    No step is blamed if an answer names no half. *settings* and *rerun* are not used.
    """
    del settings, rerun
    steps, reason = trace.steps, ""
    while len(steps) > 1:
        middle = (len(steps) + 1) // 2
        first, second = steps[:middle], steps[middle:]
        question = (
            f"{metadata_text(trace)}\n\n{steps_text(steps)}\n\nThe run failed, and the decisive step is among steps "
            f"{_format_range(steps)}. Is it in the first half, steps {_format_range(first)}, or in the second half, "
            f"steps {_format_range(second)}? "
            'Answer with one JSON object: {"half": "first" or "second", "reason": "<one sentence>"}.'
        )
        answer = json_in(asker.question(_ROLE, question)) or {}
        half, reason = str(answer.get("half", "")).lower(), str(answer.get("reason", ""))
        if half not in {"first", "second"}:
            return Attribution(reason=f"no half was named for steps {_format_range(steps)}")
        steps = first if half == "first" else second
    return attribution_in({"step": steps[0].step_id, "reason": reason} if steps else None, trace)


def _format_range(steps: Sequence[TraceStep]) -> str:
    """Return "FIRST to LAST", the numbers of the first and the last of *steps*."""
    return f"{steps[0].step_id} to {steps[-1].step_id}"


def step_by_step(trace: Trace, asker: BlameAsker, settings: BlameSettings, rerun: Rerun | None = None) -> Attribution:
    """Blame the first step that the model calls decisive, shown one step more each time; none if it calls none."""
    del settings, rerun
    shown = metadata_text(trace)
    for step in trace.steps:
        shown += f"\n\n{step_text(step)}"
        question = (
            f"{shown}\n\nThis is the run up to step {step.step_id}; it failed in the end. Is step {step.step_id} the "
            'decisive step? Answer with one JSON object: {"decisive": true or false, "reason": "<one sentence>"}.'
        )
        answer = json_in(asker.question(_ROLE, question)) or {}
        if answer.get("decisive") is True:
            return attribution_in({"step": step.step_id, "reason": answer.get("reason", "")}, trace)
    return Attribution(reason="no step was called decisive")
