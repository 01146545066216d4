"""OpenTelemetry gen_ai spans as OTLP JSON: read into the Trace, and written from it.

Attribute names are those of the semantic conventions for generative AI (1.37 and later: ``gen_ai.input.messages``,
``gen_ai.output.messages``, ``gen_ai.system_instructions``, ``gen_ai.tool.call.*``); earlier forms are read too. An
inference span becomes a step; its tool calls are the tool spans after it, and calls that only messages contain.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from opsassay.core.errors import DatapackError
from opsassay.core.schema.trajectory import ToolCall, Trace, TraceStep
from opsassay.core.schema.validation_errors import reason
from opsassay.core.text import plural
from opsassay.solvers.proxy.apis.base import arguments_of, fields, list_objects
from opsassay.solvers.proxy.apis.counts import COUNTS, named_usage, usage_of
from opsassay.solvers.proxy.calls import LaterRequests, ModelCall
from opsassay.solvers.proxy.formats.gen_ai_messages import answer_of, as_text, asked_of
from opsassay.solvers.proxy.formats.gen_ai_values import Events, listed_events, read_attributes, read_record_events
from opsassay.solvers.proxy.steps import AgentIds, render_messages
from opsassay.telemetry.otlp.json_form import requests_in

_OWN = "opsassay.usage."
"""Prefix of token counts that the conventions do not define."""

_INFERENCE = frozenset({"chat", "generate_content", "text_completion"})
_KNOWN = _INFERENCE | {"execute_tool", "invoke_agent", "create_agent", "invoke_workflow"}


@dataclass(frozen=True)
class _Span:
    id: str
    parent: str
    trace: str
    name: str
    start_ns: int
    end_ns: int
    attributes: dict[str, Any]
    events: Events
    error: str | None

    @property
    def operation(self) -> str:
        """The span's ``gen_ai.operation.name``, else derived from the older ``llm.request.type``, else ""."""
        older = {"chat": "chat", "completion": "text_completion"}
        asked = str(self.attributes.get("llm.request.type"))
        return str(self.attributes.get("gen_ai.operation.name") or older.get(asked, ""))


def is_otlp(payload: Any) -> bool:
    """Return whether *payload* is an OTLP JSON export with spans, or a list of such exports."""
    inner = [fields(one.get("trace")) or one for one in list_objects(payload)]
    spans, others = ("resourceSpans", "resource_spans", "batches"), ("resourceLogs", "resource_logs", "resourceMetrics")
    kinds = [{name for name in spans + others if isinstance(one.get(name), list)} for one in inner]
    return all(kinds) and any(kind & {*spans} for kind in kinds)


def traces_of_spans(exports: Sequence[Any], path: Path, skipped: list[str]) -> list[Trace]:
    """Return one Trace for each trace id with model calls, ordered by start; raises DatapackError.

    Notes on spans that are part of no trace are added to *skipped*.
    """
    by_trace: dict[str, list[_Span]] = defaultdict(list)
    try:
        requests = [request for export in exports for request in requests_in(export, skipped)]
        events, others = read_record_events(requests)
        for span in (span for request in requests for span in _read_spans(request, events)):
            by_trace[span.trace].append(span)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise DatapackError(f"{path}: a span is not in the form of OTLP JSON ({reason(error)}).") from error
    groups = sorted(by_trace.values(), key=lambda spans: min(span.start_ns for span in spans))
    of_agents = [spans for spans in groups if any(_is_inference(span) for span in spans)]
    if not of_agents:
        raise DatapackError(
            f"{path} has no gen_ai spans: none names a gen_ai.operation.name of {', '.join(sorted(_INFERENCE))}."
        )
    strange = Counter(
        span.operation or span.name
        for spans in groups
        for span in spans
        if span.operation not in _KNOWN or not any(spans is known for known in of_agents)
    )
    if others:
        skipped.append(f"{plural(others, 'log record')} of no gen_ai event")
    if strange:
        named = ", ".join(f"{name} ({count})" for name, count in strange.most_common(5))
        skipped.append(f"{plural(strange.total(), 'span')} of nothing that an agent's trace has: {named}")
    return [_read_trace(spans) for spans in of_agents]


def export_otlp(trace: Trace, run: str | None = None) -> dict[str, Any]:
    """Return *trace* as an OTLP JSON export: one root span, one span per step, one per tool call.

    Span and trace ids are hashes of *run*, if given, so that they are known before the trace ends; else of the trace.
    """
    trace_id = _hash_text(trace.canonical_json() if run is None else run, 32)
    return _wrap_spans([_root_span(trace, trace_id), *_spans_of_steps(trace.steps, trace_id)], trace.system_name)


def export_root(trace: Trace, run: str) -> dict[str, Any]:
    """Return the root span of *trace* as an OTLP JSON export, with ids derived from *run*."""
    return _wrap_spans([_root_span(trace, _hash_text(run, 32))], trace.system_name)


def export_steps(steps: Sequence[TraceStep], run: str, system_name: str) -> dict[str, Any]:
    """Return the spans of *steps* as an OTLP JSON export, with ids derived from *run*; the root span is not in it."""
    return _wrap_spans(_spans_of_steps(steps, _hash_text(run, 32)), system_name)


def _wrap_spans(spans: list[dict[str, Any]], system_name: str) -> dict[str, Any]:
    """Return *spans* as one OTLP JSON export of the service *system_name*."""
    scope = {"scope": {"name": "opsassay"}, "spans": spans}
    resource = {"attributes": _as_attributes({"service.name": system_name})}
    return {"resourceSpans": [{"resource": resource, "scopeSpans": [scope]}]}


def _spans_of_steps(steps: Sequence[TraceStep], trace_id: str) -> list[dict[str, Any]]:
    """Return the OTLP spans, in the trace *trace_id*, of all *steps* and of their tool calls."""
    return [span for step in steps for span in _spans_of_step(step, trace_id, _id_of_root(trace_id))]


def _id_of_root(trace_id: str) -> str:
    """Return the span id of the root span of trace *trace_id*."""
    return _hash_text(trace_id + "root", 16)


def _root_span(trace: Trace, trace_id: str) -> dict[str, Any]:
    """Return the root span of *trace*, with the trace's metadata as attributes."""
    ends = [step.ended_at or 0 for step in trace.steps]
    starts = [step.started_at or 0 for step in trace.steps]
    return _make_span(
        trace_id, _id_of_root(trace_id), "", f"invoke_agent {trace.system_name}", min(starts, default=0),
        max(ends, default=0), {
            "gen_ai.operation.name": "invoke_agent",
            "opsassay.task_id": trace.task_id,
            "opsassay.task_instruction": trace.task_instruction,
            "opsassay.system_name": trace.system_name,
            "opsassay.agent_configuration": json.dumps(trace.agent_configuration, ensure_ascii=False),
            "opsassay.system_architecture": trace.system_architecture,
            "opsassay.outcome": trace.outcome,
            "opsassay.reference_answer": trace.reference_answer,
        },
    )  # fmt: skip


def _read_spans(export: dict[str, Any], records: dict[str, Events]) -> Iterator[_Span]:
    """Yield the spans of an OTLP *export*; *records* are further events by span id, from log records."""
    for group in export.get("resourceSpans", ()):
        for scope in group.get("scopeSpans", ()):
            for span in scope.get("spans", ()):
                status, attributes = span.get("status") or {}, read_attributes(span.get("attributes", ()))
                events = tuple(
                    (e.get("name", ""), read_attributes(e.get("attributes", ()))) for e in span.get("events", ())
                )
                said = [given.get("exception.message") for name, given in events if name == "exception"]
                failed = status.get("code") in {2, "STATUS_CODE_ERROR"} or attributes.get("error.type")
                yield _Span(
                    id=span["spanId"],
                    parent=span.get("parentSpanId") or "",
                    trace=span["traceId"],
                    name=span.get("name", ""),
                    start_ns=int(span.get("startTimeUnixNano") or 0),
                    end_ns=int(span.get("endTimeUnixNano") or 0),
                    attributes=attributes,
                    events=(*events, *listed_events(attributes), *records.get(span["spanId"], ())),
                    error=str(next(filter(None, (status.get("message"), *said, attributes.get("error.type"))), "error"))
                    if failed
                    else None,
                )


def _read_trace(spans: Sequence[_Span]) -> Trace:
    """Return the trace of all *spans* of one trace id: one step per model call."""
    by_id = {span.id: span for span in spans}
    ordered = sorted(spans, key=lambda span: (span.start_ns, span.attributes.get("opsassay.step_id", 0)))
    inferences = [span for span in ordered if _is_inference(span)]
    tools = _tools_by_inference(ordered, inferences)
    root = next((span.attributes for span in ordered if not span.parent), {})
    ids = AgentIds()
    calls = [ModelCall(asked_of(s.attributes, s.events), answer_of(s.attributes, s.events)) for s in inferences]
    later, steps = LaterRequests(calls), []
    for number, (span, call) in enumerate(zip(inferences, calls, strict=True), 1):
        name = _agent_of_span(span, by_id)
        logs = _tool_calls(call, call.tool_logs(later.results(number - 1)), tools[span.id])
        steps.append(_read_step(number, span, call, name, ids.id_of(name), logs))
    messages = calls[0].asked.messages
    return Trace(
        task_id=str(
            root.get("opsassay.task_id")
            or inferences[0].attributes.get("gen_ai.conversation.id")
            or inferences[0].trace
        ),
        task_instruction=str(
            root.get("opsassay.task_instruction") or next((text for role, text in messages if role == "user"), "")
        ),
        system_name=str(root.get("opsassay.system_name") or root.get("gen_ai.agent.name") or "OpenTelemetry"),
        agent_configuration=arguments_of(root.get("opsassay.agent_configuration")),
        system_architecture=root.get("opsassay.system_architecture"),
        outcome=root.get("opsassay.outcome"),
        reference_answer=root.get("opsassay.reference_answer"),
        steps=tuple(steps),
    )


def _read_step(
    number: int, span: _Span, call: ModelCall, name: str, agent_id: str, logs: tuple[ToolCall, ...]
) -> TraceStep:
    """Return step *number* from the *span* of a model *call*, by the agent *name*, with tool calls *logs*."""
    model = span.attributes.get("gen_ai.response.model") or span.attributes.get("gen_ai.request.model")
    own = {key.removeprefix(_OWN): count for key, count in span.attributes.items() if key.startswith(_OWN)}
    return TraceStep(
        step_id=number,
        agent_id=agent_id,
        agent_name=name,
        input_context=span.attributes.get("opsassay.input_context") or render_messages(call.asked.messages),
        output_content=call.answer.text if call.answer else "",
        tool_logs=logs,
        started_at=span.start_ns or None,
        ended_at=span.end_ns or None,
        usage={**usage_of("gen_ai", span.attributes), **own},
        finish_reason=call.answer.finish_reason if call.answer else None,
        model=model,
        request_id=span.attributes.get("gen_ai.response.id"),
        kind="tool" if logs or span.attributes.get("opsassay.kind") == "tool" else "plain",
        error=span.error,
    )


def _tool_calls(call: ModelCall, message_calls: Sequence[ToolCall], spans: Sequence[_Span]) -> tuple[ToolCall, ...]:
    """Return a step's tool calls: those in messages with results from their *spans*, then those with a span only."""
    left, logs = list(spans), []
    for use, by_message in zip(call.answer.tool_uses if call.answer else (), message_calls, strict=True):
        by_id = (s for s in left if use.id and s.attributes.get("gen_ai.tool.call.id") == use.id)
        by_name = (s for s in left if not s.attributes.get("gen_ai.tool.call.id") and _name_of_tool(s) == use.tool)
        span = next(by_id, None) or next(by_name, None)
        if span is None:
            logs.append(by_message)
            continue
        left.remove(span)
        ran, has_result = _read_tool_call(span), "gen_ai.tool.call.result" in span.attributes
        update = {
            "arguments": ran.arguments or by_message.arguments,
            "output": ran.output if has_result else by_message.output,
        }
        logs.append(ran.model_copy(update=update))
    return (*logs, *map(_read_tool_call, left))


def _is_inference(span: _Span) -> bool:
    """Whether *span* is a model call."""
    return span.operation in _INFERENCE


def _tools_by_inference(ordered: Sequence[_Span], inferences: Sequence[_Span]) -> dict[str, list[_Span]]:
    """Return tool spans of *ordered* by the id of their model call: a parent in *inferences*, else the one before."""
    found: dict[str, list[_Span]] = {span.id: [] for span in inferences}
    last: _Span | None = None
    for span in ordered:
        if _is_inference(span):
            last = span
        elif span.operation == "execute_tool":
            owner = span.parent if span.parent in found else last.id if last else None
            if owner is not None:
                found[owner].append(span)
    return found


def _agent_of_span(span: _Span, by_id: dict[str, _Span]) -> str:
    """Return the agent's name at *span* or its nearest ancestor (in *by_id*) that has one, else "agent"."""
    seen: set[str] = set()
    current: _Span | None = span
    while current is not None and current.id not in seen:
        if name := current.attributes.get("gen_ai.agent.name"):
            return str(name)
        seen.add(current.id)
        current = by_id.get(current.parent)
    return "agent"


def _name_of_tool(span: _Span) -> str:
    """Return the name of the tool that *span* ran."""
    return str(span.attributes.get("gen_ai.tool.name", span.name.removeprefix("execute_tool ")))


def _read_tool_call(span: _Span) -> ToolCall:
    """Return the tool call that *span* records."""
    return ToolCall(
        tool=_name_of_tool(span),
        arguments=arguments_of(span.attributes.get("gen_ai.tool.call.arguments")),
        output=as_text(span.attributes.get("gen_ai.tool.call.result", "")),
        status="error" if span.error else span.attributes.get("opsassay.tool_status", "ok"),
    )


def _spans_of_step(step: TraceStep, trace_id: str, root: str) -> list[dict[str, Any]]:
    """Return the OTLP spans of *step*, a child of the span *root*, and of its tool calls."""
    span_id = _hash_text(f"{trace_id}{step.step_id}", 16)
    start, end = step.started_at or 0, step.ended_at or 0
    calls = [
        {"type": "tool_call", "id": f"call_{n}", "name": c.tool, "arguments": c.arguments}
        for n, c in enumerate(step.tool_logs)
    ]
    text = [{"type": "text", "content": step.output_content}] if step.output_content else []
    attributes = {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "opsassay",
        "gen_ai.agent.name": step.agent_name,
        "gen_ai.agent.id": step.agent_id,
        "gen_ai.request.model": step.model,
        "gen_ai.response.id": step.request_id,
        **named_usage("gen_ai", step.usage),
        **{f"{_OWN}{name}": count for name, count in step.usage.items() if name not in COUNTS["gen_ai"]},
        "gen_ai.response.finish_reasons": [step.finish_reason] if step.finish_reason else None,
        "gen_ai.input.messages": _format_message("user", [{"type": "text", "content": step.input_context}])
        if step.input_context
        else None,
        "gen_ai.output.messages": _format_message("assistant", text + calls),
        "opsassay.step_id": step.step_id,
        "opsassay.kind": step.kind,
        "opsassay.input_context": step.input_context,
    }
    own = _make_span(trace_id, span_id, root, f"chat {step.model or ''}".strip(), start, end, attributes, step.error)
    return [own, *(_tool_span(call, n, trace_id, span_id, end) for n, call in enumerate(step.tool_logs))]


def _tool_span(call: ToolCall, number: int, trace_id: str, parent: str, at_ns: int) -> dict[str, Any]:
    """Return the OTLP span of tool call *number* of the step's span *parent*; it starts and ends at *at_ns*."""
    attributes = {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": call.tool,
        "gen_ai.tool.call.id": f"call_{number}",
        "gen_ai.tool.call.arguments": json.dumps(call.arguments, ensure_ascii=False),
        "gen_ai.tool.call.result": call.output,
        "opsassay.tool_status": call.status,
    }
    error = "error" if call.status == "error" else None
    return _make_span(
        trace_id,
        _hash_text(f"{parent}{number}", 16),
        parent,
        f"execute_tool {call.tool}",
        at_ns,
        at_ns,
        attributes,
        error,
    )


def _make_span(
    trace_id: str,
    span_id: str,
    parent: str,
    name: str,
    start_ns: int,
    end_ns: int,
    attributes: dict[str, Any],
    error: str | None = None,
) -> dict[str, Any]:
    """Return one OTLP span; attributes that are None are left out, *error* sets an error status."""
    return {
        "traceId": trace_id,
        "spanId": span_id,
        "parentSpanId": parent,
        "name": name,
        "kind": 3 if parent else 1,
        "startTimeUnixNano": str(start_ns),
        "endTimeUnixNano": str(end_ns),
        "attributes": _as_attributes(attributes),
        "status": {"code": 2, "message": error} if error else {},
    }


def _format_message(role: str, parts: list[dict[str, Any]]) -> str:
    """Return one message of *role* with *parts* in the JSON of ``gen_ai.input.messages``."""
    return json.dumps([{"role": role, "parts": parts}], ensure_ascii=False)


def _as_attributes(values: dict[str, Any]) -> list[dict[str, Any]]:
    """Return *values* as an OTLP list of attributes, without those that are None."""
    given = ((key, value) for key, value in values.items() if value is not None)
    return [{"key": key, "value": _as_any_value(value)} for key, value in given]


def _as_any_value(value: Any) -> dict[str, Any]:
    """Return *value* as an OTLP AnyValue."""
    if isinstance(value, list):
        return {"arrayValue": {"values": [_as_any_value(one) for one in value]}}
    return {"intValue": str(value)} if isinstance(value, int) else {"stringValue": value}


def _hash_text(text: str, digits: int) -> str:
    """Return the first *digits* hexadecimal digits of the SHA-256 of *text*."""
    return hashlib.sha256(text.encode()).hexdigest()[:digits]
