"""Converts untrusted values, such as logs, SQL rows and model output, to text that a page may show."""

from __future__ import annotations

import datetime as dt
import json
import unicodedata
from typing import Any

LONGEST_TEXT = 4_000
"""Most characters of one value that a page shows; the rest is counted."""


def plain(value: Any, longest: int = LONGEST_TEXT) -> str:
    """Return *value* as visible text of at most *longest* characters.

    Control and direction-changing characters are spelled out, so that a name cannot reorder or hide other text. Numbers
    keep all their digits: JavaScript would round a nanosecond time.
    """
    text = value if isinstance(value, str) else _number_or_json(value)
    over = len(text) - longest
    shown = text[:longest]
    if not shown.isprintable():  # whatever would be spelled out is not printable, and looking at each character is slow
        shown = "".join(_make_visible(c) for c in shown)
    return f"{shown} … ({over:,} more characters)" if over > 0 else shown


def utc(time_ns: int | None) -> str:
    """Return *time_ns* (since the epoch) as UTC text to the second, a dash for None."""
    if time_ns is None:
        return "–"
    moment = dt.datetime.fromtimestamp(time_ns // 1_000_000_000, dt.UTC)
    return moment.strftime("%Y-%m-%d %H:%M:%S UTC")


def signed_seconds(duration_ns: int) -> str:
    """Return a duration in ns as seconds with a sign, as ``+3.2 s``."""
    return f"{duration_ns / 1e9:+.1f} s"


def _make_visible(character: str) -> str:
    """Return a control or format character as ⟨U+XXXX⟩, others as they are."""
    if character in "\n\t" or unicodedata.category(character) not in {"Cc", "Cf", "Cs", "Zl", "Zp"}:
        return character
    return f"⟨U+{ord(character):04X}⟩"


def _number_or_json(value: Any) -> str:
    """Return *value* as JSON, a string unchanged."""
    if value is None:
        return "null"
    if isinstance(value, bool | int):
        return str(value).lower()
    if isinstance(value, float):
        return repr(value)
    if isinstance(value, dict | list | tuple):
        return json.dumps(value, default=str, ensure_ascii=False)
    return str(value)
