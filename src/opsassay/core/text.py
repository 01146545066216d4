"""Small texts of messages, such as counts and the first line of an error."""

from __future__ import annotations

import json
import math
from typing import Any


def plural(number: int, noun: str) -> str:
    """Return *number* with *noun* in the singular or plural: "1 run", "1,000 runs"."""
    return f"{number:,} {noun}" + ("" if number == 1 else "s")


def number_text(value: float, digits: int = 3) -> str:
    """Return *value* with *digits* significant digits; from 1,000 to 10^15 as a whole number: 1,170, not 1.17e+03."""
    whole = math.isfinite(value) and float(f"{abs(value):.{digits}g}") >= 1000 and abs(value) < 1e15
    return f"{value:,.0f}" if whole else f"{value:.{digits}g}"


def json_text(value: Any, *, indent: int | None = None) -> str:
    """Return *value* as standard JSON, with NaN, Infinity and other types as strings; *indent* as in json.dumps."""
    return json.dumps(_with_finite(value), ensure_ascii=False, indent=indent, default=str, allow_nan=False)


def _with_finite(value: Any) -> Any:
    """Return the JSON *value* with NaN and Infinity in it replaced by strings."""
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, dict):
        return {key: _with_finite(inner) for key, inner in value.items()}
    return [_with_finite(inner) for inner in value] if isinstance(value, list | tuple) else value


def first_line(error: BaseException) -> str:
    """Return the first line of the message of *error*, the name of its class when it has no message."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
