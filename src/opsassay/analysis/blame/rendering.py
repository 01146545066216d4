"""A trace as text for a model: metadata, then steps; nothing is left out silently."""

from __future__ import annotations

import json
from collections.abc import Iterable

from opsassay.core.schema.trajectory import ToolCall, Trace, TraceStep


def metadata_text(trace: Trace) -> str:
    """Return the metadata of *trace* as text for a prompt, '' without any."""
    fields = {
        "Task": trace.task_instruction,
        "System": trace.system_name,
        "Agents": json.dumps(trace.agent_configuration, ensure_ascii=False) if trace.agent_configuration else "",
        "Architecture": trace.system_architecture,
        "Outcome": trace.outcome,
        "Reference answer": trace.reference_answer,
    }
    return "\n".join(f"{name}: {value}" for name, value in fields.items() if value)


def steps_text(steps: Iterable[TraceStep], *, inputs: bool = True) -> str:
    """Return *steps* as text for a prompt, with outputs and, if *inputs*, inputs."""
    return "\n\n".join(step_text(step, inputs=inputs) for step in steps)


def step_text(step: TraceStep, *, inputs: bool = True) -> str:
    """Return a step as text for a prompt: agent, input (with *inputs*), output, tool results."""
    lines = [f"=== Step {step.step_id} by {step.agent_name}"]
    if inputs and step.input_context:
        lines.append(f"Input:\n{step.input_context}")
    lines.append(f"Output:\n{step.output_content}")
    lines += [_format_tool_call(call) for call in step.tool_logs if call.output != step.output_content]
    if step.error:
        lines.append(f"Error: {step.error}")
    return "\n".join(lines)


def _format_tool_call(call: ToolCall) -> str:
    """Return tool, arguments, status and output of *call* as text."""
    arguments = json.dumps(call.arguments, ensure_ascii=False)
    return f"Tool {call.tool} {arguments} ({call.status}):\n{call.output}"
