"""Replies in the forms of the LLM APIs, as one JSON body or as the events of a stream."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from opsassay.solvers.agents.models.base import Reply

CREATED_S = 1_700_000_000
"""The creation time (Unix, s) of every scripted answer, so that equal requests get equal bytes."""
_PIECE = 24


def response_body(api: str, reply: Reply, model: str, id_: str) -> dict[str, Any]:
    """Return *reply* as the JSON body with id *id_* that *api* (chat, responses, messages or gemini) sends unstreamed."""
    return {
        "chat": _chat_completion,
        "responses": _response_object,
        "messages": _message_object,
        "gemini": _generated_content,
    }[api](reply, model, id_)


def stream(api: str, reply: Reply, model: str, id_: str) -> Iterator[bytes]:
    """Yield *reply* as the server-sent events that *api* (chat, responses, messages or gemini) streams, with id *id_*."""
    makers = {"chat": _chat_events, "responses": _response_events, "messages": _message_events, "gemini": _parts_events}
    return makers[api](reply, model, id_)


def problem(api: str, status: int, message: str) -> dict[str, Any]:
    """Return the JSON body of an error with HTTP *status* as *api* (chat, responses, messages or gemini) sends it."""
    kind = "rate_limit_error" if status == 429 else "api_error"
    if api == "gemini":
        return {"error": {"code": status, "message": message, "status": "INTERNAL" if status >= 500 else "UNAVAILABLE"}}
    error = {"type": kind, "message": message}
    return {"type": "error", "error": error} if api == "messages" else {"error": {**error, "param": None, "code": None}}


def _chat_completion(reply: Reply, model: str, id_: str) -> dict[str, Any]:
    """Return *reply* of *model* as the JSON body of OpenAI's chat completions; *id_* is the response's id."""
    message: dict[str, Any] = {"role": "assistant", "content": reply.text or None, "refusal": None}
    if reply.tool_requests:
        message["tool_calls"] = [
            {"id": r.id, "type": "function", "function": {"name": r.tool, "arguments": json.dumps(r.arguments)}}
            for r in reply.tool_requests
        ]
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": _finish_reason(reply)}
    usage = _chat_usage(reply)
    return _chat_head(model, id_, "chat.completion") | {"choices": [choice], "usage": usage}


def _chat_events(reply: Reply, model: str, id_: str) -> Iterator[bytes]:
    """Yield *reply* as the events of a streamed chat completion, texts and arguments in pieces."""
    head = _chat_head(model, id_, "chat.completion.chunk")

    def chunk(delta: dict[str, Any], finish: str | None = None) -> bytes:
        """Return one event with *delta* in its only choice; *finish* is the finish reason of the last one."""
        return _format_event(head | {"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]})

    yield chunk({"role": "assistant", "content": ""})
    for piece in _split_into_pieces(reply.text):
        yield chunk({"content": piece})
    for index, request in enumerate(reply.tool_requests):
        begun = {
            "index": index,
            "id": request.id,
            "type": "function",
            "function": {"name": request.tool, "arguments": ""},
        }
        yield chunk({"tool_calls": [begun]})
        for piece in _split_into_pieces(json.dumps(request.arguments)):
            yield chunk({"tool_calls": [{"index": index, "function": {"arguments": piece}}]})
    yield chunk({}, _finish_reason(reply))
    yield _format_event(head | {"choices": [], "usage": _chat_usage(reply)})
    yield b"data: [DONE]\n\n"


def _chat_head(model: str, id_: str, kind: str) -> dict[str, Any]:
    """Return the fields that every object of a chat completion has; *kind* is its `object`."""
    return {"id": f"chatcmpl-{id_}", "object": kind, "created": CREATED_S, "model": model}


def _chat_usage(reply: Reply) -> dict[str, int]:
    """Return the token counts of *reply* by the names of OpenAI's chat completions."""
    total = reply.input_tokens + reply.output_tokens
    return {"prompt_tokens": reply.input_tokens, "completion_tokens": reply.output_tokens, "total_tokens": total}


def _finish_reason(reply: Reply) -> str:
    """Return the finish reason of a chat completion: "tool_calls" if *reply* requests tools, else "stop"."""
    return "tool_calls" if reply.tool_requests else "stop"


def _response_object(reply: Reply, model: str, id_: str) -> dict[str, Any]:
    """Return *reply* of *model* as a completed response *id_* of OpenAI's Responses API."""
    usage = {
        "input_tokens": reply.input_tokens,
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens": reply.output_tokens,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": reply.input_tokens + reply.output_tokens,
    }
    return _response_head(model, id_, "completed") | {"output": _response_output(reply, id_), "usage": usage}


def _response_head(model: str, id_: str, status: str) -> dict[str, Any]:
    """Return the fields of a Responses object that do not depend on the reply, with *status* such as "completed"."""
    return {
        "id": f"resp_{id_}", "object": "response", "created_at": CREATED_S, "status": status, "model": model, "output": [],
        "error": None, "incomplete_details": None, "instructions": None, "metadata": {}, "parallel_tool_calls": True,
        "temperature": 1.0, "tool_choice": "auto", "tools": [], "top_p": 1.0,
    }  # fmt: skip


def _response_output(reply: Reply, id_: str) -> list[dict[str, Any]]:
    """Return the output items of *reply*: its text as a message, then one item per tool call."""
    content = [{"type": "output_text", "text": reply.text, "annotations": []}]
    message = {"type": "message", "id": f"msg_{id_}", "role": "assistant", "status": "completed", "content": content}
    calls = [
        {"type": "function_call", "id": f"fc_{number}_{id_}", "call_id": request.id, **_split_tool_name(request.tool),
         "arguments": json.dumps(request.arguments), "status": "completed"}
        for number, request in enumerate(reply.tool_requests)
    ]  # fmt: skip
    return ([message] if reply.text or not calls else []) + calls


def _split_tool_name(tool: str) -> dict[str, str]:
    """Return name and, for ``mcp__orders.find``, namespace of a *tool* as fields of a call."""
    namespace, _, name = tool.rpartition(".")
    return {"name": name} | ({"namespace": namespace} if namespace else {})


def _response_events(reply: Reply, model: str, id_: str) -> Iterator[bytes]:
    """Yield *reply* of *model* as the numbered events of a streamed Responses answer with the id *id_*."""
    events = [{"type": "response.created", "response": _response_head(model, id_, "in_progress")}]
    for index, item in enumerate(_response_output(reply, id_)):
        events += _item_events(index, item)
    events.append({"type": "response.completed", "response": _response_object(reply, model, id_)})
    for number, event in enumerate(events):
        yield _format_event(event | {"sequence_number": number}, str(event["type"]))


def _item_events(index: int, item: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the events that stream output item number *index*: added, pieces, done."""
    at = {"item_id": item["id"], "output_index": index}
    ended = {"type": "response.output_item.done", "output_index": index, "item": item}
    if item["type"] == "function_call":
        begun = item | {"arguments": "", "status": "in_progress"}
        deltas = [
            {"type": "response.function_call_arguments.delta", **at, "delta": p}
            for p in _split_into_pieces(item["arguments"])
        ]
        done = {
            "type": "response.function_call_arguments.done",
            **at,
            "arguments": item["arguments"],
            "name": item["name"],
        }
        return [{"type": "response.output_item.added", "output_index": index, "item": begun}, *deltas, done, ended]
    text = item["content"][0]["text"]
    part = {**at, "content_index": 0}
    begun = item | {"content": [], "status": "in_progress"}
    return [
        {"type": "response.output_item.added", "output_index": index, "item": begun},
        {"type": "response.content_part.added", **part, "part": {"type": "output_text", "text": "", "annotations": []}},
        *(
            {"type": "response.output_text.delta", **part, "delta": piece, "logprobs": []}
            for piece in _split_into_pieces(text)
        ),
        {"type": "response.output_text.done", **part, "text": text, "logprobs": []},
        {"type": "response.content_part.done", **part, "part": item["content"][0]},
        ended,
    ]


def _message_object(reply: Reply, model: str, id_: str) -> dict[str, Any]:
    """Return *reply* of *model* as the JSON body of Anthropic's Messages API; *id_* is the message's id."""
    text = [{"type": "text", "text": reply.text}] if reply.text or not reply.tool_requests else []
    uses = [{"type": "tool_use", "id": r.id, "name": r.tool, "input": r.arguments} for r in reply.tool_requests]
    usage = {"input_tokens": reply.input_tokens, "output_tokens": reply.output_tokens}
    return _message_head(model, id_) | {"content": text + uses, "stop_reason": _stop_reason(reply), "usage": usage}


def _message_head(model: str, id_: str) -> dict[str, Any]:
    """Return the fields of the Messages object *id_* of *model* that do not depend on the reply."""
    return {
        "id": f"msg_{id_}", "type": "message", "role": "assistant", "model": model, "content": [],
        "stop_reason": None, "stop_sequence": None,
    }  # fmt: skip


def _message_events(reply: Reply, model: str, id_: str) -> Iterator[bytes]:
    """Yield *reply* of *model* as the events of a streamed Messages answer with the id *id_*."""
    usage = {"input_tokens": reply.input_tokens, "output_tokens": 1}
    events: list[dict[str, Any]] = [{"type": "message_start", "message": _message_head(model, id_) | {"usage": usage}}]
    for index, block in enumerate(_message_object(reply, model, id_)["content"]):
        events += _block_events(index, block)
    delta = {"stop_reason": _stop_reason(reply), "stop_sequence": None}
    events.append({"type": "message_delta", "delta": delta, "usage": {"output_tokens": reply.output_tokens}})
    events.append({"type": "message_stop"})
    for event in events:
        yield _format_event(event, str(event["type"]))


def _block_events(index: int, block: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the events that stream content block number *index*: start, pieces, stop."""
    if block["type"] == "tool_use":
        begun = block | {"input": {}}
        deltas = [
            {"type": "input_json_delta", "partial_json": piece}
            for piece in _split_into_pieces(json.dumps(block["input"]))
        ]
    else:
        begun = {"type": "text", "text": ""}
        deltas = [{"type": "text_delta", "text": piece} for piece in _split_into_pieces(block["text"])]
    return [
        {"type": "content_block_start", "index": index, "content_block": begun},
        *({"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas),
        {"type": "content_block_stop", "index": index},
    ]


def _stop_reason(reply: Reply) -> str:
    """Return the stop reason of a message: "tool_use" if *reply* requests tools, else "end_turn"."""
    return "tool_use" if reply.tool_requests else "end_turn"


def _generated_content(reply: Reply, model: str, id_: str) -> dict[str, Any]:
    """Return *reply* of *model* as the JSON body of Gemini's generateContent; *id_* is the response's id."""
    calls = [{"functionCall": {"id": r.id, "name": r.tool, "args": r.arguments}} for r in reply.tool_requests]
    parts = ([{"text": reply.text}] if reply.text or not calls else []) + calls
    usage = {
        "promptTokenCount": reply.input_tokens, "candidatesTokenCount": reply.output_tokens,
        "totalTokenCount": reply.input_tokens + reply.output_tokens,
    }  # fmt: skip
    return _parts_head(parts, model, id_, "STOP") | {"usageMetadata": usage}


def _parts_head(parts: list[dict[str, Any]], model: str, id_: str, finish: str | None = None) -> dict[str, Any]:
    """Return a Gemini answer of one candidate with *parts*; *finish* is why it ended, None while it goes on."""
    candidate = {"index": 0, "content": {"role": "model", "parts": parts}}
    ended = {"finishReason": finish} if finish else {}
    return {"candidates": [candidate | ended], "modelVersion": model, "responseId": id_}


def _parts_events(reply: Reply, model: str, id_: str) -> Iterator[bytes]:
    """Yield *reply* as the events of a Gemini stream: text in pieces, then calls, finish reason and token counts."""
    for piece in _split_into_pieces(reply.text):
        yield _format_event(_parts_head([{"text": piece}], model, id_))
    yield _format_event(_generated_content(reply.model_copy(update={"text": ""}), model, id_))


def _split_into_pieces(text: str) -> list[str]:
    """Return *text* in pieces of `_PIECE` characters; [] for an empty text."""
    return [text[start : start + _PIECE] for start in range(0, len(text), _PIECE)]


def _format_event(value: dict[str, Any], name: str | None = None) -> bytes:
    """Return *value* as a server-sent event with the field `event` *name*, without that field for None."""
    head = f"event: {name}\n" if name else ""
    return f"{head}data: {json.dumps(value, separators=(',', ':'))}\n\n".encode()
