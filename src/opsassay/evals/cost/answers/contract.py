"""The format of answers to cost tasks: one JSON object; a violation is an error in one sentence, and never repaired.

Numbers are finite JSON numbers: no text ("1.234,56", "$12", "3 to 5"), no list, no NaN. No two rows may have the same
name fields.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from itertools import pairwise
from typing import Any

from opsassay.evals.cost.insight.question import Field
from opsassay.solvers.agents.contract import AnswerError

MAX_ROWS = 20_000


@dataclass(frozen=True)
class Claim:
    """An anomaly that an answer claims: its slice, its time [start, end), and its importance if one was asked for."""

    slice: str
    start: datetime
    end: datetime
    importance: float | None = None


def _list_of(answer: Mapping[str, Any], key: str) -> list[dict[str, Any]]:
    """Return the list of objects at *key*, which must be the only key of *answer*; raises AnswerError."""
    if set(answer) != {key}:
        raise AnswerError(f"the answer has the keys {', '.join(map(str, answer)) or 'none'}; it has {key!r} alone")
    rows = answer[key]
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise AnswerError(f"{key!r} is no list of objects; give a list, empty if there is nothing")
    if len(rows) > MAX_ROWS:
        raise AnswerError(f"{key!r} has {len(rows)} entries, more than {MAX_ROWS}; give what was asked for")
    return rows


def read_rows(answer: Mapping[str, Any], fields: Sequence[Field]) -> list[dict[str, Any]]:
    """Return the rows of *answer*, each with exactly *fields* and valid values; raises AnswerError."""
    rows = _list_of(answer, "rows")
    expected = [one.name for one in fields]
    seen = set()
    for number, row in enumerate(rows, 1):
        if set(row) != set(expected):
            raise AnswerError(
                f"row {number} has the fields {', '.join(row)}; each row has exactly {', '.join(expected)}"
            )
        for one in fields:
            _require_field(row[one.name], one, f"row {number}: {one.name}")
        name = tuple(row[one.name] for one in fields if one.kind == "name")
        if name in seen:
            raise AnswerError(f"{', '.join(name)} stands in two rows; give one value for each")
        seen.add(name)
    return rows


def _require_field(value: Any, field: Field, location: str) -> None:
    """Raise AnswerError with *location* unless *value* is of the field's kind: number, text or date."""
    if field.kind == "number":
        number_in(value, location)
        return
    if not isinstance(value, str):
        raise AnswerError(f"{location} is no text; write it as it stands in the tables")
    if field.kind == "date":
        try:
            proper = date.fromisoformat(value).isoformat() == value
        except ValueError:
            proper = False
        if not proper:
            raise AnswerError(f"{location} is no date: {value!r}; write YYYY-MM-DD")


def number_in(value: Any, location: str) -> float:
    """Return *value* as a float; raises AnswerError at *location* for anything but a finite number."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        kind = "text" if isinstance(value, str) else "a list" if isinstance(value, list) else f"{value!r}"[:40]
        raise AnswerError(f"{location} is {kind}; give one JSON number, as 1234.56, without unit, separators or range")
    try:
        found = float(value)
    except OverflowError:
        found = math.inf
    if not math.isfinite(found):
        raise AnswerError(f"{location} is too large for a number; give one JSON number")
    return found


def read_claims(answer: Mapping[str, Any], slices: Sequence[str], *, ranked: bool) -> list[Claim]:
    """Return the claimed anomalies of *answer*; raises AnswerError, also for a slice that is not in *slices*.

    With *ranked* each claim must have an importance, otherwise none may have one.
    """
    expected = {"slice", "start", "end", *(("importance",) if ranked else ())}
    claims: list[Claim] = []
    for number, row in enumerate(_list_of(answer, "anomalies"), 1):
        where = f"anomaly {number}"
        if set(row) != expected:
            raise AnswerError(
                f"{where} has the fields {', '.join(row)}; each has exactly {', '.join(sorted(expected))}"
            )
        if row["slice"] not in slices:
            raise AnswerError(f"{where}: there is no slice {row['slice']!r}; slices are {', '.join(slices)}")
        start, end = (_parse_moment(row[name], f"{where}: {name}") for name in ("start", "end"))
        if end <= start:
            raise AnswerError(f"{where} ends at or before it starts; `end` is exclusive")
        importance = number_in(row["importance"], f"{where}: importance") if ranked else None
        claims.append(Claim(row["slice"], start, end, importance))
    _require_no_overlap(claims)
    return claims


def _parse_moment(value: Any, location: str) -> datetime:
    """Return the ISO time *value* in UTC; raises AnswerError with *location* when it lacks an offset."""
    try:
        moment = datetime.fromisoformat(value) if isinstance(value, str) else None
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None:
        raise AnswerError(f"{location} is no time with its offset: {value!r}; write it as 2024-09-01T05:00:00Z")
    try:
        return moment.astimezone(UTC)
    except OverflowError as error:
        raise AnswerError(
            f"{location} lies beyond the calendar: {value!r}; write it as 2024-09-01T05:00:00Z"
        ) from error


def _require_no_overlap(claims: Sequence[Claim]) -> None:
    """Raise AnswerError when two claims on the same slice overlap in time."""
    ordered = sorted(claims, key=lambda one: (one.slice, one.start))
    for one, other in pairwise(ordered):
        if one.slice == other.slice and other.start < one.end:
            raise AnswerError(f"two anomalies of {one.slice} overlap at {other.start.isoformat()}; give each hour once")
