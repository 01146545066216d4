"""Importer of Who&When: annotated failures of generated and hand-crafted multi-agent systems, one JSON file each.

Source: "Which Agent Causes Task Failures and When?" (ICML 2025). The public form counts steps from 0, writes the
decisive one as a string, and names the speaker in ``name`` (generated) or ``role`` (hand-crafted). The traces contain
outputs only, so *input_context* is empty. A label that disagrees with the speaker of its step stays, with a note.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from opsassay.core.errors import DatapackError
from opsassay.core.schema.trajectory import Attribution, LabelledTrace, ToolCall, Trace, TraceStep
from opsassay.core.schema.validation_errors import reason
from opsassay.solvers.proxy.steps import AgentIds, strip_role_suffix

_EXIT_CODE = re.compile(r"^exitcode: (\d+)")
_TERMINALS = frozenset({"Computer_terminal", "ComputerTerminal"})


def is_whoandwhen(payload: Any) -> bool:
    """Return whether *payload* looks like a file of Who&When."""
    return isinstance(payload, dict) and {"history", "mistake_agent", "mistake_step"} <= payload.keys()


def labelled(payload: Any, path: Path) -> LabelledTrace:
    """Return the trace in *payload* (from *path*) with its label; raises DatapackError naming what is missing."""
    if not is_whoandwhen(payload):
        raise DatapackError(f"{path} is not a file of Who&When: it lacks history, mistake_agent or mistake_step.")
    try:
        label = Attribution(
            agent_name=str(payload["mistake_agent"]),
            step_id=int(payload["mistake_step"]) + 1,
            reason=str(payload.get("mistake_reason", "")),
        )
        trace = _read_trace(payload)
    except (KeyError, TypeError, ValueError) as error:
        raise DatapackError(
            f"{path}: a step or label of Who&When is not in the public form ({reason(error)})."
        ) from error
    return LabelledTrace(
        id=f"{path.parent.name}/{path.stem}",
        subset=path.parent.name,
        trace=trace,
        label=label,
        notes=_describe_disagreement(trace, label),
    )


def _read_trace(payload: dict[str, Any]) -> Trace:
    """Return the trace in *payload*: of Captain-Agent if a turn of its history has a name, else of Magentic-One."""
    ids = AgentIds()
    steps = tuple(_read_step(number, turn, ids) for number, turn in enumerate(payload["history"], 1))
    crafted = not any("name" in turn for turn in payload["history"])
    return Trace(
        task_id=str(payload.get("question_ID", "")),
        task_instruction=str(payload.get("question", "")),
        system_name="Magentic-One" if crafted else "Captain-Agent",
        agent_configuration=payload.get("system_prompt") or {},
        outcome="failed",
        reference_answer=None if payload.get("ground_truth") is None else str(payload["ground_truth"]),
        steps=steps,
    )


def _read_step(number: int, turn: dict[str, Any], ids: AgentIds) -> TraceStep:
    """Return *turn* as step *number*; *ids* numbers agents. A terminal's turn becomes a tool call with its output."""
    name, content = strip_role_suffix(str(turn.get("name") or turn["role"])), str(turn["content"])
    terminal = name in _TERMINALS
    return TraceStep(
        step_id=number,
        agent_id=ids.id_of(name),
        agent_name=name,
        input_context="",
        output_content=content,
        tool_logs=_read_execution(name, content) if terminal else (),
        kind="tool" if terminal else "plain",
    )


def _read_execution(name: str, content: str) -> tuple[ToolCall, ...]:
    """Return the terminal's output as a tool call with a status by its exit code; () when no code ran."""
    code = _EXIT_CODE.match(content)
    if code is None:
        return ()  # the terminal was addressed without code
    return (ToolCall(tool=name, arguments={}, output=content, status="ok" if int(code[1]) == 0 else "error"),)


def _describe_disagreement(trace: Trace, label: Attribution) -> tuple[str, ...]:
    """Return a sentence if the step of *label* is not in *trace* or is by another agent than labelled; else ()."""
    at = label.step_id or 0
    if not 1 <= at <= len(trace.steps):
        return (f"the labelled step {at} is not among the {len(trace.steps)} steps",)
    speaker = trace.steps[at - 1].agent_name
    if speaker == label.agent_name:
        return ()
    return (f"step {at} is by {speaker}, the label blames {label.agent_name}",)
