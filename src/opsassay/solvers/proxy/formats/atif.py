"""Importer of ATIF, the agent trajectory interchange format of Harbor (its RFC 0001), version 1.0 to 1.8.

Each step of an agent becomes a step; its input is all earlier messages of users, systems and the agent.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from opsassay.core.errors import DatapackError
from opsassay.core.schema.trajectory import ToolCall, Trace, TraceStep
from opsassay.core.schema.validation_errors import problem
from opsassay.core.text import plural
from opsassay.solvers.proxy.apis.base import fields
from opsassay.solvers.proxy.apis.counts import usage_of
from opsassay.solvers.proxy.formats.atif_writing import OURS, Conversation, after
from opsassay.solvers.proxy.steps import AgentIds, plain_text, render_messages, split_messages

NEWEST = 8
"""The newest minor version of ATIF 1 that is read."""

MOST_INPUT = 2**30
"""Most characters of the inputs of all steps together: each input repeats the conversation, which ATIF stores once."""

_VERSION = re.compile(r"ATIF-v1\.(\d+)\Z")


class _Part(BaseModel):
    """The fields that every object of ATIF has; unknown fields are ignored."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    extra: dict[str, Any] | None = None

    @property
    def own_fields(self) -> dict[str, Any]:
        """The fields under ``extra`` that OpsAssay wrote; {} for files of other programs."""
        found = (self.extra or {}).get(OURS)
        return found if isinstance(found, dict) else {}


class AtifCall(_Part):
    """A tool call of an agent."""

    tool_call_id: str
    function_name: str
    arguments: dict[str, Any]


class AtifResult(_Part):
    """A result of a tool call, or another observation of the agent."""

    source_call_id: str | None = None
    content: str | list[dict[str, Any]] | None = None
    subagent_trajectory_ref: list[dict[str, Any]] | None = None

    @property
    def text(self) -> str:
        """The content of the result as text; a subagent's trajectory is named by its id or path."""
        refs = (
            str(ref.get("trajectory_id") or ref.get("trajectory_path")) for ref in self.subagent_trajectory_ref or ()
        )
        named = [f"[trajectory {ref}]" for ref in refs]
        return "\n".join(filter(None, [plain_text(self.content), *named]))


class AtifObservation(_Part):
    """The results of one step."""

    results: tuple[AtifResult, ...]


class AtifUsage(_Part):
    """The tokens of one step."""

    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cached_tokens: int | None = None


class AtifStep(_Part):
    """A message of a user or system, or a turn of an agent."""

    step_id: int = Field(ge=1)
    source: Literal["system", "user", "agent"]
    message: str | list[dict[str, Any]]
    timestamp: datetime | None = None
    model_name: str | None = None
    reasoning_content: str | None = None
    tool_calls: tuple[AtifCall, ...] | None = None
    observation: AtifObservation | None = None
    metrics: AtifUsage | None = None
    is_copied_context: bool | None = None


class AtifAgent(_Part):
    """The agent that acted."""

    name: str
    model_name: str | None = None


class AtifTrajectory(_Part):
    """One document, with those of its subagents."""

    schema_version: str = f"ATIF-v1.{NEWEST}"
    session_id: str | None = None
    trajectory_id: str | None = None
    agent: AtifAgent
    steps: tuple[AtifStep, ...]
    subagent_trajectories: tuple[AtifTrajectory, ...] | None = None


def is_atif(payload: Any) -> bool:
    """Return whether *payload* names ATIF as its format, in any version, or has steps as ATIF has."""
    if not isinstance(payload, dict) or payload.get("schema_version") is not None:
        return isinstance(payload, dict) and str(payload["schema_version"]).startswith("ATIF")
    steps = payload.get("steps")
    is_like = isinstance(payload.get("agent"), dict) and isinstance(steps, list)
    return is_like and all("source" in fields(step) for step in list(steps or ()))


def atif_traces(payload: dict[str, Any], path: Path) -> list[Trace]:
    """Return the trace of a trajectory, then those of the subagents that it embeds; raises DatapackError."""
    version = str(payload.get("schema_version") or f"ATIF-v1.{NEWEST}")  # as Harbor's own reader takes it
    known = _VERSION.match(version)
    if known is None or int(known[1]) > NEWEST:
        raise DatapackError(
            f"{path} is {version[:40]}; what is read is ATIF-v1.0 to ATIF-v1.{NEWEST}, convert it first."
        )
    try:
        found = AtifTrajectory.model_validate({**payload, "schema_version": version})
        if _input_characters(found) > MOST_INPUT:
            raise DatapackError(f"{path} expands to more than {MOST_INPUT >> 20} MiB of inputs of its steps; split it.")
        if found.steps and not any(step.source == "agent" for step in found.steps):
            raise DatapackError(
                f"{path} has {plural(len(found.steps), 'step')} and none of an agent; there is no trace in it."
            )
        return list(_read_traces(found))
    except ValidationError as error:
        raise DatapackError(f"{path} is not in the form of {version}: {problem(error)}.") from error


def _input_characters(trajectory: AtifTrajectory) -> int:
    """Return an upper bound of the characters in the inputs of all steps, without making these texts."""
    before = total = 0
    for step in trajectory.steps:
        total += before if step.source == "agent" else 0
        results = step.observation.results if step.observation else ()
        calls = sum(len(call.function_name) + len(str(call.arguments)) for call in step.tool_calls or ())
        before += len(plain_text(step.message)) + calls + sum(len(result.text) for result in results) + 32
    return total + sum(_input_characters(one) for one in trajectory.subagent_trajectories or ())


def _read_traces(trajectory: AtifTrajectory) -> Iterator[Trace]:
    """Yield the trace of the trajectory, then those of its subagents."""
    users = (plain_text(step.message) for step in trajectory.steps if step.source == "user")
    about: dict[str, Any] = {
        "task_id": trajectory.session_id or trajectory.trajectory_id or "",
        "task_instruction": next(users, ""),
        "system_name": trajectory.agent.name,
    }
    yield Trace.model_validate({**about, **trajectory.own_fields, "steps": tuple(_read_steps(trajectory))})
    for subagent in trajectory.subagent_trajectories or ():
        yield from _read_traces(subagent)


def _read_steps(trajectory: AtifTrajectory) -> Iterator[TraceStep]:
    """Yield the agent's steps, numbered from 1; other messages become part of the next step's input."""
    ids, conversation, number = AgentIds(), Conversation(), 0
    for step in trajectory.steps:
        if step.source != "agent":
            conversation = [] if step.own_fields.get("begins") else conversation
            seen = [result.text for result in step.observation.results] if step.observation else []
            text = plain_text(step.message)
            role = str(step.own_fields.get("role", step.source))
            conversation.append((role, "\n".join(filter(None, [text, *seen])) if seen else text))
            continue
        kept = step.own_fields.get("input_context")
        conversation = split_messages(str(kept)) if kept is not None else conversation
        number += 1
        made = _read_agent_step(
            step, number, trajectory.agent, ids, kept if kept is not None else render_messages(conversation)
        )
        if step.is_copied_context:
            number -= 1  # said in an earlier trajectory: what this one begins with
        else:
            yield made
        conversation = after(conversation, made)


def _read_agent_step(step: AtifStep, number: int, agent: AtifAgent, ids: AgentIds, context: str) -> TraceStep:
    """Return step *number* of *agent* with the input *context*; *ids* numbers agents, OpsAssay's own fields win."""
    logs = tuple(_read_tool_calls(step))
    name = str(step.own_fields.get("agent_name", agent.name))
    made: dict[str, Any] = {
        "step_id": number,
        "agent_id": ids.id_of(name),
        "agent_name": name,
        "started_at": _ns(step.timestamp),
        "kind": "tool" if logs else "plain",
        **{key: value for key, value in step.own_fields.items() if key in TraceStep.model_fields},
        "input_context": context,
        "output_content": "\n\n".join(filter(None, [step.reasoning_content, plain_text(step.message)])),
        "tool_logs": logs,
        "usage": _read_usage(step.metrics),
        "model": step.model_name or agent.model_name,
    }
    return TraceStep.model_validate(made)


def _read_tool_calls(step: AtifStep) -> Iterator[ToolCall]:
    """Yield the tool calls of *step* with their results, then other observations as calls of "observation"."""
    results = list(step.observation.results) if step.observation else []
    for call in step.tool_calls or ():
        given = [result for result in results if result.source_call_id == call.tool_call_id]
        results = [result for result in results if result.source_call_id != call.tool_call_id]
        status = call.own_fields.get("status", "ok" if given else "unanswered")
        output = "\n".join(result.text for result in given)
        yield ToolCall(tool=call.function_name, arguments=call.arguments, output=output, status=status)
    for result in results:
        yield ToolCall(tool="observation", arguments={}, output=result.text)


def _read_usage(metrics: AtifUsage | None) -> dict[str, int]:
    """Return the token counts in *metrics* by OpsAssay's names, with further whole numbers of its ``extra``."""
    if metrics is None:
        return {}
    further = {key: value for key, value in (metrics.extra or {}).items() if type(value) is int and value >= 0}
    return {**usage_of("atif", metrics.model_dump()), **further}


def _ns(moment: datetime | None) -> int | None:
    """Return a time as ns of UTC, to the microsecond; one without a zone is taken as UTC."""
    if moment is None:
        return None
    since = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)) - datetime(1970, 1, 1, tzinfo=UTC)
    return ((since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds) * 1000
