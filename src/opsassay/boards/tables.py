"""Boards as tables, and the overall of what each solver was run on."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from opsassay.bench.core.tables import ResultTable
from opsassay.boards.board import Board, BoardFigure, BoardRow


def board_tables(boards: Sequence[Board]) -> list[ResultTable]:
    """Return the table of each of *boards*, its systems where there are several, and the overall of coverage."""
    tables = []
    for board in boards:
        tables.append(_main(board))
        systems = sorted({system for row in board.rows for system in row.systems})
        if len(systems) > 1:
            rows = tuple(
                (row.entry.name, *(_cell(row.systems.get(system)) for system in systems)) for row in board.rows
            )
            note = "Share of tasks that succeeded, by system."
            tables.append(ResultTable(f"Board, {board.domain}, by system", ("solver", *systems), rows, note))
    if len(boards) > 1:
        tables.append(_overall(boards))
    return tables


def _main(board: Board) -> ResultTable:
    names = [definition.name for definition in board.metrics]
    columns = ("rank", "solver", "succeeded", *names, "runs", "failed", "tokens", "USD", "last run", "remark")
    rows = tuple(_cells(row, names) for row in board.rows)
    note = (
        f"{board.tasks} tasks. Means over tasks with intervals of 95% by a bootstrap over tasks; a rank is shared by whom "
        "nobody can tell apart, and has the interval of the ranks that are possible. Runs that failed count."
    )
    return ResultTable(f"Board, {board.domain}", columns, rows, note)


def _cells(row: BoardRow, names: Sequence[str]) -> tuple[Any, ...]:
    tokens = sum(row.spent.get(name, 0.0) for name in ("input_tokens", "output_tokens")) or row.spent.get("tokens")
    usd = row.spent.get("usd") or row.spent.get("money_usd")
    return (
        rank_text(row),
        row.entry.name,
        _cell(row.success),
        *(_cell(row.metrics.get(name)) for name in names),
        len(row.entry.runs),
        row.failed or None,
        f"{tokens:.0f}" if tokens else None,
        f"{usd:.3f}" if usd else None,
        datetime.fromtimestamp(row.last_ns / 1e9, UTC).strftime("%Y-%m-%d") if row.last_ns else None,
        "; ".join((*row.reasons, *(f"stale: {why}" for why in row.entry.stale))),
    )


def rank_text(row: BoardRow) -> str:
    """Return the rank of *row* with its interval, a dash where it has none."""
    if row.rank is None or row.ranks is None:
        return "–"
    first, last = row.ranks
    return f"{row.rank}" if first == last else f"{row.rank} ({first}–{last})"


def _cell(figure: BoardFigure | None) -> str | None:
    return None if figure is None else f"{figure.value:.2f} [{figure.low:.2f}, {figure.high:.2f}]"


def _overall(boards: Sequence[Board]) -> ResultTable:
    solvers = sorted({row.entry.name for board in boards for row in board.rows if not row.entry.baseline})
    of = {(board.domain, row.entry.name): row for board in boards for row in board.rows}
    domains = {name: sum((board.domain, name) in of for board in boards) for name in solvers}
    solvers.sort(key=lambda name: (-domains[name], name))
    rows = [(name, domains[name], *(_covered(board, name, of) for board in boards)) for name in solvers]
    note = (
        "Which domains a solver was run in; successes are not added up over domains, whose tasks are not of one kind."
    )
    columns = ("solver", "domains", *(board.domain for board in boards))
    return ResultTable("Board, overall", columns, tuple(rows), note)


def _covered(board: Board, name: str, of: dict[tuple[str, str], BoardRow]) -> str | None:
    row = of.get((board.domain, name))
    if row is None or row.success is None:
        return None
    return f"{row.success.value:.2f} on {row.success.tasks} of {board.tasks} tasks"
