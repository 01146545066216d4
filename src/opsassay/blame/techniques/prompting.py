"""All-at-once, binary search and step-by-step: three forms of showing a trace to a model (paper, App. A.6.3)."""

from __future__ import annotations

from opsassay.blame.asking import BlameAsker, attribution_in, json_in
from opsassay.blame.definition import DEFINITION, QUESTION
from opsassay.blame.rendering import metadata_text, step_text, steps_text
from opsassay.blame.rerun import Rerun
from opsassay.blame.settings import BlameSettings
from opsassay.model.trajectory import Attribution, Trace

_ROLE = f"You find out why a multi-agent system failed. {DEFINITION}"


def all_at_once(trace: Trace, asker: BlameAsker, settings: BlameSettings, rerun: Rerun | None = None) -> Attribution:
    """Show everything and ask once."""
    del settings, rerun
    shown = f"{metadata_text(trace)}\n\n{steps_text(trace.steps)}"
    return attribution_in(json_in(asker.question(_ROLE, f"{shown}\n\nThe run failed. {QUESTION}")), trace)


def binary_search(trace: Trace, asker: BlameAsker, settings: BlameSettings, rerun: Rerun | None = None) -> Attribution:
    """Show a range, ask in which half the decisive step lies, and halve: ceil(log2 n) calls; the agent is the step's."""
    del settings, rerun
    first, last = 1, len(trace.steps)
    reason = ""
    while first < last:
        middle = (first + last) // 2
        question = (
            f"{metadata_text(trace)}\n\n{steps_text(trace.steps[first - 1 : last])}\n\nThe run failed, and the decisive "
            f"step is among steps {first} to {last}. Is it in the first half, steps {first} to {middle}, or in the second "
            f"half, steps {middle + 1} to {last}? Answer with one JSON object: "
            '{"half": "first" or "second", "reason": "<one sentence>"}.'
        )
        answer = json_in(asker.question(_ROLE, question)) or {}
        half, reason = str(answer.get("half", "")).lower(), str(answer.get("reason", ""))
        if half not in {"first", "second"}:
            return Attribution(reason=f"no half was named for steps {first} to {last}")
        first, last = (first, middle) if half == "first" else (middle + 1, last)
    return attribution_in({"step": first, "reason": reason}, trace)


def step_by_step(trace: Trace, asker: BlameAsker, settings: BlameSettings, rerun: Rerun | None = None) -> Attribution:
    """Reveal one step more at a time and ask whether it is the decisive one; stop at the first yes."""
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
