"""Server-sent events: the JSON objects in a recorded stream (WHATWG HTML, section 9.2)."""

from __future__ import annotations

import json
import re
from contextlib import suppress
from typing import Any

_BEGIN = re.compile(rb"(?:\xef\xbb\xbf)?\s*(?:data|event|id|retry)?:")
_LAST = frozenset({"message_stop", "response.completed", "response.incomplete", "response.failed"})


def is_sse(data: bytes) -> bool:
    """Return whether *data* begins as server-sent events do: with a field or a comment."""
    return _BEGIN.match(data) is not None


def events(stream: bytes) -> list[dict[str, Any]]:
    """Return the JSON objects of all complete events in *stream*; empty lines between events may be missing.

    Incomplete events, those without a JSON object and the closing ``[DONE]`` are left out; bytes that are not UTF-8
    become replacement characters.
    """
    text = stream.decode("utf-8", errors="replace").removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")
    return [value for block in text.split("\n\n") for value in _read_data(block)]


def array_events(body: bytes) -> list[dict[str, Any]]:
    """Return the complete objects of a JSON array, possibly cut off: Gemini's default form of a stream."""
    text, decoder, found = body.decode("utf-8", errors="replace").strip().removeprefix("["), json.JSONDecoder(), []
    while text := text.lstrip(", \t\r\n"):
        try:
            value, end = decoder.raw_decode(text)
        except (ValueError, RecursionError):
            break
        found += [value] if isinstance(value, dict) else []
        text = text[end:]
    return found


def is_closed(stream: bytes) -> bool:
    """Return whether *stream* is complete: it has ``[DONE]`` or the API's last event."""
    last = events(stream)[-1:]
    return stream.rstrip().endswith(b"[DONE]") or any(str(event.get("type")) in _LAST for event in last)


def _read_data(block: str) -> list[dict[str, Any]]:
    """Return the JSON object of the event's joined `data:` lines, else of each of these lines."""
    lines = [line[5:].removeprefix(" ") for line in block.split("\n") if line.startswith("data:")]
    whole = _parse_objects(["\n".join(lines)])
    return whole or _parse_objects(lines)


def _parse_objects(texts: list[str]) -> list[dict[str, Any]]:
    """Return those of *texts* that are JSON objects, parsed."""
    found = []
    for text in texts:
        with suppress(ValueError, RecursionError):
            found.append(json.loads(text))
    return [value for value in found if isinstance(value, dict)]
