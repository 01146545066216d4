"""The printed form (``repr``) of objects such as openai's ``ChatCompletion(id='...', choices=[...])``, read as data.

Nothing is evaluated: the text is scanned for calls with keyword arguments, lists, tuples, dicts, strings, numbers and the
names None, True, False, nan and inf, in time linear in its length; depth and length are bounded. A call becomes a dict of
its arguments, an object without a form of its own (``<Kind.name: 1>``) the text of it.
"""

from __future__ import annotations

import ast
import re
from typing import Any

LONGEST, DEEPEST = 32_000_000, 100
"""Characters and nested brackets beyond which a text is not read."""

_TOKEN = re.compile(
    r"""\s*(?:
        (?P<string>[bu]?'[^'\\]*+(?:\\.[^'\\]*+)*+'|[bu]?"[^"\\]*+(?:\\.[^"\\]*+)*+")
      | (?P<number>-?(?:\d[\d_]*(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?)
      | (?P<name>-?[A-Za-z_][\w.]*(?:\[[\w., \[\]]*\](?=\())?)
      | (?P<opaque><[^<>]*>)
      | (?P<mark>[()\[\]{},:=])
    )\s*""",
    re.VERBOSE | re.DOTALL,
)
_NAMES = {"None": None, "True": True, "False": False, "nan": None, "inf": None, "-inf": None}
_CLOSING = {"(": ")", "[": "]", "{": "}"}


def is_object_repr(text: str) -> bool:
    """Return whether *text* begins as a printed object does: a class name and its first keyword argument."""
    return re.match(r"\s*[A-Z][\w.]*(?:\[[\w., ]*\])?\((?:[A-Za-z_]\w*=|\)\s*\Z)", text) is not None


def parse_object_repr(text: str) -> Any:
    """Return the value printed as *text*; raises ValueError saying where it is no such form."""
    if len(text) > LONGEST:
        raise ValueError(f"it is {len(text):,} characters long, and at most {LONGEST:,} are read")
    reader = _ReprReader(text)
    value = reader.value(0)
    reader.end()
    return value


class _ReprReader:
    def __init__(self, text: str) -> None:
        self._text, self._at = text, 0
        self._kind, self._part = "", ""
        self._next()

    def value(self, depth: int) -> Any:
        """Return the value that begins at the current part."""
        if depth > DEEPEST:
            raise ValueError(f"more than {DEEPEST} brackets are nested at character {self._at:,}")
        kind, part = self._kind, self._part
        self._next()
        if kind in {"string", "number"}:
            return self._literal(part)
        if kind == "opaque":
            return part
        if kind == "name":
            return self._read_named(part, depth)
        if part == "{":
            return self._pairs("}", ":", depth)
        if part in {"[", "("}:
            return self._items(_CLOSING[part], depth)
        raise self._odd(part)

    def end(self) -> None:
        """Raise ValueError unless the text is over."""
        if self._kind != "end":
            raise self._odd(self._part)

    def _literal(self, part: str) -> Any:
        try:
            return ast.literal_eval(part)
        except SyntaxError as error:
            raise self._odd(part) from error

    def _read_named(self, name: str, depth: int) -> Any:
        if self._part != "(":
            if name in _NAMES:
                return _NAMES[name]
            raise self._odd(name)
        self._next()
        return self._pairs(")", "=", depth)

    def _pairs(self, closing: str, between: str, depth: int) -> dict[Any, Any]:
        """Return the keyword arguments of a call, or the entries of a dict."""
        found: dict[Any, Any] = {}
        while (self._kind, self._part) != ("mark", closing):
            key: Any = self._part
            if between == "=" and self._kind == "name":
                self._next()
            else:
                key = self.value(depth + 1)
            if (self._kind, self._part) != ("mark", between):
                raise self._odd(self._part)
            self._next()
            found[key if isinstance(key, str) else repr(key)] = self.value(depth + 1)
            self._separated(closing)
        self._next()
        return found

    def _items(self, closing: str, depth: int) -> list[Any]:
        found: list[Any] = []
        while (self._kind, self._part) != ("mark", closing):
            found.append(self.value(depth + 1))
            self._separated(closing)
        self._next()
        return found

    def _separated(self, closing: str) -> None:
        if (self._kind, self._part) == ("mark", ","):
            self._next()
        elif (self._kind, self._part) != ("mark", closing):
            raise self._odd(self._part)

    def _next(self) -> None:
        match = _TOKEN.match(self._text, self._at)
        if match is None:
            if self._text[self._at :].strip():
                raise self._odd(self._text[self._at : self._at + 20])
            self._kind, self._part = "end", ""
            return
        self._at = match.end()
        self._kind, self._part = str(match.lastgroup), match[str(match.lastgroup)]

    def _odd(self, found: str) -> ValueError:
        what = f"unexpected {found[:20]!r}" if found else "it is cut off"
        return ValueError(f"{what} at character {self._at:,}")
