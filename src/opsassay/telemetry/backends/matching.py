"""Label matchers as in Prometheus, Loki and Alertmanager: equal, not equal, and regular expressions.

Regular expressions are run by RE2: time is proportional to the text, and there is neither lookaround nor backreference.
Each distinct text is matched once.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import polars as pl
import re2

from opsassay.core.errors import UserError

MOST_REGEX_CHARACTERS = 1000
_ONE_BYTE = re.compile(r"(?<!\\)(?:\\\\)*\\C")
_OF_WHOLE_TEXTS = re.compile(r"\\[Az]|\(\?[a-zA-Z]*-")
"""Parts of a regular expression whose meaning differs between one line and a text of several lines."""


class RegexError(UserError):
    """A regular expression that is invalid, too long or not supported."""


class Matcher(NamedTuple):
    """A condition on the label *name*; *op* is one of ``=``, ``!=``, ``=~`` and ``!~``, an absent label is ''."""

    name: str
    op: str
    value: str

    def test(self, texts: Iterable[str]) -> Callable[[str], bool]:
        """Return a function that tells whether a value, one of *texts*, satisfies the condition; raises RegexError."""
        return tester(self.op, self.value, texts)


def tester(op: str, value: str, texts: Iterable[str]) -> Callable[[str], bool]:
    """Return the test whether a value, one of *texts*, satisfies *op* (=, !=, =~, !~) and *value*; raises RegexError."""
    match op:
        case "=":
            return value.__eq__
        case "!=":
            return value.__ne__
    whole = compile_regex(value, dot_nl=True)
    matching = {text for text in set(texts) if whole.fullmatch(text)}
    return matching.__contains__ if op == "=~" else lambda text: text not in matching


def holds_whole(regex: str, texts: pl.Series) -> pl.Series:
    """Return for each of *texts* whether *regex* matches all of it, null for null; raises RegexError."""
    distinct = texts.drop_nulls().unique().to_list()
    return texts.is_in(pl.Series(list(filter(tester("=~", regex, distinct), distinct)), dtype=pl.String).implode())


def holds_anywhere(regex: str, texts: pl.Series) -> npt.NDArray[np.bool_]:
    """Return for each of *texts* whether *regex* matches a part of it; raises RegexError."""
    alone = compile_regex(regex)
    if _OF_WHOLE_TEXTS.search(regex) or texts.str.contains("\n", literal=True).any():
        holding = [text for text in texts.unique().to_list() if alone.search(text)]
        return texts.is_in(pl.Series(holding, dtype=pl.String).implode()).to_numpy().astype(bool)
    return _lines_with(_compile_regex(f"(?m){regex}", never_nl=True), texts)


def _lines_with(regex: Any, lines: pl.Series) -> npt.NDArray[np.bool_]:
    """Return for each of *lines* whether the compiled *regex* matches within it."""
    text = "\n".join(lines.to_list()).encode()
    begins = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(lines.str.len_bytes().to_numpy() + 1)])
    found = np.zeros(len(lines), dtype=bool)
    at = 0
    while at <= len(text) and len(lines) and (match := regex.search(text, at)) is not None:
        line = int(np.searchsorted(begins, match.start(), side="right")) - 1
        found[line], at = True, int(begins[line + 1])
    return found


def compile_regex(regex: str, *, dot_nl: bool = False) -> Any:
    """Compile *regex* with RE2; with *dot_nl* a dot also matches a line break. Raises RegexError when it is invalid."""
    if len(regex) > MOST_REGEX_CHARACTERS:
        raise RegexError(f"a regular expression may have {MOST_REGEX_CHARACTERS} characters here")
    if _ONE_BYTE.search(regex):  # of RE2 in C++ alone, not of Go's
        raise RegexError(f"{regex!r} is no regular expression: invalid escape sequence \\C")
    try:
        return _compile_regex(regex, dot_nl=dot_nl)
    except re2.error as error:
        reason = error.args[0].decode(errors="replace")
        if re.search(r"\(\?(?:[=!]|<[=!])|\\[1-9]", regex):
            reason += "; RE2 has no lookaround and no backreferences"
        raise RegexError(f"{regex!r} is no regular expression: {reason}") from error


def _compile_regex(regex: str, **flags: bool) -> Any:
    """Compile *regex* with RE2; *flags* are fields of its Options; raises re2.error."""
    options = re2.Options()
    for name, value in {"log_errors": False, **flags}.items():
        setattr(options, name, value)
    return re2.compile(regex, options)
