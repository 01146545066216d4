"""Which requests of a sandboxed agent to a model's API are allowed: plain inference, without access to anything else.

A provider can fetch URLs, search the web, run code and store files and conversations for the holder of the key. Each
would lead out of the sandbox, or from one repeat to the next.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

from opsassay.core.schema.files import packaged_yaml
from opsassay.core.untrusted import read_json

GEMINI = "/v1beta/models/MODEL:generateContent"
"""The key in `KEYS` for all paths of Gemini's API, which contain the model."""
_GEMINI = re.compile(r"/v1beta/models/(?P<model>[^?#]{1,300}):(?:generateContent|streamGenerateContent|countTokens)")
_ALLOWED = packaged_yaml(__package__, "inference.yaml")
_SHARED = {
    "/chat/completions": ("common", "openai"), "/responses": ("common", "openai"), "/messages": ("common",),
    "/messages/count_tokens": ("common",),
}  # fmt: skip
KEYS: Mapping[str, frozenset[str]] = MappingProxyType(
    {path: frozenset(keys).union(*(_ALLOWED["keys"][shared] for shared in _SHARED.get(path, ())))
     for path, keys in _ALLOWED["keys"].items() if path not in ("common", "openai")}
)  # fmt: skip
"""The keys that a request body may have, by path; other keys are refused."""

VALUES: Mapping[str, tuple[Any, ...]] = MappingProxyType(
    {"n": (None, 1), "service_tier": (None, "auto", "default", "standard_only"), "modalities": (None, ["text"])}
)
"""Keys with the only values that are allowed: others multiply or raise the price of an answer."""

HEADERS = frozenset(_ALLOWED["headers"])
"""Headers that are forwarded to the provider; others could select beta features, organisations or projects."""

OWN_TOOLS = (None, "function", "custom")
"""Types of tools that the agent itself executes."""
NAMESPACE = "namespace"
"""The type by which the Responses API groups several tools under one name."""
ADDRESSES = ("url", "image_url", "file_url", "file_id")
"""Keys whose text a provider fetches or looks up; compared without case, since some servers accept ``URL``."""
STORED = "item_reference"
"""The type of an input that refers to an item which the provider stored in another conversation."""
GEMINI_ADDRESSES = ("fileuri", "file_uri")
"""The keys of `ADDRESSES` in Gemini's API, in both spellings."""
_CONFIG: Mapping[str, tuple[Any, ...]] = MappingProxyType(
    {"candidateCount": (None, 1), "responseModalities": (None, ["TEXT"])}
)
_CONFIG_KEYS = frozenset(_CONFIG) | {
    *("stopSequences", "maxOutputTokens", "temperature", "topP", "topK", "seed", "presencePenalty", "frequencyPenalty"),
    *("responseMimeType", "responseSchema", "responseJsonSchema", "responseLogprobs", "logprobs", "thinkingConfig"),
    "mediaResolution",
}
_NO_OBJECT = "the request is no JSON object in which each key stands once"
_QUERY = re.compile(r"(?:beta=true|api-version=[0-9A-Za-z.-]{1,40})(?:&(?:beta=true|api-version=[0-9A-Za-z.-]{1,40}))*")


def refusal(method: str, path: str, body: bytes, model: str | None = None) -> str | None:
    """Return why a request to a model provider is refused, None if it is allowed; *model*: the only one (None: any).

    The path is compared byte for byte, with or without ``/v1``; a path that needs to be normalised is refused.
    """
    place, _, query = path.partition("?")
    if (gemini := _GEMINI.fullmatch(place)) is not None and method == "POST":
        return _refuse_gemini(gemini["model"], query, body, model)
    where = place.removeprefix("/v1")
    if query and not _QUERY.fullmatch(query):
        return "its query is none of beta=true and api-version"
    if method == "GET" and (where == "/models" or (model and where == f"/models/{model}")):
        return None
    if method != "POST" or where not in KEYS:
        return f"{method} {place[:200]} is no inference; a sealed agent may only ask {', '.join(KEYS)}"
    asked = _parse_object(body)
    return _refuse_request(asked, KEYS[where], model) if asked is not None else _NO_OBJECT


def _refuse_gemini(model_in_path: str, query: str, body: bytes, model: str | None) -> str | None:
    """Return why Gemini's request (*query*, *body*) is refused, None if allowed; *model*: the only one, None: any."""
    if query not in {"", "alt=sse"}:
        return "its query is not alt=sse"
    if ".." in model_in_path or model not in {None, model_in_path}:
        return f"the model of this run is {model}, and no other"
    asked = _parse_object(body)
    return _refuse_gemini_request(asked) if asked is not None else _NO_OBJECT


def _parse_object(body: bytes) -> dict[str, Any] | None:
    """Return the JSON object in *body*, None for any other content and for duplicate keys."""

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        """Return the pairs as a dict; raises ValueError for a key that stands twice."""
        if len(dict(pairs)) < len(pairs):
            raise ValueError("twice")
        return dict(pairs)

    try:
        read_json(body)
        asked = json.loads(body, object_pairs_hook=once)
    except ValueError:
        return None
    return asked if isinstance(asked, dict) else None


def _refuse_request(request: dict[str, Any], keys: frozenset[str], model: str | None) -> str | None:
    """Return why a request body is refused, None when it is allowed: only *keys*, only *model*."""
    if model is not None and request.get("model") != model:
        return f"the model of this run is {model}, and no other"
    said = [request.get(key) for key in ("messages", "input", "system", "instructions")]
    return _refuse_unknown(request, keys, VALUES) or _refuse_provider_access(
        _provider_tools(request.get("tools") or []), _find_addresses(said, ADDRESSES)
    )


def _refuse_gemini_request(request: dict[str, Any]) -> str | None:
    """Return why the body of a request to Gemini is refused, None when it is allowed."""
    config, tools = request.get("generationConfig") or {}, request.get("tools") or []
    if not isinstance(config, dict) or not isinstance(tools, list) or not all(isinstance(one, dict) for one in tools):
        return "generationConfig has to be an object, and tools a list of objects"
    provided = (kind for tool in tools for kind in sorted(tool.keys() - {"functionDeclarations"}))
    return (
        _refuse_unknown(request, KEYS[GEMINI], {})
        or _refuse_unknown(config, _CONFIG_KEYS, _CONFIG)
        or _refuse_provider_access(
            provided, _find_addresses([request.get("contents"), request.get("systemInstruction")], GEMINI_ADDRESSES)
        )
    )


def _refuse_unknown(request: dict[str, Any], keys: frozenset[str], values: Mapping[str, tuple[Any, ...]]) -> str | None:
    """Return the sentence on a key not in *keys*, or on a value not in *values* of its key; else None."""
    if unknown := sorted(request.keys() - keys):
        return f"`{unknown[0][:40]}` is not among what a request may hold: {', '.join(sorted(keys))}"
    for key, allowed in values.items():
        if request.get(key) not in allowed:
            return f"`{key}` may only be one of {', '.join(map(str, allowed))}"
    return None


def _refuse_provider_access(tool_kinds: Iterator[str], addresses: Iterator[str]) -> str | None:
    """Return the sentence on a tool that the provider would run or an address it would fetch; else None."""
    if (kind := next(tool_kinds, None)) is not None:
        return f"a tool of type {kind!r} is carried out by the provider; offer functions"
    address = next(addresses, None)
    return f"the provider would fetch {address[:80]!r}; put what it is to see into the request" if address else None


def _provider_tools(tools: Any) -> Iterator[str]:
    """Yield the type of each of *tools* that the provider itself would execute, also inside namespaces."""
    for tool in tools if isinstance(tools, list) else ("no list",):
        if not isinstance(tool, dict):
            yield type(tool).__name__
        elif other := next((key for key in tool if key.casefold() == "type" != key), None):
            yield other
        elif tool.get("type") == NAMESPACE:
            yield from _provider_tools(tool.get("tools"))
        elif tool.get("type") not in OWN_TOOLS:
            yield str(tool["type"])


def _find_addresses(value: Any, names: tuple[str, ...]) -> Iterator[str]:
    """Yield the values under the keys *names*, at any depth, that a provider would fetch: URLs, file ids."""
    if isinstance(value, dict):
        for key, inner in value.items():
            name = key.casefold()
            if name in names and isinstance(inner, str) and not inner.lower().startswith("data:"):
                yield inner
            elif name == "type" and inner == STORED:
                yield STORED
            else:
                yield from _find_addresses(inner, names)
    elif isinstance(value, list):
        for inner in value:
            yield from _find_addresses(inner, names)
