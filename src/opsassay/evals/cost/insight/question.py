"""A question: its text, the fields of its answer, and its key (right answer), computed by two independent implementations.

A key is exact: amounts are whole picodollars (micro-units times micro-rates), shares are fractions. Only the grader
rounds and applies tolerances.
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
"""Column of a statement with the number of charges behind a row, by which one misreading ranks."""
Tables = Mapping[str, pl.DataFrame]
KeyRow = Mapping[str, "str | Fraction | frozenset[str]"]
"""A row of a key: identifying texts, exact numbers, and sets of texts any one of which is right."""


@dataclass(frozen=True)
class Field:
    """A field of an answer: text that identifies the row, a date, or a number that is right within *tolerance*."""

    name: str
    kind: Literal["name", "date", "number"]
    meaning: str
    tolerance: Fraction = Fraction(1, 100)


class Billed(Protocol):
    """The billed time (UTC) and the categories with costs, from which the terms of a question are drawn."""

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
    """How to read a team's own costs: all are in *currency*, and the tag key *tag* names the application."""

    currency: str
    tag: str | None


@dataclass(frozen=True)
class Terms:
    """The parameters of a question, which a misreading changes: dates are inclusive, days are those of *zone*.

    *negative*: whether rows with negative cost count or are left out. *own*: how to read a team's own costs, None for
    generated costs.
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
    """A kind of question: *sql* returns its key as a DuckDB statement, *frame* computes it with polars.

    The statement returns the texts of a row, and for every number NAME the whole numbers NAME_num and NAME_den.
    *ranked* is the number whose highest values are asked for. *mistakes* are the misreadings with another key.
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
    """Number of the scenario in Table 26; None for other KPIs of E.1.1."""

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the answer fields that identify a row."""
        return tuple(one.name for one in self.fields if one.kind == "name")


@dataclass(frozen=True)
class Key:
    """The right answer: every row of *required*, and any *open* of those that are *tied* at the cut."""

    required: tuple[KeyRow, ...]
    tied: tuple[KeyRow, ...] = ()
    open: int = 0


def cut(rows: Sequence[KeyRow], template: QuestionTemplate, terms: Terms) -> Key:
    """Return the key from the rows of all groups: the highest `top` of *terms*; of rows tied at the limit any are right.

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
    """Return key rows from a statement's *results*: NAME is NAME_num / NAME_den; rows with NAME_den 0 are left out."""
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
