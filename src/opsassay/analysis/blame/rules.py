"""Rule-based attribution without a model: the baselines of every comparison.

On Who&When they match or beat published figures of large models. A rule that finds no sign of an error blames step 1.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Callable

from opsassay.core.schema.trajectory import Attribution, Trace, TraceStep

Rule = Callable[[Trace], Attribution]
LOOSE_ERROR = re.compile(r"Traceback|Error:|exitcode: [1-9]")
"""Signs of an error in any text, also quoted ones; `_tool_failed` reads the status of tool calls instead."""


def first_step(trace: Trace) -> Attribution:
    """Blame the first step."""
    return _blame_step(trace, 1, "the first step")


def last_step(trace: Trace) -> Attribution:
    """Blame the last step."""
    return _blame_step(trace, len(trace.steps), "the last step")


def before_tool_error(trace: Trace) -> Attribution:
    """Blame the step before the first failed tool call, or the step that made the call itself."""
    return _blame_step_before(trace, _tool_failed, "a tool failed right after it")


def before_error_text(trace: Trace) -> Attribution:
    """Blame the step before the first output that mentions an error, or that step when its own call failed."""
    return _blame_step_before(trace, error_in_text, "the next step speaks of an error")


def busiest_agent(trace: Trace) -> Attribution:
    """Blame the first step of the agent with the most steps."""
    if not trace.steps:
        return Attribution(reason="there are no steps")
    name = Counter(step.agent_name for step in trace.steps).most_common(1)[0][0]
    first = next(step for step in trace.steps if step.agent_name == name)
    return _blame_step(trace, first.step_id, "its agent acts most often")


def chance(trace: Trace) -> Attribution:
    """Blame a pseudo-random step; the same trace always gives the same step."""
    digest = hashlib.sha256(trace.canonical_json().encode()).digest()
    return _blame_step(trace, int.from_bytes(digest[:8], "big") % max(1, len(trace.steps)) + 1, "picked by a hash")


RULES: dict[str, Rule] = {
    "before-tool-error": before_tool_error,
    "before-error-text": before_error_text,
    "last-step": last_step,
    "first-step": first_step,
    "busiest-agent": busiest_agent,
    "chance": chance,
}
"""The rules by their names on the command line."""


def error_in_text(step: TraceStep) -> bool:
    """Return whether the output of *step*, or of one of its tool calls, looks like an error."""
    return bool(LOOSE_ERROR.search(step.output_content)) or _tool_failed(step)


def _tool_failed(step: TraceStep) -> bool:
    """Whether a tool call of the step failed."""
    return any(call.status == "error" for call in step.tool_logs)


def _blame_step_before(trace: Trace, sign: Callable[[TraceStep], bool], reason: str) -> Attribution:
    """Blame the step before the first with *sign*, or that step if its own call failed; step 1 without any.

    *reason* is given in the first case.
    """
    found = next((step for step in trace.steps if sign(step)), None)
    if found is None:
        return _blame_step(trace, 1, "nothing in the trace looks like an error; the first step stands in")
    if _acts_itself(found):
        return _blame_step(trace, found.step_id, "its own tool call failed")
    return _blame_step(trace, max(1, found.step_id - 1), reason)


def _acts_itself(step: TraceStep) -> bool:
    """Return whether *step* has a failed tool call with arguments: its own agent chose that call."""
    return any(call.status == "error" and call.arguments for call in step.tool_logs)


def _blame_step(trace: Trace, step_id: int, reason: str) -> Attribution:
    """Blame step *step_id* (from 1) and its agent; no agent in an empty trace."""
    if not trace.steps:
        return Attribution(reason="there are no steps")
    return Attribution(agent_name=trace.steps[step_id - 1].agent_name, step_id=step_id, reason=reason)
