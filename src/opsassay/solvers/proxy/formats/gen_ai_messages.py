"""Reads the messages of a gen_ai span, in each of its forms, as messages of a chat.

Forms: the attributes ``gen_ai.input.messages`` and ``gen_ai.output.messages`` with their parts (1.37 and later), events
with ``content`` or with JSON in ``gen_ai.event.content``, and numbered attributes such as ``gen_ai.prompt.0.content``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from opsassay.solvers.proxy.apis.base import Asked, ModelAnswer, list_objects
from opsassay.solvers.proxy.apis.chat import read_answer, read_request
from opsassay.solvers.proxy.reading import first_of
from opsassay.solvers.proxy.steps import plain_text

Events = Sequence[tuple[str, Mapping[str, Any]]]
_ROLES = {f"gen_ai.{role}.message": role for role in ("system", "user", "assistant", "tool")}
_THOUGHT, _MEDIA = frozenset({"reasoning", "thinking"}), frozenset({"blob", "file", "uri"})
_SAID = frozenset({"text", "refusal", *_THOUGHT, *_MEDIA})
_NUMBERED = re.compile(r"gen_ai\.(prompt|completion)\.(\d+)\.(?:tool_calls\.(\d+)\.)?(\w+)\Z")


def asked_of(attributes: Mapping[str, Any], events: Events) -> Asked:
    """Return the messages that a model call received, from its span's *attributes* and *events* (first convention met)."""
    attributes = _with_details(attributes, events)
    messages = [one for given in _parse_objects(attributes.get("gen_ai.input.messages")) for one in _split_parts(given)]
    if instructions := _parse_json(attributes.get("gen_ai.system_instructions")):
        messages.insert(0, {"role": "system", "content": _text_parts(list_objects(instructions))})
    messages = messages or _read_numbered_messages(attributes, "prompt")
    if not messages:
        logged = [given for name, given in events if name == "gen_ai.content.prompt"]
        logged += [attributes] if "gen_ai.prompt" in attributes else []
        messages = [one for given in logged for one in _messages_of_event(given, "user", "gen_ai.prompt")]
        messages += [_message_of_event(given, _ROLES[name]) for name, given in events if name in _ROLES]
    return read_request({"messages": messages})


def answer_of(attributes: Mapping[str, Any], events: Events) -> ModelAnswer:
    """Return a model call's text, tool calls and stop reason from its span's *attributes* and *events*."""
    attributes = _with_details(attributes, events)
    given = _parse_objects(attributes.get("gen_ai.output.messages"))
    messages = [one for message in given for one in _split_parts(message)] or _read_numbered_messages(
        attributes, "completion"
    )
    if not messages:
        logged = [given for name, given in events if name == "gen_ai.content.completion"]
        logged += [attributes] if "gen_ai.completion" in attributes else []
        messages = [one for given in logged for one in _messages_of_event(given, "assistant", "gen_ai.completion")]
        messages += [_message_of_choice(one) for name, one in events if name == "gen_ai.choice"]
    reasons = _parse_json(attributes.get("gen_ai.response.finish_reasons"))
    reasons = [reasons] if isinstance(reasons, str) else reasons
    stopped = next((one.get("content") if isinstance(one, dict) else one for one in reasons or ()), None)
    said = [one for one in messages if one.get("role") != "tool"]
    whole = {
        "content": [{"text": plain_text(one.get("content"))} for one in said],
        "tool_calls": [call for one in said for call in list_objects(one.get("tool_calls"))],
    }
    reason = stopped or next((one["finish_reason"] for one in said if one.get("finish_reason")), None)
    answer = read_answer({"choices": [{"message": whole, "finish_reason": reason}]})
    return replace(answer, results=read_request({"messages": messages}).results)


def _split_parts(message: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield *message*, which consists of parts, as chat messages; tool results become messages of their own."""
    if "parts" not in message:  # a message of a chat as it is
        yield {"role": "user", **message}
        return
    parts = list_objects(message.get("parts"))
    results = [part for part in parts if str(part.get("type")).endswith("tool_call_response")]
    others = [part for part in parts if part not in results]
    if others or not results:
        yield {
            "role": message.get("role", "user"),
            "content": _text_parts([part for part in others if part.get("type") in _SAID]),
            "tool_calls": [_as_chat_call(part) for part in others if part.get("type") not in _SAID],
            "finish_reason": message.get("finish_reason"),
        }
    for part in results:
        given = first_of({**part}, ("response", "server_tool_call_response", "result", "content"))
        yield {"role": "tool", "tool_call_id": part.get("id"), "content": as_text("" if given is None else given)}


def _as_chat_call(part: Mapping[str, Any]) -> dict[str, Any]:
    """Return the tool call part in the form of a chat completion."""
    if part.get("type") not in ("tool_call", "server_tool_call"):
        return {"id": part.get("id"), **part}
    arguments = part.get("arguments", part.get("server_tool_call"))
    return {"id": part.get("id"), "function": {"name": part.get("name", ""), "arguments": arguments}}


def _messages_of_event(event: Mapping[str, Any], role: str, field: str) -> list[dict[str, Any]]:
    """Return the messages in *field* of *event*: a JSON list of messages, or one text of *role*."""
    text = str(event.get(field, ""))
    found = _parse_objects(text)
    return found if found and all("role" in one for one in found) else [{"role": role, "content": text}]


def _text_parts(parts: Sequence[Mapping[str, Any]]) -> list[dict[str, str]]:
    """Return the texts of *parts*, without reasoning; other media are replaced by their names."""
    return [{"text": _text_of(part)} for part in parts if part.get("type") not in _THOUGHT]


def _text_of(part: Mapping[str, Any]) -> str:
    """Return the part's text; for media its kind and address in brackets."""
    if part.get("type") not in _MEDIA:
        return as_text(part.get("content", ""))
    words = (part.get("modality", part["type"]), first_of({**part}, ("uri", "file_id", "mime_type")))
    return f"[{' '.join(str(word) for word in words if word)}]"


def _message_of_event(given: Mapping[str, Any], role: str) -> dict[str, Any]:
    """Return the message in the attributes *given* of an event; fields of its JSON body take precedence."""
    body = _parse_json(given.get("gen_ai.event.content"))
    said = {**given, **(body if isinstance(body, dict) else {})}
    message = {key: _parse_json(said[key]) if key == "tool_calls" else said[key] for key in said}
    return {"role": role, "tool_call_id": said.get("id"), **message}


def _message_of_choice(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the assistant's message in the attributes *given* of a ``gen_ai.choice`` event."""
    choice = _message_of_event(given, "assistant")
    message = _parse_json(choice.get("message"))
    if isinstance(message, dict):
        return {**choice, **message}
    return {**choice, "content": choice.get("content") if message is None else _content_of_choice(message)}


def _content_of_choice(message: Any) -> Any:
    """Return the text parts of *message*, a list of parts, else *message* as text."""
    return [{"text": as_text(part.get("content", ""))} for part in list_objects(message)] or as_text(message)


def _read_numbered_messages(attributes: Mapping[str, Any], kind: str) -> list[dict[str, Any]]:
    """Return the messages of attributes such as "gen_ai.prompt.0.content"; *kind* is "prompt" or "completion"."""
    messages: dict[int, dict[str, Any]] = {}
    calls: dict[tuple[int, int], dict[str, Any]] = {}
    for key, value in attributes.items():
        found = _NUMBERED.match(key)
        if found is None or found[1] != kind:
            continue
        message = messages.setdefault(int(found[2]), {})
        if found[3] is None:
            message[found[4]] = value
        else:
            call = calls.setdefault((int(found[2]), int(found[3])), {"function": {}})
            (call if found[4] == "id" else call["function"])[found[4]] = value
    for number, _ in sorted(calls):
        messages[number]["tool_calls"] = [calls[at] for at in sorted(calls) if at[0] == number]
    return [messages[number] for number in sorted(messages)]


def _with_details(attributes: Mapping[str, Any], events: Events) -> dict[str, Any]:
    """Return *attributes* completed by those of the event ``gen_ai.client.inference.operation.details``."""
    details = [given for name, given in events if name == "gen_ai.client.inference.operation.details"]
    return {**(details[-1] if details else {}), **attributes}


def _parse_json(value: Any) -> Any:
    """Return *value* parsed when it is a JSON string, a text part for other strings, else unchanged."""
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        return [{"type": "text", "content": value}]


def _parse_objects(value: Any) -> list[dict[str, Any]]:
    """Return the JSON objects in the list *value*, which may be JSON text."""
    return list_objects(_parse_json(value))


def as_text(value: Any) -> str:
    """Return *value* unchanged if it is a string, else as JSON text."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
