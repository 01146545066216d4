"""Writes a trace as ATIF, the agent trajectory interchange format of Harbor (its RFC 0001).

ATIF stores each message once, a trace the whole input of every step. So the new messages of an input become steps of
users and systems; an input that does not extend the conversation is stored whole.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from opsassay.core.schema.trajectory import ToolCall, Trace, TraceStep
from opsassay.solvers.proxy.steps import render_messages, split_messages

VERSION = "ATIF-v1.7"
"""The version that is written; readers of v1.7 and of v1.8 accept it."""

OURS = "opsassay"
"""The key in ATIF's ``extra`` objects for fields that ATIF does not have."""

Conversation = list[tuple[str, str]]
_SOURCE = {"system": "system", "developer": "system", "user": "user"}
_USAGE = {"input_tokens": "prompt_tokens", "output_tokens": "completion_tokens", "cached_tokens": "cached_tokens"}


def atif_of(trace: Trace) -> dict[str, Any]:
    """Return *trace* as one ATIF trajectory; `atif.atif_traces` reads it back without loss."""
    steps = [{"step_id": number, **step} for number, step in enumerate(_write_steps(trace), 1)]
    models = {step.model for step in trace.steps}
    about = trace.model_dump(mode="json", exclude={"steps", "schema_version"}, exclude_defaults=True)
    return _without_none(
        {
            "schema_version": VERSION,
            "session_id": trace.task_id or None,
            "trajectory_id": hashlib.sha256(trace.canonical_json().encode()).hexdigest()[:32],
            "agent": {
                "name": trace.system_name,
                "version": "unknown",
                "model_name": models.pop() if len(models) == 1 else None,
            },
            "steps": steps,
            "final_metrics": {
                "total_prompt_tokens": sum(step.usage.get("input_tokens", 0) for step in trace.steps),
                "total_completion_tokens": sum(step.usage.get("output_tokens", 0) for step in trace.steps),
                "total_cached_tokens": sum(step.usage.get("cached_tokens", 0) for step in trace.steps),
                "total_steps": len(steps),
            },
            "extra": {OURS: about},
        }
    )


def after(conversation: Conversation, step: TraceStep) -> Conversation:
    """Return *conversation* as (role, text) with the texts, tool calls and tool results of *step* added."""
    called = [f"[calls {call.tool} {call.arguments}]" for call in step.tool_logs]
    said = ("assistant", "\n".join(filter(None, [step.output_content, *called])))
    return [*conversation, said, *(("tool", call.output) for call in step.tool_logs)]


def _write_steps(trace: Trace) -> Iterator[dict[str, Any]]:
    """Yield ATIF steps: each new message of a user or system, then the agent's step."""
    conversation: Conversation = []
    for step in trace.steps:
        given = split_messages(step.input_context)
        follows = given[: len(conversation)] == conversation
        new = given[len(conversation) :] if follows else given
        spoken = render_messages(given) == step.input_context and all(role in _SOURCE for role, _ in new)
        if spoken:
            for number, (role, text) in enumerate(new):
                ours: dict[str, Any] = {"begins": True} if number == 0 and not follows else {}
                if _SOURCE[role] != role:
                    ours["role"] = role
                extra = {OURS: ours} if ours else None
                yield _without_none({"source": _SOURCE[role], "message": text, "extra": extra})
        if spoken and (follows or new):
            yield _agent_step(step, context=None)
        else:
            yield _agent_step(step, context=step.input_context)
        conversation = after(given, step)


def _agent_step(step: TraceStep, context: str | None) -> dict[str, Any]:
    """Return *step* as an ATIF step of an agent; *context* is its input unless earlier steps imply it."""
    ours = step.model_dump(
        mode="json",
        include={
            "step_id",
            "agent_id",
            "agent_name",
            "started_at",
            "ended_at",
            "request_id",
            "kind",
            "finish_reason",
            "error",
        },
        exclude_none=True,
    )
    if context is not None:
        ours["input_context"] = context
    further = {key: value for key, value in step.usage.items() if key not in _USAGE}
    metrics: dict[str, Any] = {_USAGE[key]: value for key, value in step.usage.items() if key in _USAGE}
    if further:
        metrics["extra"] = further
    return _without_none(
        {
            "source": "agent",
            "timestamp": None if step.started_at is None else _format_instant(step.started_at),
            "message": step.output_content,
            "model_name": step.model,
            "tool_calls": [_write_call(call, _call_id(step, n)) for n, call in enumerate(step.tool_logs, 1)] or None,
            "observation": _write_observation(step, step.tool_logs),
            "metrics": metrics or None,
            "extra": {OURS: ours},
        }
    )


def _write_call(call: ToolCall, id_: str) -> dict[str, Any]:
    """Return the tool call in ATIF's form; a status other than "ok" goes under `extra`."""
    status = None if call.status == "ok" else {OURS: {"status": call.status}}
    return _without_none(
        {"tool_call_id": id_, "function_name": call.tool, "arguments": call.arguments, "extra": status}
    )


def _write_observation(step: TraceStep, calls: Sequence[ToolCall]) -> dict[str, Any] | None:
    """Return the results of the answered *calls* in ATIF's form, None without any."""
    results = [
        {"source_call_id": _call_id(step, number), "content": call.output}
        for number, call in enumerate(calls, 1)
        if call.status != "unanswered" or call.output
    ]
    return {"results": results} if results else None


def _call_id(step: TraceStep, number: int) -> str:
    """Return the id of tool call *number* of *step*."""
    return f"call-{step.step_id}-{number}"


def _format_instant(time_ns: int) -> str:
    """Return *time_ns* (UTC) as ISO 8601, to the microsecond."""
    return (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=time_ns // 1000)).isoformat()


def _without_none(value: dict[str, Any]) -> dict[str, Any]:
    """Return *value* without keys whose value is None, in its object ``agent`` too."""
    return {key: _without_none(inner) if key == "agent" else inner for key, inner in value.items() if inner is not None}
