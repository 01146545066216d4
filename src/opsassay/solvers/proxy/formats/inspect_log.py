"""Importer of inspect_ai logs: ``.json`` and ``.eval`` (a zip with a file per sample); a sample becomes a trace.

A model event becomes a step with the tool events after it; its agent is the innermost agent span around it.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from opsassay.core.errors import DatapackError
from opsassay.core.schema.trajectory import ToolCall, Trace, TraceStep
from opsassay.core.schema.validation_errors import reason
from opsassay.core.untrusted import most_expanded, open_plain, read_json
from opsassay.core.zstandard import zipfile, zstd
from opsassay.solvers.proxy.apis.base import arguments_of, fields, list_objects, text_or_none
from opsassay.solvers.proxy.apis.counts import usage_by_total
from opsassay.solvers.proxy.steps import AgentIds, plain_text, render_messages

_ATTACHMENT = re.compile(r"attachment://\w+")
_NO_TEXT = frozenset({"reasoning", "tool_use"})
"""Types of content that are not part of an answer's text."""


def is_inspect(payload: Any) -> bool:
    """Return whether *payload* looks like a log of inspect_ai."""
    return (
        isinstance(payload, dict) and {"eval", "version"} <= payload.keys() and bool({"samples", "status"} & {*payload})
    )


def read_inspect(path: Path) -> list[Trace]:
    """Return the traces in an ``.eval`` file; raises DatapackError."""
    return inspect_traces(inspect_payload(path), path)


def inspect_payload(path: Path) -> dict[str, Any]:
    """Return the log in an ``.eval`` file in its JSON form: header and samples; raises DatapackError."""
    try:
        with open_plain(path) as file, zipfile.ZipFile(file) as archive:
            most = most_expanded(path.stat().st_size, 96 * 2**20, 8)
            if sum(entry.file_size for entry in archive.infolist()) > most:
                raise DatapackError(f"{path} expands to more than {most >> 20} MiB, the most for its size; split it.")
            names = sorted(
                name for name in archive.namelist() if name.startswith("samples/") and name.endswith(".json")
            )
            header = _read_member(archive, "header.json") if "header.json" in archive.namelist() else {}
            samples = [_read_member(archive, name) for name in names]
    except (zipfile.BadZipFile, zstd.ZstdError, zlib.error, NotImplementedError, ValueError, OSError) as error:
        raise DatapackError(f"{path} cannot be read as a log of inspect_ai: {error}.") from error
    if not isinstance(header, dict) or not all(isinstance(sample, dict) for sample in samples):
        raise DatapackError(f"{path} cannot be read as a log of inspect_ai: a part of it is no object.")
    return {**header, "samples": samples}


def _read_member(archive: zipfile.ZipFile, name: str) -> Any:
    """Return the JSON value of the file *name* in *archive*, limited to its stated size; NaN becomes None."""
    with archive.open(name) as stream:
        return read_json(stream.read(archive.getinfo(name).file_size), constant=lambda _: None)


def inspect_traces(payload: dict[str, Any], path: Path) -> list[Trace]:
    """Return a trace for each sample of the Inspect log *payload*, read from *path*; raises DatapackError."""
    about = payload.get("eval") or {}
    try:
        return [_read_trace(sample, str(about.get("task", path.stem))) for sample in payload.get("samples") or ()]
    except (KeyError, TypeError, ValueError) as error:
        raise DatapackError(f"{path}: a sample is not in the form of inspect_ai ({reason(error)}).") from error


def _read_trace(sample: dict[str, Any], task: str) -> Trace:
    """Return the trace of one sample; its task id is task, sample and epoch."""
    given = sample.get("input")
    instruction = (
        given if isinstance(given, str) else next((plain_text(m.get("content")) for m in list_objects(given)), "")
    )
    target = sample.get("target")
    return Trace(
        task_id=f"{task}/{sample['id']}/{sample.get('epoch', 1)}",
        task_instruction=instruction,
        system_name=task,
        outcome=_read_outcome(sample),
        reference_answer=", ".join(map(str, target)) if isinstance(target, list) else target or None,
        steps=tuple(_read_steps(_with_inputs(sample), _attachments_by_address(sample))),
    )


def _with_inputs(sample: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the events of *sample*, each range of input messages that an event refers to replaced by the messages."""
    messages = (sample.get("events_data") or {}).get("messages") or []
    return [
        event | {"input": [message for start, end in event["input_refs"] for message in messages[start:end]]}
        if event.get("input_refs")
        else event
        for event in sample.get("events") or ()
    ]


def _read_steps(events: Sequence[dict[str, Any]], attachments: dict[str, str]) -> list[TraceStep]:
    """Return a step per model event with its agent and the tool calls after it; *attachments*: texts by address."""
    spans: dict[str, tuple[str | None, str | None]] = {}  # span -> (parent, agent if it is one's)
    ids, steps = AgentIds(), list[TraceStep]()
    logs: list[dict[str, ToolCall]] = []  # by the ids of the calls
    for event in events:
        kind = event.get("event")
        if kind == "span_begin":
            agent = str(event["name"]) if event.get("type") == "agent" else None
            spans[str(event["id"])] = (event.get("parent_id"), agent)
        elif kind == "model":
            name = _agent_of_span(event.get("span_id"), spans)
            steps.append(_read_step(len(steps) + 1, event, name, ids.id_of(name), attachments))
            logs.append({})
        elif kind == "tool" and logs:
            logs[-1][str(event.get("id") or len(logs[-1]))] = _read_tool_call(event, attachments)
    models = [event for event in events if event.get("event") == "model"]
    given = {str(m.get("tool_call_id")): m for event in models for m in list_objects(event.get("input"))}
    for event, called in zip(models, logs, strict=True):
        message = _message_of_event(event)
        for part in (one for one in list_objects(message.get("content")) if one.get("type") == "tool_use"):
            called.setdefault(str(part.get("id")), _hosted_call(part, attachments))
        for call in list_objects(message.get("tool_calls")):
            id_ = str(call.get("id"))
            called.setdefault(id_, _call_in_messages(call, given.get(id_), attachments))
    return [
        step.model_copy(update={"tool_logs": tuple(called.values()), "kind": "tool" if called else "plain"})
        for step, called in zip(steps, logs, strict=True)
    ]


def _message_of_event(event: dict[str, Any]) -> dict[str, Any]:
    """Return the message of the first choice of a model event, {} when there is none."""
    choice = next(iter(list_objects(fields(event.get("output")).get("choices"))), {})
    return fields(choice.get("message"))


def _hosted_call(part: dict[str, Any], attachments: dict[str, str]) -> ToolCall:
    """Return the call of a tool that the provider ran, in *part* of the answer; *attachments*: texts by address."""
    error = {"message": part["error"]} if part.get("error") else None
    return _read_tool_call({**part, "function": part.get("name") or part.get("tool_type"), "error": error}, attachments)


def _text_of_content(content: Any) -> str:
    """Return the text of a message's *content* without reasoning and tool calls."""
    parts = (
        [one for one in content if fields(one).get("type") not in _NO_TEXT] if isinstance(content, list) else content
    )
    return plain_text(parts)


def _call_in_messages(
    call: dict[str, Any], result_message: dict[str, Any] | None, attachments: dict[str, str]
) -> ToolCall:
    """Return a call without an event, its result from *result_message* (None: "unanswered"), *attachments* put in."""
    about = {
        "function": call.get("function"),
        "arguments": call.get("arguments"),
        "error": fields(result_message).get("error"),
    }
    made = _read_tool_call({**about, "result": fields(result_message).get("content")}, attachments)
    return made if result_message is not None else made.model_copy(update={"status": "unanswered"})


def _read_step(number: int, event: dict[str, Any], name: str, agent_id: str, attachments: dict[str, str]) -> TraceStep:
    """Return step *number* by agent *name* from a model *event*, *attachments* put in; tool calls are added later."""
    output = event.get("output") or {}
    choice = next(iter(list_objects(output.get("choices"))), {})
    message = choice.get("message") or {}
    ours = fields(fields(output.get("metadata")).get("opsassay"))
    shown = [
        (str(m.get("role", "user")), _restore_attachments(_text_of_content(m.get("content")), attachments))
        for m in list_objects(event.get("input"))
    ]
    return TraceStep(
        step_id=number,
        agent_id=agent_id,
        agent_name=name,
        input_context=render_messages(shown),
        output_content=_restore_attachments(_text_of_content(message.get("content")), attachments),
        started_at=_ns(event.get("timestamp")),
        ended_at=_ns(event.get("completed")),
        usage=usage_by_total("inspect", output.get("usage")),
        finish_reason=text_or_none(ours.get("finish_reason") if ours else choice.get("stop_reason")),
        model=output.get("model") or event.get("model"),
        request_id=message.get("id"),
        error=event.get("error") or output.get("error"),
    )


def _read_tool_call(event: dict[str, Any], attachments: dict[str, str]) -> ToolCall:
    """Return the call of a tool event, *attachments* put into its texts; an error's message is its output."""
    error = event.get("error")
    output = plain_text(error.get("message")) if isinstance(error, dict) else plain_text(event.get("result"))
    return ToolCall(
        tool=str(event.get("function", "")),
        arguments=_restore_arguments(arguments_of(event.get("arguments")), attachments),
        output=_restore_attachments(output, attachments),
        status="error" if error else "ok",
    )


def _agent_of_span(span: Any, spans: dict[str, tuple[str | None, str | None]]) -> str:
    """Return the name of the innermost agent span that is or contains *span*; *spans* maps id to (parent, agent)."""
    seen: set[str] = set()
    while span in spans and span not in seen:
        parent, agent = spans[span]
        if agent:
            return agent
        seen.add(span)
        span = parent
    return "agent"


def _attachments_by_address(sample: dict[str, Any]) -> dict[str, str]:
    """Return "attachment://ID" to the text that inspect_ai stored apart in *sample*."""
    return {f"attachment://{key}": value for key, value in (sample.get("attachments") or {}).items()}


def _restore_attachments(text: str, attachments: dict[str, str]) -> str:
    """Return *text* with each "attachment://ID" replaced by its text in *attachments*."""
    return _ATTACHMENT.sub(lambda found: attachments.get(found[0], found[0]), text)


def _restore_arguments(value: Any, attachments: dict[str, str]) -> Any:
    """Return *value*, a call's arguments, with each "attachment://ID" in it replaced from *attachments*."""
    if isinstance(value, dict):
        return {key: _restore_arguments(inner, attachments) for key, inner in value.items()}
    if isinstance(value, list):
        return [_restore_arguments(inner, attachments) for inner in value]
    return _restore_attachments(value, attachments) if isinstance(value, str) else value


def _read_outcome(sample: dict[str, Any]) -> str | None:
    """Return "error", else "SCORER: VALUE" of each score; None without scores."""
    if sample.get("error"):
        return "error"
    scores = sample.get("scores") or {}
    return ", ".join(f"{name}: {score.get('value')}" for name, score in scores.items()) or None


def _ns(moment: Any) -> int | None:
    """Return an ISO 8601 time as ns of UTC, to the microsecond, without rounding through a float."""
    if not moment:
        return None
    since = datetime.fromisoformat(str(moment)) - datetime.fromisoformat("1970-01-01T00:00:00+00:00")
    return ((since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds) * 1000
