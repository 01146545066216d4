"""OpenAI's Responses API."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

from opsassay.solvers.proxy.apis.base import (
    Asked,
    ModelAnswer,
    ModelApi,
    ToolResult,
    ToolUse,
    arguments_of,
    calls_text,
    edit_content,
    error_text,
    fields,
    index_of,
    list_objects,
    raw_use,
    text_or_none,
)
from opsassay.solvers.proxy.apis.counts import usage_of
from opsassay.solvers.proxy.steps import plain_text

CUT = "cut"
"""OpsAssay's status of a response whose stream was cut off."""

_SAID = ("message", "reasoning", "compaction", "item_reference")
_GIVEN = ("error", "output", "outputs", "results", "result")
"""Keys of the items of hosted tools that contain the result."""
_TEXTS = {
    "output_text": "text",
    "refusal": "refusal",
    "function_call_arguments": "arguments",
    "mcp_call_arguments": "arguments",
    "custom_tool_call_input": "input",
    "code_interpreter_call_code": "code",
}
"""By kind of stream event, the field of the item that its texts belong to; the default is the kind's name."""
_PARTS = ("output_item", "content_part", "reasoning_summary_part")
_ENDED = frozenset({"response.completed", "response.incomplete", "response.failed"})


def read_request(body: dict[str, Any]) -> Asked:
    """Return the parsed request to /responses: instructions first, then its input."""
    items = _read_input(body)
    instructions = [("system", str(body["instructions"]))] if body.get("instructions") else []
    results = [item for item in items if str(item.get("type")).endswith("_call_output")]
    return Asked(
        model=text_or_none(body.get("model")),
        messages=tuple(
            instructions + [(str(item.get("role") or item.get("type", "user")), _text_of_item(item)) for item in items]
        ),
        results=tuple(
            ToolResult(
                str(r.get("call_id") or r.get("id", "")), _text_of_output(r.get("output")), r.get("status") == "failed"
            )
            for r in results
        ),
        user=text_or_none(body.get("user")),
        stream=bool(body.get("stream")),
        tools=tuple(str(tool.get("name") or tool.get("type", "")) for tool in list_objects(body.get("tools"))),
    )


def read_answer(body: dict[str, Any]) -> ModelAnswer:
    """Return the response *body* as an answer: text of its messages, and function calls."""
    output = list_objects(body.get("output"))
    return ModelAnswer(
        text="\n".join(plain_text(item.get("content")) for item in output if item.get("type", "message") == "message"),
        tool_uses=tuple(_tool_use(item) for item in output if _is_use(item)),
        results=tuple(
            _hosted_result(item) for item in output if _is_use(item) and "call_id" not in item and _has_run(item)
        ),
        usage=usage_of("responses", body.get("usage")),
        finish_reason=_finish_reason(body),
        model=text_or_none(body.get("model")),
        id=text_or_none(body.get("id")),
        error=error_text(body),
    )


def assemble(events: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the response in a stream's last event; of a cut stream, one put together from its items."""
    given = [(str(event.get("type")), response) for event in events if (response := fields(event.get("response")))]
    ended = [response for kind, response in given if kind in _ENDED]
    whole = dict(next(iter(ended[-1:] or [response for _, response in given]), {}))
    if ended and whole.get("output"):
        return whole
    failed = next((e for e in events if e.get("type") == "error"), None)
    error = {"error": fields(failed.get("error")) or failed} if failed else {}
    return {**whole, "status": whole.get("status") if ended else CUT, "output": _stream_items(events), **error}


def _stream_items(events: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the output items of a stream in order of their start; events name them by id, else by index."""
    items: list[dict[str, Any]] = []
    texts: dict[tuple[int, str, int], str] = {}
    places: dict[Any, int] = {}
    whole: set[int] = set()
    for event in events:
        item = fields(event.get("item"))
        name, _, stage = str(event.get("type")).removeprefix("response.").rpartition(".")
        field = _TEXTS.get(name, None if name in _PARTS else name) if stage in ("delta", "done") else None
        if not field and (name != "output_item" or stage not in ("added", "done")):
            continue
        id_, index = text_or_none(event.get("item_id") or item.get("id")), index_of(event.get("output_index"), -1)
        known = places.get(id_) if id_ else None
        if known is None:
            known = places.get(index, -1 if id_ else len(items) - 1)
            known = -1 if known in whole else known
        if known < 0 or stage == "added":
            is_said = field in ("text", "refusal") or name.startswith(("output", "reasoning", "audio"))
            items.append({"type": "message" if is_said else name, "role": "assistant"})
            known = len(items) - 1
            places |= {key: known for key in (id_, index) if key not in (None, -1)}
        if field:
            place = known, field, index_of(event.get("content_index"))
            said = texts.get(place, "") + str(event.get("delta", ""))
            texts[place] = said if stage == "delta" else str(event.get(field) or said)
        else:
            items[known] = dict(item)
            whole |= {known} if stage == "done" else set()
    parts: dict[int, list[dict[str, Any]]] = {}
    for (known, field, _), text in texts.items():
        if field in ("text", "refusal"):
            parts.setdefault(known, []).append({"type": f"output_{field}", field: text})
        else:
            items[known][field] = items[known].get(field) or text
    for known, content in parts.items():
        items[known]["content"] = items[known].get("content") or content
    return items


def edit_text(body: dict[str, Any], edit: Callable[[str], str]) -> dict[str, Any]:
    """Return the request with *edit* applied to its instructions and to every text of its input."""
    edited = dict(body)
    for key in ("instructions", "input"):
        if key in body:
            edited[key] = edit_content(body[key], edit)
    return edited


def add_message(body: dict[str, Any], role: str, text: str) -> dict[str, Any]:
    """Return the request *body* with a message of *role* and *text* added at its end."""
    return body | {"input": [*_read_input(body), {"role": role, "content": text}]}


def _read_input(body: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the request's input as a list of items; a plain text becomes one message of the user."""
    given = body.get("input")
    return [{"role": "user", "content": given}] if isinstance(given, str) else list_objects(given)


def _text_of_item(item: dict[str, Any]) -> str:
    """Return the text of *item*: a tool call, a tool's output or a message."""
    if _is_use(item):
        return calls_text([_tool_use(item)])[0]
    return _text_of_output(item["output"]) if "output" in item else plain_text(item.get("content"))


def _is_use(item: dict[str, Any]) -> bool:
    """Whether *item* is a tool call: no message, reasoning or result of a call."""
    kind = item.get("type")
    return isinstance(kind, str) and kind not in _SAID and not kind.endswith(("_output", "_response"))


def _tool_use(item: dict[str, Any]) -> ToolUse:
    """Return *item* parsed as a tool call; a type without a tool's name gives the call that name and its JSON."""
    id_ = item.get("call_id") or item.get("id")
    if item.get("name") and ("arguments" in item or "input" in item):
        return ToolUse(str(id_ or ""), str(item["name"]), arguments_of(item.get("arguments", item.get("input"))))
    return raw_use(str(item["type"]), item, id_)


def _has_run(item: dict[str, Any]) -> bool:
    """Whether the provider ran the tool call in *item* itself: it has a final status or a result."""
    return item.get("status") in ("completed", "failed") or any(item.get(key) is not None for key in _GIVEN)


def _hosted_result(item: dict[str, Any]) -> ToolResult:
    """Return the result of a tool that the provider ran, from the same *item* as its call."""
    given = next((item[key] for key in _GIVEN if item.get(key) is not None), "")
    return ToolResult(
        _tool_use(item).id, _text_of_output(given), failed=bool(item.get("error")) or item.get("status") == "failed"
    )


def _text_of_output(output: Any) -> str:
    """Return *output* as text: an object as JSON."""
    return json.dumps(output, ensure_ascii=False) if isinstance(output, dict) else plain_text(output)


def _finish_reason(body: dict[str, Any]) -> str | None:
    """Return why the response is incomplete, else its status; None while it runs and for a cut stream."""
    reason = text_or_none(fields(body.get("incomplete_details")).get("reason"))
    return reason or (
        None if body.get("status") in (CUT, "in_progress", "queued") else text_or_none(body.get("status"))
    )


RESPONSES = ModelApi("responses", "/responses", read_request, read_answer, assemble, edit_text, add_message)
