"""The matrix task by solver of a domain, each repeat a link, and its solvers by rank with intervals."""

from __future__ import annotations

from collections.abc import Sequence

from opsassay.analysis.leaderboard.board import LeaderboardRow
from opsassay.analysis.leaderboard.entries import COSTS
from opsassay.analysis.leaderboard.tables import rank_text
from opsassay.core.errors import OpsAssayError
from opsassay.core.text import plural
from opsassay.evals.runner.ranking import ORACLE
from opsassay.ui.browsing.catalogue import StoredRun
from opsassay.ui.browsing.rows import (
    Shown,
    View,
    audit_page,
    board_page,
    outcome_of,
    page_of,
    run_page,
    solver_page,
    task_page,
    trials_page,
)
from opsassay.ui.browsing.stored_incidents import task_name
from opsassay.ui.leaderboards import band_of, bar_of_share, board_answer
from opsassay.ui.plain import plain

MOST_SOLVERS = 24
"""Most columns of the matrix; further solvers are linked below it."""
MOST_REPEATS = 10
MOST_RUNS, FIRST_TASKS = 2_000, 12
"""Most runs of a domain whose matrix is on the first page, and the number of tasks that it shows there."""
UPRIGHT = 8
"""Most columns for which headings are horizontal; above, they are vertical."""
MARKS = {
    "succeeded": "✓",
    "did not succeed": "✗",
    "runs now": "▸",
    "not graded": "·",
    "not applicable": "–",
    "no result": "!",
}


def trials_view(state: Shown, domain: str, number: int) -> View:
    """Return the page data of the matrix tasks x solvers of *domain*, with page *number* of its tasks."""
    solvers, costs, said, problem = _solver_columns(state, domain)
    columns, over = solvers[:MOST_SOLVERS], solvers[MOST_SOLVERS:]
    tasks = sorted(task for of, task in state.catalogue.by_task if of == domain)
    chosen, paging = page_of(tasks, number, trials_page(domain))
    return {
        "answer": f"{said} {plural(len(solvers), 'solver')} on {plural(len(tasks), 'task')}.",
        "name": plain(domain, 60),
        "board": board_page(domain),
        "audit": audit_page(domain),
        "solvers": [_solver_row(one) for one in columns],
        "costs": [f"{'USD' if name == 'usd' else name} a run" for name in costs],
        "band": band_of([one for one in columns if one["reference"]], "name"),
        "upright": len(columns) <= UPRIGHT,
        "solvers_more": [_solver_row(one) for one in over],
        "problem": problem,
        "rows": [_task_row(state, domain, task, columns) for task in chosen],
        "paging": paging,
    }


def first_trials(state: Shown, domain: str) -> View | None:
    """Return the first tasks of the matrix of *domain*; None when the domain has too many runs."""
    if len(state.catalogue.domains[domain]) > MOST_RUNS:
        return None
    view = trials_view(state, domain, 1)
    return {**view, "rows": view["rows"][:FIRST_TASKS]}


def _solver_columns(state: Shown, domain: str) -> tuple[list[View], list[str], str, str]:
    """Return (solvers of *domain*, ranked first and baselines last; cost names; headline; problem)."""
    rows: dict[str, LeaderboardRow] = {}
    said, problem = "No solver has a rank.", ""
    try:
        board = state.verdicts.standing(state.catalogue, domain).board
        rows, said = {row.entry.name: row for row in board.rows}, board_answer(board)
    except OpsAssayError as error:
        problem = plain(str(error), 600)
    costs = [name for name in COSTS if any(name in row.spent for row in rows.values())]
    found = []
    for (of, name), runs in state.catalogue.by_solver.items():
        if of == domain:
            row = rows.get(name)
            success = row.success if row else None
            reference = runs[0].run.solver.name.startswith(ORACLE) or bool(row and row.entry.baseline)
            found.append({
                "key": name, "name": plain(name, 120), "page": solver_page(domain, name), "runs": len(runs),
                "rank": rank_text(row) if row and row.rank is not None and not reference else "",
                "order": row.rank if row and row.rank is not None else 10**6, "reference": reference,
                "bar": bar_of_share(success), "costs": _format_costs(row, costs),
                "success": success.text if success else "–", "behind": -success.value if success else 1.0,
            })  # fmt: skip
    found.sort(key=lambda one: (one["reference"], one["order"], one["behind"], one["name"]))
    return found, costs, said, problem


def _format_costs(row: LeaderboardRow | None, names: Sequence[str]) -> list[str]:
    """Return the mean costs *names* of a solver's leaderboard *row* as text, '' for unknown ones."""
    spent = row.spent if row else {}
    return [spent[name].text if name in spent else "" for name in names]


def _solver_row(solver: View) -> View:
    """Return *solver* without the keys that it is sorted by."""
    return {name: value for name, value in solver.items() if name not in ("key", "order", "behind")}


def _task_row(state: Shown, domain: str, task: str, solvers: Sequence[View]) -> View:
    """Return the matrix row of *task* of *domain*: a cell for each of *solvers* (page data), with its runs."""
    runs = state.catalogue.by_both
    return {
        "task": plain(task, 120),
        "name": task_name(state, domain, task),
        "page": task_page(domain, task),
        "cells": [_cell_of_runs(state, runs.get((domain, task, solver["key"]), ())) for solver in solvers],
    }


def _cell_of_runs(state: Shown, runs: Sequence[StoredRun]) -> View:
    """Return a matrix cell: a mark per run, at most `MOST_REPEATS`, and the number of further runs."""
    repeats = sorted(runs, key=lambda one: (one.run.seed, one.run.arm, one.run.attempt))
    return {
        "runs": [
            {
                "page": run_page(one),
                "outcome": (outcome := outcome_of(state, one)),
                "mark": MARKS[outcome],
                "words": f"seed {one.run.seed}, {plain(one.run.arm, 60)}, attempt {one.run.attempt}: {outcome}",
            }
            for one in repeats[:MOST_REPEATS]
        ],
        "more": max(0, len(runs) - MOST_REPEATS),
    }
