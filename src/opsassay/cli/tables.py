"""Tables as text: as a grid, as a compact table, or stacked row by row, the first that fits without broken words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich import box
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from opsassay.core.untrusted import safe_text

Rows = Sequence[Sequence[str]]
_GRID = {"box": box.HEAVY_HEAD}
_CLOSE = {"box": box.SIMPLE_HEAD, "pad_edge": False, "show_edge": False, "padding": (0, 1, 0, 0)}
_INDENT = "  "


def print_rows(console: Console, title: str, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """Print a table no wider than *console*, with words whole; rows are stacked as "column: value" if they do not fit."""
    heads = [safe_text(column) for column in columns]
    cells = [["-" if value is None else safe_text(str(value)) for value in row] for row in rows]
    console.print(Text(safe_text(title), style="italic"), soft_wrap=True)
    for style, borders in ((_GRID, 3 * len(heads) + 1), (_CLOSE, 2 * len(heads) - 2)):
        if (widths := column_widths(heads, cells, console.width - borders)) is not None:
            console.print(_build_grid(heads, cells, widths, style))
            return
    _print_stacked(console, heads, cells)


def column_widths(headings: Sequence[str], cells: Rows, total: int) -> list[int] | None:
    """Return column widths, at most *total* terminal cells together, that break no word; None if that is impossible."""
    columns = list(zip(headings, *cells, strict=True))
    widths = [max(map(_measure_longest_word, column)) for column in columns]
    natural = [max(cell_len(line) for text in column for line in text.splitlines() or [""]) for column in columns]
    spare = total - sum(widths)
    if spare < 0:
        return None
    for _ in range(min(spare, sum(natural) - sum(widths))):
        lacking = max(range(len(widths)), key=lambda i: natural[i] - widths[i])
        widths[lacking] += 1
    return widths


def _measure_longest_word(text: str) -> int:
    """Return the width of the longest word of *text* in terminal cells, at least 1."""
    return max(map(cell_len, text.split()), default=1)


def wrapped(text: str, width: int) -> list[str]:
    """Split *text* into lines of at most *width* terminal cells between words; a longer word gets its own line."""
    lines: list[str] = []
    for given in text.splitlines():
        line = ""
        for word in given.split():
            if line and cell_len(line) + 1 + cell_len(word) > width:
                lines.append(line)
                line = word
            else:
                line = f"{line} {word}" if line else word
        lines.append(line)
    return lines or [""]


def _build_grid(heads: Sequence[str], cells: Rows, widths: Sequence[int], style: dict[str, Any]) -> Table:
    """Return a rich table of *heads* and *cells*, each text wrapped to its column's width in terminal cells."""
    table = Table(header_style="bold", **style)
    lines = [
        ["\n".join(wrapped(text, width)) for text, width in zip(row, widths, strict=True)] for row in (heads, *cells)
    ]
    for head, width in zip(lines[0], widths, strict=True):
        table.add_column(Text(head), width=width, no_wrap=True, overflow="ignore")
    for row in lines[1:]:
        table.add_row(*map(Text, row))
    return table


def _print_stacked(console: Console, heads: Sequence[str], cells: Rows) -> None:
    """Print each row as a block of lines "column: value", for tables that are too wide."""
    margin = max(map(cell_len, heads)) + 2 * len(_INDENT)
    for number, row in enumerate(cells):
        if number:
            console.print()
        for head, value in zip(heads, row, strict=True):
            name = Text(f"{_INDENT}{head:<{margin - len(_INDENT)}}", style="bold")
            for line in wrapped(value, console.width - margin):
                console.print(name + Text(line), soft_wrap=True)
                name = Text(" " * margin)
