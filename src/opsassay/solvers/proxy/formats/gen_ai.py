"""OpenTelemetry gen_ai spans, as OTLP JSON: read into the Trace, and written from it.

Attribute names are those of the semantic conventions for generative AI (1.37 and later: ``gen_ai.input.messages``,
``gen_ai.output.messages``, ``gen_ai.system_instructions``, ``gen_ai.tool.call.*``); prompts and completions in span
events of earlier conventions are read too. A span of an inference is a step; spans of tools belong to the step before.
"""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from opsassay.core.errors import DatapackError
from opsassay.core.schema.trajectory import ToolCall, Trace, TraceStep
from opsassay.solvers.proxy.apis.base import arguments_of
from opsassay.solvers.proxy.steps import AgentIds, render_messages

_INFERENCE = frozenset({"chat", "generate_content", "text_completion"})


@dataclass(frozen=True)
class _Span:
    id: str
    parent: str
    trace: str
    name: str
    start_ns: int
    end_ns: int
    attributes: dict[str, Any]
    events: tuple[tuple[str, dict[str, Any]], ...]
    error: str | None

    @property
    def operation(self) -> str:
        return str(self.attributes.get("gen_ai.operation.name", ""))


def is_otlp(payload: Any) -> bool:
    """Return whether *payload* is an export of spans in OTLP JSON."""
    return isinstance(payload, dict) and isinstance(payload.get("resourceSpans"), list)


def traces_of_spans(exports: Sequence[Any], path: Path) -> list[Trace]:
    """Return one Trace for every trace id with inference spans, by its first start; raises DatapackError."""
    by_trace: dict[str, list[_Span]] = defaultdict(list)
    try:
        for span in (span for export in exports for span in _spans(export)):
            by_trace[span.trace].append(span)
    except (KeyError, TypeError, ValueError) as error:
        raise DatapackError(f"{path}: a span is not in the form of OTLP JSON ({error!r}).") from error
    groups = sorted(by_trace.values(), key=lambda spans: min(span.start_ns for span in spans))
    found = [_trace(spans) for spans in groups if any(_is_inference(span) for span in spans)]
    if not found:
        raise DatapackError(
            f"{path} has no gen_ai spans: none names a gen_ai.operation.name of {', '.join(sorted(_INFERENCE))}."
        )
    return found


def export_otlp(trace: Trace, run: str | None = None) -> dict[str, Any]:
    """Return *trace* as an OTLP JSON export: a span of the workflow, one per step, one per tool call.

    Ids are hashes, of the name of the *run* where there is one: then they are known before the trace has ended.
    """
    trace_id = _hash(trace.canonical_json() if run is None else run, 32)
    return _export([_root(trace, trace_id), *_spans_of(trace.steps, trace_id)], trace.system_name)


def export_root(trace: Trace, run: str) -> dict[str, Any]:
    """Return the span of the workflow alone, with the ids of *run*."""
    return _export([_root(trace, _hash(run, 32))], trace.system_name)


def export_steps(steps: Sequence[TraceStep], run: str, system_name: str) -> dict[str, Any]:
    """Return the spans of *steps* of the trace that *run* makes, whose root comes when it has ended."""
    return _export(_spans_of(steps, _hash(run, 32)), system_name)


def _export(spans: list[dict[str, Any]], system_name: str) -> dict[str, Any]:
    scope = {"scope": {"name": "opsassay"}, "spans": spans}
    resource = {"attributes": _attributes({"service.name": system_name})}
    return {"resourceSpans": [{"resource": resource, "scopeSpans": [scope]}]}


def _spans_of(steps: Sequence[TraceStep], trace_id: str) -> list[dict[str, Any]]:
    return [span for step in steps for span in _step_spans(step, trace_id, _root_id(trace_id))]


def _root_id(trace_id: str) -> str:
    return _hash(trace_id + "root", 16)


def _root(trace: Trace, trace_id: str) -> dict[str, Any]:
    ends = [step.ended_at or 0 for step in trace.steps]
    starts = [step.started_at or 0 for step in trace.steps]
    return _span(
        trace_id, _root_id(trace_id), "", f"invoke_agent {trace.system_name}", min(starts, default=0),
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


def _spans(export: dict[str, Any]) -> Iterator[_Span]:
    for group in export["resourceSpans"]:
        for scope in group.get("scopeSpans", ()):
            for span in scope.get("spans", ()):
                status = span.get("status") or {}
                yield _Span(
                    id=span["spanId"],
                    parent=span.get("parentSpanId") or "",
                    trace=span["traceId"],
                    name=span.get("name", ""),
                    start_ns=int(span.get("startTimeUnixNano") or 0),
                    end_ns=int(span.get("endTimeUnixNano") or 0),
                    attributes=_values(span.get("attributes", ())),
                    events=tuple((e.get("name", ""), _values(e.get("attributes", ()))) for e in span.get("events", ())),
                    error=(status.get("message") or "error")
                    if status.get("code") in {2, "STATUS_CODE_ERROR"}
                    else None,
                )


def _trace(spans: Sequence[_Span]) -> Trace:
    by_id = {span.id: span for span in spans}
    ordered = sorted(spans, key=lambda span: (span.start_ns, span.attributes.get("opsassay.step_id", 0)))
    inferences = [span for span in ordered if _is_inference(span)]
    tools = _tools_by_step(ordered, inferences)
    root = next((span.attributes for span in ordered if not span.parent), {})
    ids = AgentIds()
    steps = []
    for number, span in enumerate(inferences, 1):
        name = _agent(span, by_id)
        steps.append(_step(number, span, name, ids.id_of(name), tools[span.id]))
    messages = _messages_of(inferences[0])
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


def _step(number: int, span: _Span, name: str, agent_id: str, tools: Sequence[_Span]) -> TraceStep:
    logs = tuple(_tool_call(tool) for tool in tools)
    counts = {ours: span.attributes.get(f"gen_ai.usage.{ours}") for ours in ("input_tokens", "output_tokens")}
    model = span.attributes.get("gen_ai.response.model") or span.attributes.get("gen_ai.request.model")
    return TraceStep(
        step_id=number,
        agent_id=agent_id,
        agent_name=name,
        input_context=span.attributes.get("opsassay.input_context") or render_messages(_messages_of(span)),
        output_content=_span_answer(span),
        tool_logs=logs,
        started_at=span.start_ns or None,
        ended_at=span.end_ns or None,
        usage={key: int(value) for key, value in counts.items() if value is not None},
        model=model,
        request_id=span.attributes.get("gen_ai.response.id"),
        kind="tool" if logs or span.attributes.get("opsassay.kind") == "tool" else "plain",
        error=span.error,
    )


def _is_inference(span: _Span) -> bool:
    return span.operation in _INFERENCE


def _tools_by_step(ordered: Sequence[_Span], inferences: Sequence[_Span]) -> dict[str, list[_Span]]:
    """Return tool spans by the inference they follow: their parent if it is one, else the last to start before them."""
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


def _agent(span: _Span, by_id: dict[str, _Span]) -> str:
    """Return the agent of the nearest span up the tree that names one."""
    seen: set[str] = set()
    current: _Span | None = span
    while current is not None and current.id not in seen:
        if name := current.attributes.get("gen_ai.agent.name"):
            return str(name)
        seen.add(current.id)
        current = by_id.get(current.parent)
    return "agent"


def _messages_of(span: _Span) -> list[tuple[str, str]]:
    """Return (role, text) of the input, from attributes or from events of earlier conventions."""
    system = _parts_text(_parsed(span.attributes.get("gen_ai.system_instructions")))
    messages = [
        (str(m.get("role", "user")), _parts_text(m.get("parts")))
        for m in _objects(span.attributes.get("gen_ai.input.messages"))
    ]
    if messages or system:
        return ([("system", system)] if system else []) + messages
    prompts = [attributes.get("gen_ai.prompt") for name, attributes in span.events if name == "gen_ai.content.prompt"]
    if prompts:
        return [("user", str(prompt)) for prompt in prompts]
    roles = {f"gen_ai.{role}.message": role for role in ("system", "user", "assistant", "tool")}
    return [(roles[name], str(attributes.get("content", ""))) for name, attributes in span.events if name in roles]


def _span_answer(span: _Span) -> str:
    messages = _objects(span.attributes.get("gen_ai.output.messages"))
    if messages:
        return "\n".join(filter(None, (_parts_text(m.get("parts"), calls=False) for m in messages)))
    given = {"gen_ai.content.completion": "gen_ai.completion", "gen_ai.choice": "message"}
    return "\n".join(str(attributes.get(given[name], "")) for name, attributes in span.events if name in given)


def _parts_text(parts: Any, *, calls: bool = True) -> str:
    texts = []
    for part in parts if isinstance(parts, list) else ():
        if part.get("type") == "tool_call":
            texts.append(f"[calls {part.get('name')} {part.get('arguments')}]" if calls else "")
        else:
            texts.append(_as_text(part.get("content", part.get("response", part.get("result", "")))))
    return "\n".join(filter(None, texts))


def _tool_call(span: _Span) -> ToolCall:
    return ToolCall(
        tool=str(span.attributes.get("gen_ai.tool.name", span.name.removeprefix("execute_tool "))),
        arguments=arguments_of(span.attributes.get("gen_ai.tool.call.arguments")),
        output=_as_text(span.attributes.get("gen_ai.tool.call.result", "")),
        status="error" if span.error else span.attributes.get("opsassay.tool_status", "ok"),
    )


def _step_spans(step: TraceStep, trace_id: str, root: str) -> list[dict[str, Any]]:
    span_id = _hash(f"{trace_id}{step.step_id}", 16)
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
        "gen_ai.usage.input_tokens": step.usage.get("input_tokens"),
        "gen_ai.usage.output_tokens": step.usage.get("output_tokens"),
        "gen_ai.input.messages": _message("user", [{"type": "text", "content": step.input_context}])
        if step.input_context
        else None,
        "gen_ai.output.messages": _message("assistant", text + calls),
        "opsassay.step_id": step.step_id,
        "opsassay.kind": step.kind,
        "opsassay.input_context": step.input_context,
    }
    own = _span(trace_id, span_id, root, f"chat {step.model or ''}".strip(), start, end, attributes, step.error)
    return [own, *(_tool_span(call, n, trace_id, span_id, end) for n, call in enumerate(step.tool_logs))]


def _tool_span(call: ToolCall, number: int, trace_id: str, parent: str, at_ns: int) -> dict[str, Any]:
    attributes = {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": call.tool,
        "gen_ai.tool.call.id": f"call_{number}",
        "gen_ai.tool.call.arguments": json.dumps(call.arguments, ensure_ascii=False),
        "gen_ai.tool.call.result": call.output,
        "opsassay.tool_status": call.status,
    }
    error = "error" if call.status == "error" else None
    return _span(
        trace_id, _hash(f"{parent}{number}", 16), parent, f"execute_tool {call.tool}", at_ns, at_ns, attributes, error
    )


def _span(
    trace_id: str,
    span_id: str,
    parent: str,
    name: str,
    start_ns: int,
    end_ns: int,
    attributes: dict[str, Any],
    error: str | None = None,
) -> dict[str, Any]:
    return {
        "traceId": trace_id,
        "spanId": span_id,
        "parentSpanId": parent,
        "name": name,
        "kind": 3 if parent else 1,
        "startTimeUnixNano": str(start_ns),
        "endTimeUnixNano": str(end_ns),
        "attributes": _attributes(attributes),
        "status": {"code": 2, "message": error} if error else {},
    }


def _message(role: str, parts: list[dict[str, Any]]) -> str:
    return json.dumps([{"role": role, "parts": parts}], ensure_ascii=False)


def _attributes(values: dict[str, Any]) -> list[dict[str, Any]]:
    given = ((key, value) for key, value in values.items() if value is not None)
    return [
        {"key": key, "value": {"intValue": str(value)} if isinstance(value, int) else {"stringValue": value}}
        for key, value in given
    ]


def _values(attributes: Iterable[dict[str, Any]]) -> dict[str, Any]:
    return {pair["key"]: _value(pair["value"]) for pair in attributes}


def _value(value: dict[str, Any]) -> Any:
    inner: Any
    kind, inner = next(iter(value.items()), ("", None))
    if kind == "intValue":
        return int(inner)
    if kind == "arrayValue":
        return [_value(item) for item in inner.get("values", ())]
    if kind == "kvlistValue":
        return _values(inner.get("values", ()))
    return inner


def _parsed(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except ValueError:
        return [{"type": "text", "content": value}]


def _objects(value: Any) -> list[dict[str, Any]]:
    parsed = _parsed(value)
    return [item for item in parsed if isinstance(item, dict)] if isinstance(parsed, list) else []


def _as_text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _hash(text: str, digits: int) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:digits]
