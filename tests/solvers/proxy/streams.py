"""Valid streams of the four APIs of models: what a model says is drawn, and written as each API would send it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

from opsassay.solvers.proxy.exchanges import Exchange

PATHS = {
    "chat": "/v1/chat/completions",
    "responses": "/v1/responses",
    "messages": "/v1/messages",
    "gemini": "/v1beta/models/g:streamGenerateContent?alt=sse",
    "gemini array": "/v1beta/models/g:streamGenerateContent",
}
USAGE = {
    "chat": {
        "prompt_tokens": 30, "completion_tokens": 12, "prompt_tokens_details": {"cached_tokens": 20},
        "completion_tokens_details": {"reasoning_tokens": 4},
    },
    "responses": {
        "input_tokens": 30, "output_tokens": 12, "input_tokens_details": {"cached_tokens": 20},
        "output_tokens_details": {"reasoning_tokens": 4},
    },
    "messages": {
        "input_tokens": 7, "cache_read_input_tokens": 20, "cache_creation_input_tokens": 3, "output_tokens": 12,
    },
    "gemini": {
        "promptTokenCount": 30, "candidatesTokenCount": 8, "thoughtsTokenCount": 4, "cachedContentTokenCount": 20,
    },
}  # fmt: skip
"""The same answer's counts: 30 in, of which 20 were cached, and 12 out."""

COUNTED = {
    "chat": {"input_tokens": 30, "output_tokens": 12, "cached_tokens": 20, "reasoning_tokens": 4},
    "responses": {"input_tokens": 30, "output_tokens": 12, "cached_tokens": 20, "reasoning_tokens": 4},
    "messages": {"input_tokens": 30, "output_tokens": 12, "cached_tokens": 20, "cache_write_tokens": 3},
    "gemini": {"input_tokens": 30, "output_tokens": 12, "cached_tokens": 20, "reasoning_tokens": 4},
}
FINISHED = {"chat": "tool_calls", "responses": "completed", "messages": "tool_use", "gemini": "STOP"}


@dataclass(frozen=True)
class Said:
    """What a model says: a text, calls as (id, tool, arguments), how the texts are cut, and how calls are numbered."""

    text: str
    calls: tuple[tuple[str, str, dict[str, Any]], ...]
    piece: int
    numbering: str


_words = st.text(st.sampled_from('ab {}[]":\\n,é'), max_size=12)
_call = st.tuples(st.sampled_from(["ls", "cat", "list_files"]), st.dictionaries(st.sampled_from(["p", "q"]), _words))
answers = st.builds(
    lambda text, calls, piece, numbering: Said(
        text, tuple((f"call_{n}", tool, given) for n, (tool, given) in enumerate(calls)), piece, numbering
    ),
    _words,
    st.lists(_call, max_size=3),
    st.integers(1, 9),
    st.sampled_from(["numbered", "all 0", "none", "named again", "ids again"]),
)


def stream(api: str, said: Said) -> bytes:
    """Return the stream of *said* as *api* sends it."""
    if api == "gemini array":
        return json.dumps(list(_gemini(said)), ensure_ascii=False, indent=1).encode()
    events = {"chat": _chat, "responses": _responses, "messages": _messages, "gemini": _gemini}[api](said)
    end = b"data: [DONE]\n\n" if api == "chat" else b""
    return b"".join(_event(event, named=api in ("responses", "messages")) for event in events) + end


def exchange(api: str, body: bytes, *, streamed: bool = True, asked: dict[str, Any] | None = None) -> Exchange:
    """Return a recorded exchange whose answer is *body*."""
    kind = "text/event-stream" if streamed and api != "gemini array" else "application/json"
    return Exchange(
        id="1", method="POST", path=PATHS[api], request_headers=(), request_body=json.dumps(asked or {}).encode(),
        sent_body=None, status=200, reason="OK", headers=(("Content-Type", kind),), chunks=((0, body),), started_ns=0,
        ended_ns=1, outcome="complete", error=None,
    )  # fmt: skip


def _event(value: dict[str, Any], *, named: bool) -> bytes:
    head = f"event: {value['type']}\n" if named else ""
    return f"{head}data: {json.dumps(value, ensure_ascii=False)}\n\n".encode()


def _pieces(text: str, size: int) -> list[str]:
    return [text[at : at + size] for at in range(0, len(text), size)]


def _chat(said: Said) -> Iterator[dict[str, Any]]:
    def chunk(delta: dict[str, Any], reason: str | None = None) -> dict[str, Any]:
        return {"id": "c", "model": "m", "choices": [{"index": 0, "delta": delta, "finish_reason": reason}]}

    yield chunk({"role": "assistant", "content": None})
    yield from (chunk({"content": part}) for part in _pieces(said.text, said.piece))
    for number, (id_, tool, given) in enumerate(said.calls):
        index = {"none": {}, "all 0": {"index": 0}}.get(said.numbering, {"index": number})
        again = {"id": id_} if said.numbering in ("ids again", "named again") else {}
        name = {"name": tool} if said.numbering == "named again" else {}
        yield chunk(
            {"tool_calls": [{**index, "id": id_, "type": "function", "function": {"name": tool, "arguments": ""}}]}
        )
        for part in _pieces(json.dumps(given), said.piece):
            yield chunk({"tool_calls": [{**index, **again, "function": {**name, "arguments": part}}]})
    yield chunk({}, "tool_calls")
    yield {"id": "c", "choices": [], "usage": USAGE["chat"]}


def _responses(said: Said) -> Iterator[dict[str, Any]]:
    output: list[dict[str, Any]] = []
    yield {"type": "response.created", "response": {"id": "r", "model": "m", "status": "in_progress", "output": []}}
    if said.text:
        at = {"item_id": "m1", "output_index": 0}
        yield {
            "type": "response.output_item.added",
            "output_index": 0,
            "item": {"type": "message", "id": "m1", "content": []},
        }
        for part in _pieces(said.text, said.piece):
            yield {"type": "response.output_text.delta", **at, "delta": part}
        output.append({"type": "message", "id": "m1", "content": [{"type": "output_text", "text": said.text}]})
        yield {"type": "response.output_item.done", "output_index": 0, "item": output[-1]}
    for id_, tool, given in said.calls:
        index = {} if said.numbering == "none" else {"output_index": 0 if said.numbering == "all 0" else len(output)}
        item = {"type": "function_call", "id": f"f{id_}", "call_id": id_, "name": tool, "arguments": ""}
        yield {"type": "response.output_item.added", **index, "item": item}
        for part in _pieces(json.dumps(given), said.piece):
            yield {"type": "response.function_call_arguments.delta", "item_id": item["id"], **index, "delta": part}
        output.append({**item, "arguments": json.dumps(given)})
        yield {"type": "response.output_item.done", **index, "item": output[-1]}
    kept = [] if said.numbering == "ids again" else output  # some servers leave the items out of the last event
    whole = {"id": "r", "model": "m", "status": "completed", "output": kept, "usage": USAGE["responses"]}
    yield {"type": "response.completed", "response": whole}


def _messages(said: Said) -> Iterator[dict[str, Any]]:
    begun = {key: value for key, value in USAGE["messages"].items() if key != "output_tokens"}
    message = {"id": "m", "model": "m", "content": [], "usage": {**begun, "output_tokens": 1}}
    yield {"type": "message_start", "message": message}
    blocks = [({"type": "text", "text": ""}, "text_delta", "text", said.text)] if said.text else []
    blocks += [
        (
            {"type": "tool_use", "id": id_, "name": tool, "input": {}},
            "input_json_delta",
            "partial_json",
            json.dumps(given),
        )
        for id_, tool, given in said.calls
    ]
    for number, (block, kind, field, text) in enumerate(blocks):
        index = {"none": {}, "all 0": {"index": 0}}.get(said.numbering, {"index": number})
        yield {"type": "content_block_start", **index, "content_block": block}
        for part in _pieces(text, said.piece):
            yield {"type": "content_block_delta", **index, "delta": {"type": kind, field: part}}
        yield {"type": "content_block_stop", **index}
    yield {"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 12}}
    yield {"type": "message_stop"}


def _gemini(said: Said) -> Iterator[dict[str, Any]]:
    def answer(parts: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
        return {"candidates": [{"content": {"role": "model", "parts": parts}, **more}], "modelVersion": "m"}

    yield from (answer([{"text": part}]) for part in _pieces(said.text, said.piece))
    for id_, tool, given in said.calls:
        id_of = {} if said.numbering == "none" else {"id": id_}
        yield answer([{"functionCall": {**id_of, "name": tool, "args": given}}])
    yield {**answer([], finishReason="STOP"), "usageMetadata": USAGE["gemini"]}
