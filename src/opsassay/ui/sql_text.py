"""Formats SQL for reading: one clause per line, subqueries indented."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

_TOKEN = re.compile(
    r"""(?P<kept>'(?:[^']|'')*'|"[^"]*"|--[^\n]*\n?)
    |(?P<query>\(\s*(?=(?:SELECT|WITH)\b))|(?P<open>\()|(?P<close>\))
    |\s++(?P<clause>FROM|WHERE|GROUP\s+BY|HAVING|QUALIFY|ORDER\s+BY|LIMIT|UNION|INTERSECT|EXCEPT|SELECT
      |(?:(?:LEFT|RIGHT|FULL|INNER|CROSS|ASOF|NATURAL|SEMI|ANTI|OUTER)\s+){0,3}JOIN)\b
    |(?P<space>\s++)""",
    re.IGNORECASE | re.VERBOSE,
)
LONGEST, DEEPEST = 20_000, 8
"""Most characters of a statement that is formatted, and most levels of indentation."""
_STATEMENT = re.compile(r"\s*(?:SELECT|WITH)\b", re.IGNORECASE)


def sql_text(sql: str) -> str:
    """Return *sql* with each clause on a line of its own; literals, quoted names and comments are unchanged."""
    inside: list[bool] = []
    """Whether each bracket that is open holds a query."""

    def line() -> str:
        return "\n" + "  " * min(inside.count(True), DEEPEST)

    def laid_out(found: re.Match[str]) -> str:
        kind = found.lastgroup
        if kind in ("query", "open"):
            inside.append(kind == "query")
        if kind == "query":
            return f"({line()}"
        if kind == "close":
            was_query = inside.pop() if inside else False
            return f"{line()})" if was_query else ")"
        if kind == "clause":
            return f"{line() if not inside or inside[-1] else ' '}{' '.join(found[kind].split())}"
        return " " if kind == "space" else found[0]

    return sql if len(sql) > LONGEST else _TOKEN.sub(laid_out, sql.strip())


def arguments_text(arguments: Mapping[str, Any]) -> list[tuple[str, str]] | None:
    """Return (name, text) of *arguments*, SQL formatted by `sql_text`; None without SQL among them."""
    if not any(isinstance(value, str) and _STATEMENT.match(value) for value in arguments.values()):
        return None
    return [
        (name, sql_text(value) if isinstance(value, str) and _STATEMENT.match(value) else str(value))
        for name, value in arguments.items()
    ]
