"""Requests and replies of all APIs, and parsers of their parameters."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import NamedTuple
from urllib.parse import parse_qs, unquote

JSON, TEXT = "application/json", "text/plain; charset=utf-8"
MOST_PARAMETERS = 100

_RFC3339 = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,9})?(Z|[+-]\d\d:\d\d)", re.ASCII)
_UNITS_S = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400, "y": 365 * 86400}
_PIECE = re.compile(r"(\d{1,12})(ms|s|m|h|d|w|y)", re.ASCII)
_UNITS_NS = {"ns": 1, "us": 10**3, "µs": 10**3, "ms": 10**6, "s": 10**9, "m": 60 * 10**9, "h": 3600 * 10**9}
_DAYS_NS = {"d": 86400 * 10**9, "w": 7 * 86400 * 10**9, "y": 365 * 86400 * 10**9}
_GO_PIECE = re.compile(r"(\d{1,15}(?:\.\d{0,9})?)(ns|us|µs|ms|s|m|h|d|w|y)", re.ASCII)
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d{1,3})?", re.ASCII)


class ApiCall(NamedTuple):
    """A request: the decoded parts of its *path*, and all values of each parameter in its URL and form."""

    method: str
    path: tuple[str, ...]
    parameters: Mapping[str, Sequence[str]]

    def first(self, name: str) -> str | None:
        """Return the first value of the parameter *name*, None when it is absent or empty."""
        return next(iter(self.parameters.get(name, ())), "") or None


class ApiReply(NamedTuple):
    """A reply: its HTTP *status*, *content*, and media type (*kind*)."""

    status: int
    content: bytes
    kind: str = JSON


def read_call(method: str, path: str, query: str, form: bytes) -> ApiCall:
    """Return the HTTP request as an ApiCall, parameters from *query* and the body *form*; ValueError for too many."""
    text = "&".join(part for part in (query, form.decode("utf-8", "replace")) if part)
    parameters = parse_qs(text, keep_blank_values=True, max_num_fields=MOST_PARAMETERS)
    return ApiCall(method, tuple(unquote(part) for part in path.strip("/").split("/")), parameters)


def number_in(text: str) -> float:
    """Parse *text* as a finite float; raises ValueError for anything else."""
    if len(text) > 100 or not _NUMBER.fullmatch(text) or not math.isfinite(number := float(text)):
        raise ValueError(text)
    return number


def duration_s(text: str) -> float:
    """Parse the duration *text*, seconds or Prometheus' form (``1m30s``), and return seconds; raises ValueError."""
    pieces = _PIECE.findall(text[:100])
    if pieces and "".join(number + unit for number, unit in pieces) == text:
        return float(sum(int(number) * _UNITS_S[unit] for number, unit in pieces))
    return number_in(text)


def duration_ns(text: str, *, days: bool = False) -> int:
    """Parse *text*, a duration in Go's form (``1.5s``; with *days* also d, w, y), into ns; raises ValueError."""
    pieces, units = _GO_PIECE.findall(text[:200]), _UNITS_NS | (_DAYS_NS if days else {})
    if (
        not pieces
        or "".join(number + unit for number, unit in pieces) != text
        or any(u not in units for _, u in pieces)
    ):
        raise ValueError(text)
    return round(min(sum(float(number) * units[unit] for number, unit in pieces), 2.0**62))


def ms_in(text: str) -> int:
    """Parse *text*, seconds since 1970 or RFC 3339, into ms since 1970; raises ValueError."""
    if _RFC3339.fullmatch(text):
        return round(datetime.fromisoformat(text).timestamp() * 1000)
    ms = round(number_in(text) * 1000)
    if abs(ms) > 2**53:
        raise ValueError(text)
    return ms
