"""Matchers of texts as Prometheus, Loki and Alertmanager have them: equal, not equal, and by regular expressions.

Regular expressions are those of Rust's engine (through polars), which has RE2's syntax and, as RE2, takes time in
proportion to the text whatever the expression is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

import polars as pl

from opsassay.core.errors import UserError

MOST_REGEX_CHARACTERS = 1000
_BROKEN = (pl.exceptions.PolarsError, pl.exceptions.PanicException)


class RegexError(UserError):
    """A regular expression that cannot be used."""


class Matcher(NamedTuple):
    """What a label *name* has to be; *op* is one of ``=``, ``!=``, ``=~`` and ``!~``, and an absent label is ''."""

    name: str
    op: str
    value: str

    def test(self, texts: Iterable[str]) -> Callable[[str], bool]:
        """Return the test of a value, which holds for the *texts* alone; raises RegexError."""
        return tester(self.op, self.value, texts)


def tester(op: str, value: str, texts: Iterable[str]) -> Callable[[str], bool]:
    """Return the test that *op* with *value* is, for the *texts* alone; regular expressions match whole texts.

    Raises RegexError.
    """
    match op:
        case "=":
            return value.__eq__
        case "!=":
            return value.__ne__
    matching = _matching(value, texts)
    return matching.__contains__ if op == "=~" else lambda text: text not in matching


def holds_anywhere(regex: str, texts: pl.Series) -> pl.Series:
    """Return for each of *texts* whether *regex* matches a part of it; raises RegexError."""
    require_regex(regex)
    try:
        return texts.str.contains(regex)
    except _BROKEN as error:
        raise RegexError(f"{regex!r} is no regular expression") from error


def require_regex(regex: str) -> None:
    """Raise RegexError when *regex* cannot be used."""
    if len(regex) > MOST_REGEX_CHARACTERS:
        raise RegexError(f"a regular expression may have {MOST_REGEX_CHARACTERS} characters here")
    try:
        pl.Series([""]).str.contains(regex)
    except _BROKEN as error:
        raise RegexError(f"{regex!r} is no regular expression") from error


def _matching(regex: str, texts: Iterable[str]) -> set[str]:
    require_regex(regex)  # alone: "a)(b" would be one within the parentheses below
    distinct = pl.Series(sorted(set(texts)), dtype=pl.String)
    try:
        return set(distinct.filter(distinct.str.contains(f"^(?s:{regex})$")))
    except _BROKEN as error:
        raise RegexError(f"{regex!r} is no regular expression") from error
