"""The static agentic technique: a model reads the trace by tools (all outputs, one whole step, submit; App. A.6.3)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from opsassay.analysis.blame.asking import BlameAsker, attribution_in, whole_number
from opsassay.analysis.blame.definition import DEFINITION
from opsassay.analysis.blame.rendering import metadata_text, step_text, steps_text
from opsassay.analysis.blame.rerun import Rerun
from opsassay.analysis.blame.settings import BlameSettings
from opsassay.core.schema.tool_session import ToolSpec
from opsassay.core.schema.trajectory import Attribution, Trace
from opsassay.solvers.agents.models.base import Message, ToolRequest

_ROLE = (
    "You find out why a multi-agent system failed. Look at its outputs first, then inspect the steps that matter with "
    f"their inputs, then submit. {DEFINITION}"
)
_ONE_STEP = {"type": "object", "properties": {"step": {"type": "integer"}}, "required": ["step"]}
LOOK = (
    ToolSpec(name="outputs", description="The outputs of all steps."),
    ToolSpec(name="inspect", description="One step with its input, output and tool calls.", parameters=_ONE_STEP),
)
_ANSWER = {
    "agent": {"type": "string", "description": "the responsible agent"},
    "step": {"type": "integer", "description": "the decisive step"},
    "reason": {"type": "string", "description": "one sentence"},
}
SUBMIT = ToolSpec(
    name="submit",
    description="Give the answer; this ends the work.",
    parameters={"type": "object", "properties": _ANSWER, "required": ["agent", "step", "reason"]},
)


def static_agentic(trace: Trace, asker: BlameAsker, settings: BlameSettings, rerun: Rerun | None = None) -> Attribution:
    """Blame the step that the model submits after reading the trace by tools, else none; *rerun* is not used."""
    del rerun
    submitted = walk(trace, asker, settings, SUBMIT)
    return attribution_in(submitted, trace) if submitted else Attribution(reason="the turns ran out before an answer")


def walk(trace: Trace, asker: BlameAsker, settings: BlameSettings, submit: ToolSpec) -> dict[str, Any] | None:
    """Let the model read *trace* by tools; return the arguments of its call of *submit*, None after the last turn."""
    tools: dict[str, Callable[[dict[str, Any]], str]] = {
        "outputs": lambda _: steps_text(trace.steps, inputs=False),
        "inspect": lambda arguments: _show_step(trace, arguments),
    }
    messages = [
        Message(role="system", content=_ROLE),
        Message(
            role="user", content=f"{metadata_text(trace)}\n\nThe run of {len(trace.steps)} steps failed. Find out why."
        ),
    ]
    for _ in range(settings.max_turns):
        reply = asker.ask(messages, (*LOOK, submit))
        messages.append(Message(role="assistant", content=reply.text, tool_requests=reply.tool_requests))
        if not reply.tool_requests:
            messages.append(Message(role="user", content=f"Use one of the tools; {submit.name} ends the work."))
        for request in reply.tool_requests:
            if request.tool == submit.name:
                return request.arguments
            messages.append(Message(role="tool", content=_run_tool(tools, request), tool_call_id=request.id))
    return None


def _run_tool(tools: dict[str, Callable[[dict[str, Any]], str]], request: ToolRequest) -> str:
    """Return the output of the tool in *request*, one of *tools*, or that there is no such tool."""
    tool = tools.get(request.tool)
    return tool(request.arguments) if tool else f"There is no tool {request.tool!r}; there are {', '.join(tools)}."


def _show_step(trace: Trace, arguments: dict[str, Any]) -> str:
    """Return the text of the step that *arguments* name; for an unknown one the range of step numbers."""
    step = trace.step(whole_number(arguments.get("step")) or 0)
    if step is None:
        ends = f"{trace.steps[0].step_id} to {trace.steps[-1].step_id}" if trace.steps else "none"
        return f"There is no step {arguments.get('step')!r}; steps are {ends}."
    return step_text(step)
