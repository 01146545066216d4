"""Tables of results, of whatever domain, and a page of them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from opsassay.outside import shown


@dataclass(frozen=True)
class ResultTable:
    """One table: *note* says in a sentence what its figures are, *number* is its number in a paper.

    *statistics* are tests by name, None where there is nothing to test.
    """

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]
    note: str = ""
    number: int | None = None
    statistics: dict[str, Any] = field(default_factory=dict)


def markdown(title: str, lines: Iterable[str], tables: Iterable[ResultTable]) -> str:
    """Return a page of *tables* under *title*, with *lines* before them."""
    parts = [f"# {title}", *lines]
    for table in tables:
        head = [_line(table.columns), _line(("---",) * len(table.columns))]
        parts += [f"## {table.title}", table.note, "\n".join([*head, *map(_line, table.rows)])]
    return "\n\n".join(parts) + "\n"


def _line(cells: Iterable[Any]) -> str:
    return "| " + " | ".join(" ".join(shown(str(cell)).split()).replace("|", "\\|") for cell in cells) + " |"
