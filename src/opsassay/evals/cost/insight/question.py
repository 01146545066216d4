"""What a question is: its words, the fields of its answer, and its key, computed by two implementations that must agree.

A key is exact: amounts are whole picodollars (micro-units times micro-rates), shares are fractions of them. Rounding and
tolerance are the grader's, and the same for both.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, datetime, timedelta
from fractions import Fraction
from typing import Any, Literal, Protocol

import polars as pl

from opsassay.evals.runner.draws import Draws

PICO = 10**12
COUNT = "rows_counted"
"""Column of a statement with the number of rows behind a row, by which a wrong reading ranks."""
Tables = Mapping[str, pl.DataFrame]
KeyRow = Mapping[str, "str | Fraction | frozenset[str]"]
"""A row of a key: texts by which it is found, exact numbers, and sets of texts of which any is right."""


@dataclass(frozen=True)
class Field:
    """A field of an answer: text that names the row, a date, or a number that is right within *tolerance*."""

    name: str
    kind: Literal["name", "date", "number"]
    meaning: str
    tolerance: Fraction = Fraction(1, 100)


class Billed(Protocol):
    """What the terms of a question are drawn from: the time that was billed (UTC), and categories that have costs."""

    @property
    def start(self) -> datetime:
        """The first midnight of the billed time."""

    @property
    def middle(self) -> datetime:
        """A midnight within the billed time, at the start of a month if it contains one."""

    @property
    def end(self) -> datetime:
        """The midnight after the last billed day."""

    @property
    def categories(self) -> tuple[str, ...]:
        """The service categories that have costs."""


@dataclass(frozen=True)
class OwnReading:
    """How a team's own costs are read: all in one *currency*, and *tag* is the key that names an application."""

    currency: str
    tag: str | None


@dataclass(frozen=True)
class Terms:
    """What a question is about, in which its wrong readings differ from it: dates are inclusive, days are those of *zone*.

    *negative* says what becomes of rows with negative cost: they count, or they are left out. *own* is how a team's own
    costs are read, None for costs that a seed made.
    """

    cost: str
    first: date
    last: date
    zone: str = "UTC"
    negative: Literal["count", "leave_out"] = "count"
    rank_by: Literal["value", "rows"] = "value"
    convert: bool = True
    taxes: bool = True
    chosen: tuple[str, ...] = ()
    top: int | None = None
    own: OwnReading | None = None

    def moved(self, days: int) -> Terms:
        """Return a copy whose window starts and ends *days* days later."""
        return replace(self, first=self.first + timedelta(days=days), last=self.last + timedelta(days=days))


@dataclass(frozen=True)
class QuestionTemplate:
    """A kind of question: *sql* writes its key as a DuckDB statement, *frame* computes it with polars.

    The statement gives the texts of a row, and for every number NAME the whole numbers NAME_num and NAME_den. *ranked* is
    the number by which the highest are asked for. *mistakes* are the wrong readings that change its key.
    """

    name: str
    stratum: Literal["easy", "medium", "hard"]
    kpi: str
    fields: tuple[Field, ...]
    terms: Callable[[Draws, Billed], Terms]
    prompt: Callable[[Terms], str]
    sql: Callable[[Terms], str]
    frame: Callable[[Tables, Terms], list[KeyRow]]
    mistakes: tuple[str, ...]
    ranked: str | None = None
    paper: int | None = field(default=None)
    """Number of the scenario in Table 26, None for one of the KPIs of E.1.1 beside them."""

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the answer fields that identify a row."""
        return tuple(one.name for one in self.fields if one.kind == "name")


@dataclass(frozen=True)
class Key:
    """What is right: every row of *required*, and *open* more of those that are *tied* at the cut."""

    required: tuple[KeyRow, ...]
    tied: tuple[KeyRow, ...] = ()
    open: int = 0


def cut(rows: Sequence[KeyRow], template: QuestionTemplate, terms: Terms) -> Key:
    """Return the right answer from all groups' *rows*: the `top` highest; of tied ones at the limit any will do.

    Values within the tolerance of one another are tied, since allowed rounding cannot tell them apart.
    """
    top = terms.top
    if template.ranked is None or top is None or len(rows) <= top:
        return Key(tuple(rows))
    name = COUNT if terms.rank_by == "rows" else template.ranked
    tolerance = next((one.tolerance for one in template.fields if one.name == name), Fraction(0))
    at_cut = sorted((number(row, name) for row in rows), reverse=True)[top - 1]
    required = tuple(row for row in rows if number(row, name) > at_cut + tolerance)
    tied = tuple(row for row in rows if abs(number(row, name) - at_cut) <= tolerance)
    return Key(required, tied, top - len(required))


def number(row: KeyRow, name: str) -> Fraction:
    """Return the number in field *name* of a row of a right answer, exactly."""
    value = row[name]
    assert isinstance(value, Fraction)
    return value


def rows_of(results: Sequence[Mapping[str, Any]], fields: Sequence[Field]) -> list[KeyRow]:
    """Return answer rows from a statement's *results*: NAME is NAME_num / NAME_den; rows with NAME_den 0 drop out."""
    rows: list[KeyRow] = []
    for one in results:
        if any(not one[f"{f.name}_den"] for f in fields if f.kind == "number"):
            continue
        row: dict[str, str | Fraction | frozenset[str]] = {}
        if COUNT in one:
            row[COUNT] = Fraction(int(one[COUNT]))
        for each in fields:
            if each.kind == "number":
                row[each.name] = Fraction(int(one[f"{each.name}_num"]), int(one[f"{each.name}_den"]))
            elif each.kind == "date":
                row[each.name] = frozenset(str(value) for value in one[each.name])
            else:
                row[each.name] = str(one[each.name])
        rows.append(row)
    return rows


def sorted_rows(rows: Sequence[KeyRow], template: QuestionTemplate) -> list[KeyRow]:
    """Return *rows* sorted by the fields that identify them, to compare two computations."""
    return sorted(rows, key=lambda row: tuple(str(row[name]) for name in template.names))
