"""OpenAI chat completions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from opsassay.solvers.proxy.apis.base import (
    Asked,
    ModelAnswer,
    ModelApi,
    ToolResult,
    ToolUse,
    arguments_of,
    calls_text,
    edit_messages,
    error_text,
    fields,
    index_of,
    list_objects,
    raw_use,
    text_or_none,
)
from opsassay.solvers.proxy.apis.counts import usage_by_total
from opsassay.solvers.proxy.steps import plain_text


def read_request(body: dict[str, Any]) -> Asked:
    """Return the parsed request to /chat/completions; ``name`` of its system message may name the agent."""
    messages = list_objects(body.get("messages"))
    # Tuples: a role may be any JSON, and not all of it can be looked up in a set.
    named = [message.get("name") for message in messages if message.get("role") in ("system", "developer")]
    results = [m for m in messages if m.get("role") in ("tool", "function")]
    return Asked(
        model=text_or_none(body.get("model")),
        messages=tuple((str(m.get("role", "user")), _text_of_message(m)) for m in messages),
        results=tuple(
            ToolResult(str(m.get("tool_call_id") or m.get("name", "")), plain_text(m.get("content"))) for m in results
        ),
        agent=next((str(name) for name in named if name), None),
        user=text_or_none(body.get("user")),
        stream=bool(body.get("stream")),
        tools=tuple(
            str(about.get("name") or t.get("type", ""))
            for t in (*list_objects(body.get("tools")), *({"function": f} for f in list_objects(body.get("functions"))))
            if (about := fields(t.get("function") or t.get("custom"))) or t.get("type")
        ),
    )


def read_answer(body: dict[str, Any]) -> ModelAnswer:
    """Return the parsed answer: text of the first choice, and tool calls of the first choice that has some.

    The text of audio is its transcript. Token counts may also be in the choice or in a server's own field.
    """
    choices = list_objects(body.get("choices"))
    choice = next(iter(choices), {})
    message = fields(choice.get("message"))
    calls = map(_tool_uses, (fields(one.get("message")) for one in choices))
    usage = body.get("usage") or choice.get("usage") or fields(body.get("x_groq")).get("usage")
    transcript = fields(message.get("audio")).get("transcript")
    return ModelAnswer(
        text=plain_text(_without_thoughts(message.get("content")))
        or plain_text(message.get("refusal"))
        or plain_text(transcript),
        tool_uses=next(filter(None, calls), ()),
        usage=usage_by_total("chat", usage),
        finish_reason=text_or_none(choice.get("finish_reason")),
        model=text_or_none(body.get("model")),
        id=text_or_none(body.get("id")),
        error=error_text(body) or error_text(choice),
    )


def assemble(events: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the chat completion that the streamed chunks *events* make together."""
    whole: dict[str, Any] = {"object": "chat.completion"}
    choices: dict[int, dict[str, Any]] = {}
    for event in events:
        whole |= {key: event[key] for key in ("id", "created", "model", "system_fingerprint") if event.get(key)}
        whole |= {key: event[key] for key in ("usage", "x_groq") if event.get(key)}
        if error := error_text(event):
            whole["error"] = event.get("error") or error
        for part in list_objects(event.get("choices")):
            index = index_of(part.get("index"))
            choice = choices.setdefault(index, {"index": index, "message": {"role": "assistant", "content": None}})
            _add_delta(choice["message"], fields(part.get("delta")))
            if whole_message := fields(part.get("message")):
                choice["message"] = whole_message
            choice |= {key: part[key] for key in ("finish_reason", "usage", "error") if part.get(key)}
    for choice in choices.values():
        for call in list_objects(choice["message"].get("tool_calls")):
            call.pop("index", None)
    return whole | {"choices": [choices[index] for index in sorted(choices)]}


def add_message(body: dict[str, Any], role: str, text: str) -> dict[str, Any]:
    """Return the request *body* with a message of *role* and *text* added at its end."""
    return body | {"messages": [*list_objects(body.get("messages")), {"role": role, "content": text}]}


def _add_delta(message: dict[str, Any], delta: dict[str, Any]) -> None:
    """Add the streamed *delta* to *message*: texts are joined, tool calls are matched by index or id."""
    for key in ("content", "refusal", "reasoning_content", "reasoning"):
        if isinstance(given := delta.get(key), list):  # Mistral: thoughts and texts as parts
            given = "".join(map(plain_text, _without_thoughts(given)))
        if isinstance(given, str):
            message[key] = (message.get(key) or "") + given
    if audio := fields(delta.get("audio")):
        _add_text(message.setdefault("audio", {}), audio)
    if function := fields(delta.get("function_call")):
        _add_text(message.setdefault("function_call", {"name": "", "arguments": ""}), function)
    for number, part in enumerate(list_objects(delta.get("tool_calls"))):
        calls = message.setdefault("tool_calls", [])
        kind = str(part.get("type") or next((key for key in ("function", "custom") if key in part), ""))
        call = _find_continued_call(calls, part, fields(part.get(kind)), number > 0)
        if call is None:
            call = {"index": _index_of_part(part), "id": "", "type": kind or "function"}
            calls.append(call)
        call["id"] = call["id"] or part.get("id") or ""
        _add_text(call.setdefault(call["type"], {}), fields(part.get(call["type"])))


def _without_thoughts(content: Any) -> Any:
    """Return *content* without the parts of type "thinking" if it is a list."""
    if not isinstance(content, list):
        return content
    return [part for part in content if fields(part).get("type") != "thinking"]


def _find_continued_call(
    calls: list[dict[str, Any]], part: dict[str, Any], arguments: dict[str, Any], is_further: bool
) -> dict[str, Any] | None:
    """Return the tool call in *calls* that *part* of a stream continues, None where it begins another.

    Servers leave indices out or number every call 0, repeat a name with every part, or give every part its own id. So a
    part continues the last call of its id, of its index, or of all, unless it has another id or name and that call is
    complete or of another name. A named part without an index that *is_further*, not the first of its list, begins a call.
    *arguments* are the part's name and arguments.
    """
    id_, index, name = part.get("id"), _index_of_part(part), arguments.get("name")
    if id_ and (same := [call for call in calls if call["id"] == id_]):
        return same[-1]
    last = next((call for call in reversed(calls) if index is None or call["index"] == index), None)
    if last is None or not name or (is_further and index is None):
        return last if not name else None
    begun = fields(last.get(last["type"]))
    so_far = str(begun.get("arguments") or begun.get("input") or "")
    other_id = bool(id_ and last["id"])
    if not so_far:
        return None if other_id or (index is None and id_) else last
    return last if begun.get("name") == name and not _is_complete_json(so_far) else None


def _index_of_part(part: dict[str, Any]) -> int | None:
    """Return the field ``index`` of a streamed tool call, None without one."""
    return None if part.get("index") is None else index_of(part["index"])


def _is_complete_json(arguments: str) -> bool:
    """Whether *arguments* is the text of a whole JSON object."""
    return "raw" not in arguments_of(arguments)


def _add_text(message: dict[str, Any], part: dict[str, Any]) -> None:
    """Append the string fields of *part* to those of *message*; a repeated ``name`` is not appended again."""
    for key, value in part.items():
        if not isinstance(value, str):
            message[key] = value if value is not None else message.get(key)
        elif key != "name" or message.get(key) != value:
            message[key] = str(message.get(key) or "") + value


def _text_of_message(message: dict[str, Any]) -> str:
    """Return the message's text, then a line for each of its tool calls."""
    return "\n".join(filter(None, [plain_text(message.get("content")), *calls_text(_tool_uses(message))]))


def _tool_uses(message: dict[str, Any]) -> tuple[ToolUse, ...]:
    """Return the tool calls of *message*, with that of the former field ``function_call`` last."""
    legacy = fields(message.get("function_call"))
    former = [ToolUse(str(legacy.get("name")), str(legacy.get("name")), arguments_of(legacy.get("arguments")))]
    return (*map(_read_tool_use, list_objects(message.get("tool_calls"))), *(former if legacy.get("name") else ()))


def _read_tool_use(call: dict[str, Any]) -> ToolUse:
    """Return *call* parsed; one that is neither a function nor custom keeps all its fields as arguments."""
    function, custom = fields(call.get("function")), fields(call.get("custom"))
    if function or custom:
        given = function.get("arguments") if function else custom.get("input")
        return ToolUse(str(call.get("id", "")), str((function or custom).get("name", "")), arguments_of(given))
    return raw_use(str(call.get("type") or "tool_call"), call, call.get("id"))


CHAT = ModelApi("chat", "/chat/completions", read_request, read_answer, assemble, edit_messages, add_message)
