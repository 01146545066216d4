"""Result tables of any domain, and their Markdown page."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from opsassay.core.untrusted import safe_text
from opsassay.scoring.figures import percent

__all__ = ["ResultTable", "markdown", "percent"]


@dataclass(frozen=True)
class ResultTable:
    """One table; *note* explains its figures in a sentence, *number* is its number in a paper.

    *statistics*: tests by name, None where there is nothing to test. *keys*: names of the columns in JSON where they
    differ from the headings.
    """

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]
    note: str = ""
    number: int | None = None
    statistics: dict[str, Any] = field(default_factory=dict)
    keys: tuple[str, ...] = ()

    def as_item(self) -> dict[str, Any]:
        """Return the table as JSON-ready data: each row a dict by column name."""
        rows = [dict(zip(self.keys or self.columns, row, strict=True)) for row in self.rows]
        return {"table": self.number, "title": self.title, "statistics": self.statistics, "rows": rows}

    def filled(self) -> ResultTable:
        """Return a copy without the columns that are None or "" in every row."""
        kept = [
            i for i in range(len(self.columns)) if not self.rows or any(row[i] not in (None, "") for row in self.rows)
        ]
        rows = tuple(tuple(row[i] for i in kept) for row in self.rows)
        return replace(
            self,
            columns=tuple(self.columns[i] for i in kept),
            rows=rows,
            keys=tuple(self.keys[i] for i in kept if self.keys),
        )


def markdown(title: str, lines: Iterable[str], tables: Iterable[ResultTable]) -> str:
    """Return a Markdown page: heading *title*, paragraphs *lines*, then *tables*."""
    parts = [f"# {title}", *lines]
    for table in tables:
        head = [_format_line(table.columns), _format_line(("---",) * len(table.columns))]
        parts += [f"## {table.title}", table.note, "\n".join([*head, *map(_format_line, table.rows)])]
    return "\n\n".join(parts) + "\n"


def _format_line(cells: Iterable[Any]) -> str:
    """Return *cells* as a row of a Markdown table."""
    return "| " + " | ".join(" ".join(safe_text(str(cell)).split()).replace("|", "\\|") for cell in cells) + " |"
