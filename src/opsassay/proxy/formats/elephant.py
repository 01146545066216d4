"""Importer of TraceElephant: one JSON object per trace with metadata and step records (paper, section 3.3, App. A.4).

The paper says that inputs and outputs are nested objects and prints the names of the fields, but not those of the
nests nor of the labels; both the flat and the nested form are read, and labels under the names that this field uses.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Literal

from opsassay.errors import DatapackError
from opsassay.model.trajectory import Attribution, LabelledTrace, ToolCall, Trace, TraceStep
from opsassay.proxy.reading import first_of
from opsassay.proxy.steps import AgentIds, strip_role_suffix, tool_in_text

_STEPS = ("steps", "trace", "execution_trace", "step_records")
_LABELS = ("label", "annotation", "failure_attribution", "ground_truth_label")
_AGENT = ("failure_responsible_agent", "responsible_agent", "failure_agent", "mistake_agent")
_STEP = ("decisive_failure_step", "failure_step", "decisive_step", "mistake_step")


def is_elephant(payload: Any) -> bool:
    """Return whether *payload* looks like a trace in the form of TraceElephant."""
    steps = first_of(payload, _STEPS) if isinstance(payload, dict) else None
    return isinstance(steps, list) and bool(steps) and all(isinstance(s, dict) and "agent_name" in s for s in steps)


def elephant_trace(payload: dict[str, Any], path: Path) -> Trace:
    """Return the trace in *payload*; raises DatapackError."""
    about = {**payload, **(first_of(payload, ("metadata", "trace_metadata")) or {})}
    ids = AgentIds()
    try:
        steps = tuple(_step(number, record, ids) for number, record in enumerate(first_of(payload, _STEPS), 1))
    except (KeyError, TypeError, ValueError) as error:
        raise DatapackError(f"{path}: a step is not in the form of TraceElephant ({error!r}).") from error
    reference = first_of(about, ("reference_answer", "ground_truth", "answer"))
    return Trace(
        task_id=str(about.get("task_id", path.stem)),
        task_instruction=str(first_of(about, ("task_instruction", "task", "question")) or ""),
        system_name=str(about.get("system_name", path.parent.name)),
        agent_configuration=_object(about.get("agent_configuration")),
        system_architecture=_text(about["system_architecture"]) if about.get("system_architecture") else None,
        outcome=str(about["outcome"]) if about.get("outcome") is not None else None,
        reference_answer=None if reference is None else str(reference),
        steps=steps,
    )


def labelled_elephant(payload: dict[str, Any], path: Path) -> LabelledTrace:
    """Return the trace with its label; raises DatapackError when it bears none."""
    trace = elephant_trace(payload, path)
    bearer = {**payload, **(first_of(payload, _LABELS) or {})}
    agent, step = first_of(bearer, _AGENT), first_of(bearer, _STEP)
    if agent is None or step is None:
        raise DatapackError(f"{path} has no label: none of {', '.join(_AGENT)} with one of {', '.join(_STEP)}.")
    label = Attribution(
        agent_name=str(agent), step_id=int(step), reason=str(first_of(bearer, ("mistake_reason", "reason")) or "")
    )
    return LabelledTrace(id=f"{path.parent.name}/{path.stem}", subset=trace.system_name, trace=trace, label=label)


def _step(number: int, record: dict[str, Any], ids: AgentIds) -> TraceStep:
    fields = {**record, **_object(record.get("input")), **_object(record.get("output"))}
    name, output = strip_role_suffix(str(fields["agent_name"])), _text(fields.get("output_content", ""))
    logs = tuple(_tool_call(log) for log in fields.get("tool_logs") or ())
    return TraceStep(
        step_id=int(fields.get("step_id", number)),
        agent_id=str(fields.get("agent_id", ids.of(name))),
        agent_name=name,
        input_context=_text(fields.get("input_context", "")),
        output_content=output,
        tool_logs=logs,
        kind="tool" if logs or tool_in_text(output) else "plain",
    )


def _tool_call(log: dict[str, Any]) -> ToolCall:
    status = str(first_of(log, ("status", "execution_status")) or "ok").lower()
    reported: Literal["ok", "error"] = (
        "ok" if status in {"ok", "success", "succeeded", "completed", "true"} else "error"
    )
    arguments = first_of(log, ("arguments", "input", "input_arguments", "args"))
    return ToolCall(
        tool=str(first_of(log, ("tool", "tool_name", "name")) or ""),
        arguments=arguments if isinstance(arguments, dict) else {} if arguments is None else {"raw": arguments},
        output=_text(first_of(log, ("output", "outputs", "result"))),
        status=reported,
    )


def _object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _text(value: Any) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=1)
