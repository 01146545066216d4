"""What of a model's API a sealed agent may use: plain inference, and nothing by which it would reach the world through it.

A provider fetches addresses, searches the web, runs code and keeps files and conversations for whoever holds its key: each
would lead out of the seal, or from one repeat to the next.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

INFERENCE = ("/chat/completions", "/responses", "/messages", "/messages/count_tokens")
KEPT_BY_THE_PROVIDER = ("previous_response_id", "conversation", "prompt", "background", "container", "mcp_servers")
"""Keys of a request that name what the provider keeps, or has it work beyond the answer."""
OWN_TOOLS = (None, "function", "custom")
"""Types of tools that the agent itself carries out."""
ADDRESSES = ("url", "image_url", "file_url", "file_id")


def refusal(method: str, path: str, body: bytes) -> str | None:
    """Return why a request may not go to the provider, None when it may."""
    where = path.partition("?")[0].rstrip("/").removeprefix("/v1")
    if method == "GET" and (where == "/models" or where.startswith("/models/")):
        return None
    if method != "POST" or where not in INFERENCE:
        return f"{method} {where or '/'} is no inference; a sealed agent may only ask {', '.join(INFERENCE)}"
    try:
        asked = json.loads(body)
    except ValueError:
        return "the request is no JSON"
    if not isinstance(asked, dict):
        return "the request is no JSON object"
    return _of_request(asked)


def _of_request(asked: dict[str, Any]) -> str | None:
    for key in KEPT_BY_THE_PROVIDER:
        if asked.get(key):
            return f"`{key}` has the provider keep or fetch something for the agent"
    if "web_search_options" in asked:
        return "`web_search_options` has the provider search the web"
    for tool in asked.get("tools") or ():
        if not isinstance(tool, dict) or tool.get("type") not in OWN_TOOLS:
            kind = tool.get("type") if isinstance(tool, dict) else type(tool).__name__
            return f"a tool of type {kind!r} is carried out by the provider; offer functions"
    said = (asked.get(key) for key in ("messages", "input", "system", "instructions"))
    address = next((one for part in said for one in _addresses(part)), None)
    return f"the provider would fetch {address[:80]!r}; put what it is to see into the request" if address else None


def _addresses(value: Any) -> Iterator[str]:
    """Yield what stands where a provider looks for an address or a stored file; what is inlined is none."""
    if isinstance(value, dict):
        for key, inner in value.items():
            if key in ADDRESSES and isinstance(inner, str) and not inner.startswith("data:"):
                yield inner
            else:
                yield from _addresses(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _addresses(inner)
