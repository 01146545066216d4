"""Importers of the logs of agents: trajectories of SWE-agent and mini-swe-agent, and events of AutoGen.

SWE-agent and mini-swe-agent write a JSON file per task (``.traj``, ``.traj.json``); AutoGen logs an event per line
(``autogen_core.EVENT_LOGGER_NAME``, with the message alone as the format).
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from opsassay.core.errors import DatapackError
from opsassay.core.schema.trajectory import ToolCall, Trace, TraceStep
from opsassay.core.schema.validation_errors import reason
from opsassay.core.text import plural
from opsassay.solvers.proxy.apis import Asked, ModelAnswer, ToolUse
from opsassay.solvers.proxy.apis.base import arguments_of, fields, list_objects, text_or_none
from opsassay.solvers.proxy.apis.chat import CHAT
from opsassay.solvers.proxy.apis.messages import MESSAGES
from opsassay.solvers.proxy.apis.responses import RESPONSES
from opsassay.solvers.proxy.calls import LaterRequests, ModelCall
from opsassay.solvers.proxy.steps import AgentIds, plain_text, render_messages

_CALLS = ("LLMCall", "LLMStreamEnd")
_INSTANCE = re.compile(r"_[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\Z")


def is_trajectory(payload: Any) -> bool:
    """Return whether *payload* is the trajectory file of SWE-agent or mini-swe-agent."""
    return isinstance(payload, dict) and (
        isinstance(payload.get("trajectory"), list)
        or str(payload.get("trajectory_format")).startswith("mini-swe-agent")
    )


def trajectory_trace(payload: dict[str, Any], path: Path) -> Trace:
    """Return the trace of the one task in *payload*; raises DatapackError, naming *path*, for another form."""
    try:
        made = (
            _read_swe_agent(payload) if isinstance(payload.get("trajectory"), list) else _read_mini_swe_agent(payload)
        )
    except (KeyError, TypeError, ValueError) as error:
        raise DatapackError(f"{path}: a step is not in the form of SWE-agent ({reason(error)}).") from error
    return made.model_copy(update={"task_id": path.name.partition(".traj")[0]})


def _read_swe_agent(payload: dict[str, Any]) -> Trace:
    """Return the trace of a SWE-agent trajectory: each turn is a step, its action the tool call.

    An observation without an action becomes a call of the tool `observation`.
    """
    steps = []
    for number, turn in enumerate(list_objects(payload["trajectory"]), 1):
        shown = list_objects(turn.get("query") or turn.get("messages"))
        action, observed = str(turn.get("action") or "").strip(), turn.get("observation")
        call = ToolCall(
            tool=action.split()[0] if action else "observation", arguments={"command": action} if action else {},
            output=plain_text(observed),
            status="unanswered" if observed is None else "ok",
        )  # fmt: skip
        steps.append(
            _make_step(
                number,
                "SWE-agent",
                CHAT.read_request({"messages": shown}).messages,
                (call,) if action or call.output else (),
            )
            | {"output_content": str(turn.get("response") or turn.get("thought") or "")}
        )
    given = fields(next(iter(list_objects(payload["trajectory"])), {})).get("query") or payload.get("history")
    return _make_trace("SWE-agent", given, payload, steps)


def _read_mini_swe_agent(payload: dict[str, Any]) -> Trace:
    """Return the trace of a mini-swe-agent trajectory: each message of the assistant is a step."""
    messages = list_objects(payload["messages"])
    said = [at for at, message in enumerate(messages) if message.get("role") == "assistant" or _is_response(message)]
    calls = [ModelCall(_parse_messages(messages[:at]), _read_answer(messages[at])) for at in said]
    later, steps = LaterRequests(calls), []
    ends = [*said[1:], len(messages)][: len(said)]
    for number, (at, end, call) in enumerate(zip(said, ends, calls, strict=True), 1):
        logs = _commands_of_step(fields(messages[at].get("extra")), messages[at + 1 : end]) or call.logs_in_text(later)
        step = _make_step(number, "mini-swe-agent", call.asked.messages, logs)
        seconds = fields(messages[at].get("extra")).get("timestamp")
        ended = int(float(seconds) * 1e9) if seconds is not None else None
        steps.append(step | _fields_of_answer(call.answer or ModelAnswer("")) | {"ended_at": ended})
    return _make_trace("mini-swe-agent", messages, payload, steps)


def _parse_messages(messages: Sequence[dict[str, Any]]) -> Asked:
    """Return *messages* as a parsed request; some may be answers of the Responses API."""
    shown: list[dict[str, Any]] = []
    for message in messages:
        if _is_response(message):
            shown.append({"role": "assistant", "content": RESPONSES.read_answer(message).text})
        elif message.get("type") == "function_call_output":
            shown.append({"role": "tool", "tool_call_id": message.get("call_id"), "content": message.get("output")})
        else:
            shown.append(message)
    return CHAT.read_request({"messages": shown})


def _is_response(message: dict[str, Any]) -> bool:
    """Whether the message has the form of OpenAI's Responses API."""
    return isinstance(message.get("output"), list)


def _read_answer(message: dict[str, Any]) -> ModelAnswer:
    """Return the model's answer in *message*: its stored API response if there is one, else its own text."""
    if _is_response(message):
        return RESPONSES.read_answer(message)
    whole = fields(fields(message.get("extra")).get("response"))
    return CHAT.read_answer(whole if whole.get("choices") else {"choices": [{"message": message}]})


def _commands_of_step(extra: dict[str, Any], later_messages: Sequence[dict[str, Any]]) -> tuple[ToolCall, ...]:
    """Return the shell commands in *extra* of a step with outputs from *later_messages*; "unanswered" without one."""
    actions = list_objects(extra.get("actions"))
    observed = [one for one in later_messages if "returncode" in fields(one.get("extra")) or one.get("role") == "exit"]
    logs = []
    for number, action in enumerate(actions):
        arguments = {key: value for key, value in action.items() if key != "tool_call_id"}
        if number >= len(observed):
            logs.append(ToolCall(tool="bash", arguments=arguments, output="", status="unanswered"))
            continue
        about = fields(observed[number].get("extra"))
        failed = bool(about.get("returncode") or about.get("exception_info"))
        output = plain_text(about.get("raw_output", observed[number].get("content")))
        logs.append(ToolCall(tool="bash", arguments=arguments, output=output, status="error" if failed else "ok"))
    return tuple(logs)


def _make_trace(system: str, messages: Any, payload: dict[str, Any], steps: Sequence[dict[str, Any]]) -> Trace:
    """Return the trace of *steps*; its instruction is the first user message, its outcome the ``exit_status``."""
    info = fields(payload.get("info"))
    instruction = next((plain_text(m.get("content")) for m in list_objects(messages) if m.get("role") == "user"), "")
    return Trace(
        task_id=system, task_instruction=instruction, system_name=system,
        outcome=text_or_none(info.get("exit_status") or None), steps=tuple(map(TraceStep.model_validate, steps)),
        agent_configuration={system: agent} if (agent := fields(fields(info.get("config")).get("agent"))) else {},
    )  # fmt: skip


def _make_step(
    number: int, agent: str, inputs: Sequence[tuple[str, str]], logs: tuple[ToolCall, ...], id_: str = "0"
) -> dict[str, Any]:
    """Return the fields of step *number* but its answer; *inputs*: (role, text), *logs*: tool calls, *id_*: agent's."""
    return {
        "step_id": number, "agent_id": id_, "agent_name": agent, "input_context": render_messages(inputs),
        "tool_logs": logs, "kind": "tool" if logs else "plain",
    }  # fmt: skip


def _fields_of_answer(answer: ModelAnswer) -> dict[str, Any]:
    """Return the fields of a step that come from the model's answer."""
    return {
        "output_content": answer.text, "usage": answer.usage, "finish_reason": answer.finish_reason,
        "model": answer.model, "request_id": answer.id, "error": answer.error,
    }  # fmt: skip


def is_autogen(lines: Sequence[Any]) -> bool:
    """Return whether *lines* are events of AutoGen, at least one of them a model call."""
    return all(isinstance(line, dict) and "type" in line for line in lines) and any(
        line["type"] in _CALLS for line in lines
    )


def autogen_trace(lines: Sequence[dict[str, Any]], path: Path, skipped: list[str]) -> Trace:
    """Return the trace of the model calls in *lines*; other kinds of events are counted in *skipped*."""
    started: dict[Any, Any] = {}
    events, calls, ran = [], [], defaultdict[tuple[str, str], list[dict[str, Any]]](list)
    others = Counter[str]()
    for line in lines:
        if line["type"] == "LLMStreamStart":
            started[line.get("agent_id")] = line.get("messages")
        elif line["type"] == "ToolCall":
            ran[_agent_name(line), str(line.get("tool_name"))].append(line)
        elif line["type"] in _CALLS:
            shown = line.get("messages") or started.pop(line.get("agent_id"), None)
            events.append(line)
            calls.append(ModelCall(CHAT.read_request({"messages": shown}), _read_autogen_answer(line)))
        else:
            others[str(line["type"])] += 1
    later, ids, steps = LaterRequests(calls), AgentIds(), []
    for number, (event, call) in enumerate(zip(events, calls, strict=True), 1):
        name = _agent_name(event)
        logs = [_with_tool_event(log, ran[name, log.tool]) for log in call.tool_logs(later.results(number - 1))]
        step = _make_step(number, name, call.asked.messages, tuple(logs), ids.id_of(name))
        steps.append(step | _fields_of_answer(call.answer or ModelAnswer("")))
    if others:
        named = ", ".join(f"{name} ({count})" for name, count in others.most_common(5))
        skipped.append(f"{plural(others.total(), 'event')} that are no call: {named}")
    trace = _make_trace("AutoGen", events[0].get("messages"), {}, steps)
    return trace.model_copy(update={"task_id": path.stem})


def _agent_name(event: dict[str, Any]) -> str:
    """Return the agent's name without its instance id: ``planner`` for ``planner_6049aeae-…/6049aeae-…``."""
    return _INSTANCE.sub("", str(event.get("agent_id") or "agent").partition("/")[0])


def _read_autogen_answer(event: dict[str, Any]) -> ModelAnswer:
    """Return the answer of an AutoGen event, in the form of OpenAI, of Anthropic or of AutoGen itself."""
    response = fields(event.get("response"))
    if response.get("choices"):
        return CHAT.read_answer(response)
    content = response.get("content")
    if response.get("role"):
        return MESSAGES.read_answer(response)
    uses = [one for one in list_objects(content) if "arguments" in one]
    counts = {"input_tokens": event.get("prompt_tokens"), "output_tokens": event.get("completion_tokens")}
    return ModelAnswer(
        "" if uses else plain_text(content),
        tool_uses=tuple(
            ToolUse(str(one.get("id")), str(one.get("name")), arguments_of(one.get("arguments"))) for one in uses
        ),
        usage={name: int(count) for name, count in counts.items() if count is not None},
        finish_reason=text_or_none(response.get("finish_reason")),
    )


def _with_tool_event(log: ToolCall, events: list[dict[str, Any]]) -> ToolCall:
    """Return *log*; if it has no result, with that of the matching one of *events*, which is removed there."""
    event = next((one for one in events if one.get("arguments") == log.arguments), next(iter(events), None))
    if event is None:
        return log
    events.remove(event)
    if log.status != "unanswered":
        return log
    return log.model_copy(update={"output": plain_text(event.get("result")), "status": "ok"})
