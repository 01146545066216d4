"""The page of leaderboards, one HTML file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from opsassay.analysis.leaderboard.board import Leaderboard, LeaderboardRow
from opsassay.analysis.leaderboard.entries import COSTS
from opsassay.analysis.leaderboard.tables import board_tables, rank_text
from opsassay.core.text import plural
from opsassay.evals.runner.ranking import ORACLE
from opsassay.scoring.figures import MeanFigure, percent
from opsassay.ui.page import render, write_whole
from opsassay.ui.plain import plain, utc


def write_boards(boards: Sequence[Leaderboard], out: Path) -> Path:
    """Write the page of *boards* to *out*; raises OperationError."""
    return write_whole(out, boards_page(boards))


def boards_page(boards: Sequence[Leaderboard]) -> str:
    """Return the page of *boards* as HTML."""
    tables = [table for table in board_tables(boards) if table.title == "Leaderboard, overall"]
    view = {"boards": [board_view(board) for board in boards], "overall": tables}
    return render("boards.html", "Leaderboards", ["board"], view=view)


def board_view(board: Leaderboard) -> dict[str, Any]:
    """Return *board* as template data."""
    systems = sorted({system for row in board.rows for system in row.systems})
    systems = systems if len(systems) > 1 else []  # of one system, its column would say what the first one does
    metrics = [m for m in board.metrics if any(m.name in row.metrics for row in board.rows)]
    costs = [name for name in COSTS if any(name in row.spent for row in board.rows)]
    rows = [_row_view(row, board.tasks, [m.name for m in metrics], systems, costs) for row in board.rows]
    return {
        "domain": board.domain,
        "tasks": board.tasks,
        "metrics": [plain(m.title, 60) for m in metrics],
        "costs": [f"{'USD' if name == 'usd' else name} per run" for name in costs],
        "systems": [plain(system, 60) for system in systems],
        "rows": rows,
        "band": band_of([row for row in rows if row["kind"] == "baseline"], "solver"),
        "warnings": [plain(warning, 500) for warning in board.warnings],
        "answer": board_answer(board),
    }


def board_answer(board: Leaderboard) -> str:
    """Return the headline of *board*: which solvers rank first, or that none is ranked."""
    first = [row.entry.name for row in board.rows if row.rank == 1]
    if not first:
        return f"No solver is ranked on {plural(board.tasks, 'task')}{_why_none_ranked(board)}"
    who = plain(" and ".join(first), 300)
    alone = "stands first" if len(first) == 1 else "share the first rank: these tasks do not tell them apart"
    return f"{who} {alone}, on {plural(board.tasks, 'task')}."


def _why_none_ranked(board: Leaderboard) -> str:
    """Return the end of a sentence: the best unranked solver and what it lacks."""
    graded = [row for row in board.rows if row.success is not None]
    near = next((row for row in graded if not row.entry.baseline and not row.entry.name.startswith(ORACLE)), None)
    if near is None or near.success is None:
        return ": only oracles and baselines are graded on them." if graded else ": no solver is graded on them."
    reason = f" {near.reasons[0]}" if near.reasons else ""
    return f"; {plain(near.entry.name, 120)} succeeded on {percent(near.success.value)}:{plain(reason, 300)}."


def _row_view(
    row: LeaderboardRow, tasks: int, metrics: Sequence[str], systems: Sequence[str], costs: Sequence[str]
) -> dict[str, Any]:
    """Return *row* as template data, its figures by *metrics*, *systems* and *costs*; *tasks* is the board's number."""
    return {
        "rank": rank_text(row),
        "solver": plain(row.entry.name, 120),
        "agents": "",
        "kind": "baseline" if row.entry.baseline else "" if row.rank is not None else "not ranked",
        "success": _figure_text(row.success, tasks),
        "bar": bar_of_share(row.success),
        "metrics": [_figure_text(row.metrics.get(name), tasks) for name in metrics],
        "systems": [_figure_text(row.systems.get(system), 0) for system in systems],
        "runs": len(row.entry.runs),
        "failed": row.failed,
        "costs": [cost and cost.text for cost in (row.spent.get(name) for name in costs)],
        "last": utc(row.last_ns) if row.last_ns else "–",
        "reasons": [plain(why, 300) for why in row.reasons],
        "stale": [plain(why, 300) for why in row.entry.stale],
        "beats": plain(", ".join(row.beats), 500),
        "evidence": [{"run": plain(run.id, 80), "task": plain(run.task[0], 80)} for run in row.entry.runs],
    }


def _figure_text(figure: MeanFigure | None, tasks: int) -> dict[str, Any] | None:
    """Return *figure* as template data, noting its number of tasks if below *tasks*; None without one."""
    if figure is None:
        return None
    return {"text": figure.text, "tasks": figure.n, "fewer": f"of {figure.n}" if figure.n < tasks else ""}


def bar_of_share(figure: MeanFigure | None) -> dict[str, Any] | None:
    """Return {"low", "value", "high"} of a share and its interval, in percent; None without a share."""
    if figure is None:
        return None
    low, high = (
        figure.low if figure.low is not None else figure.value,
        figure.high if figure.high is not None else figure.value,
    )
    return {name: round(100 * at, 1) for name, at in (("low", low), ("value", figure.value), ("high", high))}


def band_of(references: Sequence[Mapping[str, Any]], name: str) -> dict[str, Any] | None:
    """Return the interval of the best of *references* (rows with a ``bar``) and its field *name*; None without one."""
    best = max((one for one in references if one["bar"]), key=lambda one: float(one["bar"]["value"]), default=None)
    if best is None:
        return None
    low, high = best["bar"]["low"], best["bar"]["high"]
    return {"name": best[name], "low": low, "width": round(high - low, 1)}
