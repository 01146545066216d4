"""Gemini's generateContent, streamed or not; the request's path contains the model and the choice of streaming."""

from __future__ import annotations

import json
import re
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

GENERATE, STREAM = ":generateContent", ":streamGenerateContent"
_RAN = "OUTCOME_OK"
_SAID = frozenset({
    "text", "thought", "thoughtSignature", "inlineData", "fileData", "videoMetadata", "mediaResolution", "partMetadata",
    "functionResponse", "codeExecutionResult", "toolResponse",
})  # fmt: skip
"""Keys of a part that are content, not a tool call."""
_STEP = re.compile(r"""\.([^.\[\]]+)|\[(?:'([^']*)'|"([^"]*)")\]|\[(\d+)\]""")
_MODEL = re.compile(r"/models/(.+):[A-Za-z]+\Z")


def read_path(path: str) -> dict[str, Any]:
    """Return {"model", "stream"} as the request *path* states them."""
    bare = path.partition("?")[0].rstrip("/")
    named = _MODEL.search(bare)
    return {"model": named[1] if named else None, "stream": bare.endswith(STREAM)}


def read_request(body: dict[str, Any]) -> Asked:
    """Return the request *body* as `Asked`: the system instruction first, then its contents, and its tools."""
    body = _unwrap_body(body, "request")
    contents = list_objects(body.get("contents"))
    system = _text_of_content(fields(body.get("systemInstruction")))
    declared = [
        one for tool in list_objects(body.get("tools")) for one in list_objects(tool.get("functionDeclarations"))
    ]
    return Asked(
        model=text_or_none(body.get("model")),
        messages=tuple(
            ([("system", system)] if system else [])
            + [(_role_of_content(one), _text_of_content(one)) for one in contents]
        ),
        results=tuple(
            _read_tool_result(result) for one in contents for result in _list_parts_of_kind(one, "functionResponse")
        ),
        stream=bool(body.get("stream")),
        tools=tuple(str(one.get("name", "")) for one in declared),
    )


def read_answer(body: dict[str, Any]) -> ModelAnswer:
    """Return the first candidate of the response *body* as an answer: text without reasoning, tool calls, usage."""
    body = _unwrap_body(body, "response")
    candidate = next(iter(list_objects(body.get("candidates"))), {})
    content = fields(candidate.get("content"))
    return ModelAnswer(
        text="".join(str(part["text"]) for part in _list_parts(content) if "text" in part and not part.get("thought")),
        tool_uses=_tool_uses(content),
        results=tuple(
            ToolResult(str(ran.get("id") or "executableCode"), str(ran.get("output", "")), ran.get("outcome") != _RAN)
            for ran in _list_parts_of_kind(content, "codeExecutionResult")
        )
        + tuple(map(_read_tool_result, _list_parts_of_kind(content, "toolResponse"))),
        usage=usage_of("gemini", body.get("usageMetadata")),
        finish_reason=text_or_none(
            candidate.get("finishReason") or fields(body.get("promptFeedback")).get("blockReason")
        ),
        model=text_or_none(body.get("modelVersion")),
        id=text_or_none(body.get("responseId")),
        error=error_text(body),
    )


def assemble(events: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the response that the events of a stream make together."""
    whole: dict[str, Any] = {}
    candidates: dict[int, dict[str, Any]] = {}
    for event in (_unwrap_body(one, "response") for one in events):
        whole |= {key: value for key, value in event.items() if key != "candidates"}
        for given in list_objects(event.get("candidates")):
            candidate = candidates.setdefault(index_of(given.get("index")), {"content": {"role": "model", "parts": []}})
            candidate |= {key: value for key, value in given.items() if key != "content"}
            for part in _list_parts(fields(given.get("content"))):
                _add_part(candidate["content"]["parts"], part)
    return whole | {"candidates": [candidates[index] for index in sorted(candidates)]}


def edit_text(body: dict[str, Any], edit: Callable[[str], str]) -> dict[str, Any]:
    """Return the request *body* with *edit* applied to its system instruction, texts and tool results."""
    body = fields(_to_camel_case(body))

    def edited(content: dict[str, Any]) -> dict[str, Any]:
        """Return the content with *edit* applied to its parts."""
        return content | {"parts": [_edit_part(part, edit) for part in _list_parts(content)]}

    system = {"systemInstruction": edited(fields(body["systemInstruction"]))} if "systemInstruction" in body else {}
    return body | system | {"contents": [edited(one) for one in list_objects(body.get("contents"))]}


def add_message(body: dict[str, Any], role: str, text: str) -> dict[str, Any]:
    """Return the request *body* with a message *text* added: "assistant" becomes Gemini's "model", other roles "user"."""
    said = {"role": "model" if role == "assistant" else "user", "parts": [{"text": text}]}
    return fields(_to_camel_case(body)) | {"contents": [*list_objects(body.get("contents")), said]}


def _unwrap_body(body: dict[str, Any], inner: str) -> dict[str, Any]:
    """Return *body* with keys in lowerCamelCase, taken from its key *inner* where Code Assist wrapped it."""
    body = fields(_to_camel_case(body))
    return body | fields(body.get(inner))


def _to_camel_case(value: Any) -> Any:
    """Return a JSON value with its field names in lowerCamelCase; the API accepts snake_case as well."""
    if isinstance(value, list):
        return [_to_camel_case(part) for part in value]
    if not isinstance(value, dict):
        return value
    named = {re.sub(r"_([a-z])", lambda match: match[1].upper(), key): part for key, part in value.items()}
    return {
        key: part if key in {"args", "response", "parameters"} else _to_camel_case(part) for key, part in named.items()
    }


def _edit_part(part: dict[str, Any], edit: Callable[[str], str]) -> dict[str, Any]:
    """Return *part* with *edit* applied to its texts, those in a function's response included."""
    if "functionResponse" not in part:
        return dict(edit_content(part, edit))
    answer = fields(part["functionResponse"])
    response = {
        key: edit(value) if isinstance(value, str) else value for key, value in fields(answer.get("response")).items()
    }
    return part | {"functionResponse": answer | {"response": response}}


def _add_part(parts: list[dict[str, Any]], part: dict[str, Any]) -> None:
    """Append a streamed *part* to *parts*, or join it to the last text or function call that it continues."""
    last = parts[-1] if parts else {}
    begun, call = fields(last.get("functionCall")), fields(part.get("functionCall"))
    if begun and "functionCall" in part and not call.get("name"):
        arguments = [*list_objects(begun.get("partialArgs")), *list_objects(call.get("partialArgs"))]
        last["functionCall"] = begun | {"partialArgs": arguments}
        return
    are_texts = "text" in last and {*part, *last} <= {"text", "thought"}
    if are_texts and bool(last.get("thought")) == bool(part.get("thought")):
        last["text"] = str(last["text"]) + str(part.get("text", ""))
    else:
        parts.append(dict(part))


def _tool_uses(content: dict[str, Any]) -> tuple[ToolUse, ...]:
    """Return the tool calls in *content*; a part of an unknown kind counts as a call of that name."""
    uses = []
    for part in _list_parts(content):
        for kind in part.keys() - _SAID:
            call = fields(part[kind])
            if kind == "functionCall":
                arguments = arguments_of(call.get("args")) | _streamed_arguments(list_objects(call.get("partialArgs")))
                uses.append(ToolUse(_id_of_call(call), str(call.get("name", "")), arguments))
            else:
                uses.append(raw_use(kind, part, call.get("id") or call.get("toolType")))
    return tuple(uses)


def _streamed_arguments(partial: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the arguments streamed in *partial*, each piece at its ``jsonPath``; texts at one path are joined."""
    found: dict[tuple[str | int, ...], Any] = {}
    for one in partial:
        steps = _STEP.findall(str(one.get("jsonPath", "")))
        path = tuple(int(number) if number else "".join(names) for *names, number in steps)
        value = next((one[key] for key in ("stringValue", "numberValue", "boolValue") if key in one), None)
        found[path] = found[path] + value if isinstance(found.get(path), str) and isinstance(value, str) else value
    return fields(_nest_by_path(found)) if found else {}


def _nest_by_path(values: dict[tuple[str | int, ...], Any]) -> Any:
    """Return nested objects and lists made of *values* by path; keys that are all integers make a list."""
    if () in values:
        return values[()]
    groups: dict[str | int, dict[tuple[str | int, ...], Any]] = {}
    for (first, *rest), value in values.items():
        groups.setdefault(first, {})[tuple(rest)] = value
    inner = {first: _nest_by_path(group) for first, group in groups.items()}
    return [inner[first] for first in sorted(inner)] if all(isinstance(first, int) for first in inner) else inner


def _read_tool_result(answer: dict[str, Any]) -> ToolResult:
    """Return the result in a function response: its output, result or error, else all of it as JSON."""
    response = fields(answer.get("response"))
    found = next((response[key] for key in ("output", "result", "error") if key in response), response)
    output = found if isinstance(found, str) else json.dumps(found, ensure_ascii=False)
    return ToolResult(_id_of_call(answer), output, failed="error" in response)


def _text_of_content(content: dict[str, Any]) -> str:
    """Return the texts of all parts, then the tool calls, then the tool results, a line each."""
    texts = [str(part["text"]) for part in _list_parts(content) if "text" in part]
    texts += calls_text(_tool_uses(content))
    return "\n".join(
        [*texts, *(_read_tool_result(answer).output for answer in _list_parts_of_kind(content, "functionResponse"))]
    )


def _role_of_content(content: dict[str, Any]) -> str:
    """Return "assistant", "tool" (when it has function responses) or "user"."""
    if content.get("role") == "model":
        return "assistant"
    return "tool" if _list_parts_of_kind(content, "functionResponse") else "user"


def _id_of_call(call: dict[str, Any]) -> str:
    """Return the id of *call*, a function call or response, else the name of its tool."""
    return str(call.get("id") or call.get("name") or call.get("toolType", ""))


def _list_parts(content: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the parts of *content* that are JSON objects."""
    return list_objects(content.get("parts"))


def _list_parts_of_kind(content: dict[str, Any], kind: str) -> list[dict[str, Any]]:
    """Return the objects under the key *kind* in the parts of *content*."""
    return [part[kind] for part in _list_parts(content) if isinstance(part.get(kind), dict)]


GEMINI = ModelApi("gemini", (GENERATE, STREAM), read_request, read_answer, assemble, edit_text, add_message, read_path)
