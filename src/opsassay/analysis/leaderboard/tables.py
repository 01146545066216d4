"""Leaderboards as tables, and a table of which domains each solver was run in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from opsassay.analysis.leaderboard.board import Leaderboard, LeaderboardRow
from opsassay.analysis.leaderboard.entries import COSTS
from opsassay.core.schema.metric_words import word
from opsassay.core.text import plural
from opsassay.evals.runner.tables import ResultTable
from opsassay.scoring.figures import MeanFigure


def board_tables(boards: Sequence[Leaderboard]) -> list[ResultTable]:
    """Return a table for each of *boards*, one by system where it has several, and `overall` for several boards."""
    tables = []
    for board in boards:
        tables.append(_main_table(board))
        systems = sorted({system for row in board.rows for system in row.systems})
        if len(systems) > 1:
            rows = tuple(
                (row.entry.name, *(_format_figure(row.systems.get(system)) for system in systems)) for row in board.rows
            )
            note = "Share of tasks that succeeded, with its interval of 95%, by system."
            tables.append(ResultTable(f"Leaderboard, {board.domain}, by system", ("solver", *systems), rows, note))
    if len(boards) > 1:
        tables.append(overall({board.domain: board for board in boards}))
    return tables


def _main_table(board: Leaderboard) -> ResultTable:
    """Return the table of *board*: a row per solver with rank, means, costs and remarks."""
    names = [definition.name for definition in board.metrics]
    columns = (
        "rank",
        "solver",
        word("succeeded").title,
        *(definition.title for definition in board.metrics),
        "runs",
        "failed",
        "tokens",
        "USD",
        "seconds",
        "last run",
        "remark",
    )
    rows = tuple(_format_cells(row, names) for row in board.rows)
    note = (
        f"{plural(board.tasks, 'task')}. Means over tasks with intervals of 95%; a rank is "
        "shared by whom nobody can tell apart, and has the interval of the ranks that are possible. Runs that failed count."
    )
    return ResultTable(f"Leaderboard, {board.domain}", columns, rows, note)


def _format_cells(row: LeaderboardRow, names: Sequence[str]) -> tuple[Any, ...]:
    """Return the row's cells in the order of the table's columns."""
    return (
        rank_text(row),
        row.entry.name,
        _format_figure(row.success),
        *(_format_figure(row.metrics.get(name)) for name in names),
        len(row.entry.runs),
        row.failed or None,
        *(_format_figure(row.spent.get(name)) for name in COSTS),
        datetime.fromtimestamp(row.last_ns / 1e9, UTC).strftime("%Y-%m-%d") if row.last_ns else None,
        "; ".join((*row.reasons, *(f"stale: {why}" for why in row.entry.stale))),
    )


def rank_text(row: LeaderboardRow) -> str:
    """Return the rank of *row* with its interval, a dash where it has none."""
    if row.rank is None or row.ranks is None:
        return "–"
    first, last = row.ranks
    return f"{row.rank}" if first == last else f"{row.rank} ({first}–{last})"


def _format_figure(figure: MeanFigure | None) -> str | None:
    """Return the mean with its interval as text; None for None."""
    return None if figure is None else figure.text


def overall(boards: Mapping[str, Leaderboard]) -> ResultTable:
    """Return the table of which tasks each solver was run on, with a column for each of *boards*."""
    solvers = sorted({row.entry.name for board in boards.values() for row in board.rows if not row.entry.baseline})
    of = {(name, row.entry.name): row for name, board in boards.items() for row in board.rows}
    covered = {solver: sum((name, solver) in of for name in boards) for solver in solvers}
    solvers.sort(key=lambda solver: (-covered[solver], solver))
    rows = [
        (
            solver,
            covered[solver],
            *(_describe_coverage(board, of.get((name, solver))) for name, board in boards.items()),
        )
        for solver in solvers
    ]
    note = "What each solver was run on; successes are not added up over leaderboards, whose tasks are not of one kind."
    return ResultTable("Leaderboard, overall", ("solver", "boards", *boards), tuple(rows), note)


def _describe_coverage(board: Leaderboard, row: LeaderboardRow | None) -> str | None:
    """Return for example "80% on 9 of 10 tasks"; None without a success rate."""
    if row is None or row.success is None:
        return None
    return f"{_format_figure(row.success)} on {row.success.n} of {plural(board.tasks, 'task')}"
