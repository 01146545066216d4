"""Pages of boards: the board itself, the runs behind its numbers, one run with its evidence, and two agents side by side.

Whoever reaches the server may read them. Of a run they show how it ended, its grades and the digest of its folder; its
answer and its steps lie in the folder, for whoever runs the platform.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any
from urllib.parse import quote, urlencode

from sqlalchemy import Connection, and_, select
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from opsassay.analysis.leaderboard.board import Leaderboard
from opsassay.analysis.leaderboard.entries import COSTS, Entry, LeaderboardRun
from opsassay.analysis.leaderboard.tables import overall
from opsassay.core.errors import NotFoundError, UserError
from opsassay.core.schema.metric_words import word
from opsassay.evals.runner.store import read_run
from opsassay.server.access import User
from opsassay.server.benchmarks import Platform
from opsassay.server.leaderboards import LeaderboardCache, TaskSetLeaderboard, self_reported
from opsassay.server.schema import BENCHMARKS, CELLS, EVENTS, RESULTS
from opsassay.server.showing import shown
from opsassay.server.task_sets import load_task_set, task_set_names
from opsassay.ui.compared import compared
from opsassay.ui.glossary import written
from opsassay.ui.leaderboards import board_view
from opsassay.ui.plain import plain, utc

ROWS = 100
"""Runs on a page."""
OUTCOMES = {"succeeded": "succeeded", "not": "did not succeed", "failed": "failed"}
FEW = 3


class LeaderboardPages:
    """The pages of the boards of *platform*."""

    def __init__(self, platform: Platform, boards: LeaderboardCache) -> None:
        self._platform, self._boards = platform, boards

    def overall(self, connection: Connection, user: User | None, _request: Request) -> Response:
        """Show what each solver was run on, over all boards."""
        table = overall(self._every(connection))
        rows = [[plain(str(cell), 120) if cell is not None else "" for cell in row] for row in table.rows]
        return shown(
            "platform_overall.html", "All boards", user, sets=table.columns[2:], rows=rows, note=table.note,
            answer=f"{len(rows)} solvers were run on {len(table.columns) - 2} task sets.",
        )  # fmt: skip

    def overall_json(self, connection: Connection, _user: User | None, _request: Request) -> Response:
        """Give it."""
        table = overall(self._every(connection))
        return JSONResponse({"items": [dict(zip(table.columns, row, strict=True)) for row in table.rows]})

    def _every(self, connection: Connection) -> dict[str, Leaderboard]:
        names = task_set_names(self._platform.state)
        return {name: self._boards.board(connection, name).board for name in names}

    def _asked(self, connection: Connection, request: Request) -> TaskSetLeaderboard:
        """Return the board that is asked for, of one level where the address says so."""
        return self._boards.board(connection, request.path_params["task_set"], request.query_params.get("level", ""))

    def board(self, connection: Connection, user: User | None, request: Request) -> Response:
        """Show the board of a task set."""
        name, level = request.path_params["task_set"], request.query_params.get("level", "")
        found = self._asked(connection, request)
        view = board_view(found.board)
        for row, made in zip(view["rows"], found.board.rows, strict=True):
            row["agents"] = "" if made.entry.baseline else _registered(found.agents.get(made.entry.name, ()))
        reports = [
            {
                "agent": plain(one["agent_name"], 100),
                "said": plain(", ".join(f"{k} {v:g}" for k, v in one["said"]["figures"].items()), 500),
                "source": plain(one["said"]["source"], 300),
                "when": utc(one["created_ns"]),
            }
            for one in self_reported(connection, name)
        ]
        solvers = [row.entry.name for row in found.board.rows]
        return shown(
            "platform_board.html", f"Board: {name}" + (f", {level} tasks" if level else ""), user, boards=[view],
            reports=reports, overall=[], page=f"/boards/{name}", solvers=solvers, levels=found.levels, of_level=level,
            level=f"&level={level}" if level else "",
            description=load_task_set(self._platform.state, name).description,
        )  # fmt: skip

    def board_json(self, connection: Connection, _user: User | None, request: Request) -> Response:
        """Give the board of a task set."""
        found = self._asked(connection, request)
        board, rows = found.board, []
        for row in board.rows:
            item = row.as_item() | {"agents": list(found.agents.get(row.entry.name, ()))}
            item["evidence"] = [{k: one[k] for k in ("run", "task")} for one in item["evidence"]]
            rows.append(item)
        return JSONResponse({"domain": board.domain, "tasks": board.tasks, "warnings": board.warnings, "items": rows})

    def runs(self, connection: Connection, user: User | None, request: Request) -> Response:
        """Show the runs behind the numbers of a board, by solver, task, system and outcome."""
        name = request.path_params["task_set"]
        view = _runs_view(self._asked(connection, request).board, request)
        return shown("platform_runs.html", f"Runs: {name}", user, page=f"/boards/{name}", view=view)

    def runs_json(self, connection: Connection, _user: User | None, request: Request) -> Response:
        """Give these runs."""
        view = _runs_view(self._asked(connection, request).board, request)
        return JSONResponse({"all": view["all"], "items": view["runs"]})

    def run(self, connection: Connection, user: User | None, request: Request) -> Response:
        """Show one run with its evidence."""
        name = request.path_params["task_set"]
        view = self._run_view(connection, request)
        return shown(
            "platform_run.html", f"{view['solver']} on {view['task']}", user, page=f"/boards/{name}", view=view
        )

    def run_json(self, connection: Connection, _user: User | None, request: Request) -> Response:
        """Give this run."""
        return JSONResponse(self._run_view(connection, request))

    def compare(self, connection: Connection, user: User | None, request: Request) -> Response:
        """Show two solvers on the tasks that both were run on."""
        name = request.path_params["task_set"]
        return shown(
            "platform_compare.html", f"Two agents: {name}", user, page=f"/boards/{name}",
            view=self._compared(connection, request),
        )  # fmt: skip

    def compare_json(self, connection: Connection, _user: User | None, request: Request) -> Response:
        """Give what tells them apart."""
        return JSONResponse(self._compared(connection, request))

    def _compared(self, connection: Connection, request: Request) -> dict[str, Any]:
        name = request.path_params["task_set"]
        board = self._asked(connection, request).board
        first, second = (_entry(board, request.query_params.get(key, "")) for key in ("one", "two"))
        page = f"/boards/{name}/tasks/"
        return compared(first, second, board.metrics, lambda task: page + quote(task, safe=""))

    def _run_view(self, connection: Connection, request: Request) -> dict[str, Any]:
        part = request.path_params
        where = f"runs/{part['cell']}/{part['attempt']}"
        joined = RESULTS.join(CELLS).join(BENCHMARKS)
        events = and_(EVENTS.c.kind == "result", EVENTS.c.subject == CELLS.c.id)
        query = select(RESULTS, EVENTS.c.seq, EVENTS.c.hash.label("event")).select_from(
            joined.outerjoin(EVENTS, events)
        )
        query = query.where(BENCHMARKS.c.task_set == part["task_set"], RESULTS.c.run == where).order_by(EVENTS.c.seq)
        row = connection.execute(query.limit(1)).mappings().first()
        if row is None:
            raise NotFoundError("run", f"{part['cell']}/{part['attempt']}", [])
        run = read_run(self._platform.store(part["task_set"]) / where)
        return {
            "run": f"{run.cell}/{run.attempt}",
            "task_page": f"/boards/{part['task_set']}/tasks/{quote(run.item, safe='')}",
            "solver": plain(run.solver.label, 120),
            "task": plain(run.item, 120),
            "status": run.status.value,
            "passed": row["passed"],
            "error": plain(run.error or "", 1000),
            "evidence": row["evidence"],
            "event": row["event"],
            "event_number": row["seq"],
            "not_ranked": [plain(why, 300) for why in row["not_ranked"]],
            "metrics": [
                {"name": plain(name.replace("_", " "), 60), "title": plain(word(name).title, 60), **metric,
                 "words": None if metric["value"] is None else written(metric["value"], word(name).unit),
                 "reason": plain(metric["reason"], 300)}
                for name, metric in row["metrics"].items()
            ],
            "facts": [
                ("solver", plain(run.solver.label, 120)), ("task", plain(run.item, 120)),
                ("system", plain(run.system, 60)), ("seed", str(run.seed)), ("arm", plain(run.arm, 60)),
                ("isolation", run.isolation.replace("_", " ")), ("began", utc(run.started_ns)),
                ("ended", utc(run.ended_ns)), ("limits", _words(run.limits)), ("limits hit", ", ".join(run.limits_hit)),
                ("spent", _words(run.spent)), ("versions", ", ".join(f"{k} {v}" for k, v in run.versions.items())),
            ],
        }  # fmt: skip


def _words(figures: dict[str, float]) -> str:
    some = ((name, value) for name, value in figures.items() if value)
    return ", ".join(f"{plain(name.replace('_', ' '), 40)} {value:.4g}" for name, value in some)


def _registered(names: Sequence[str]) -> str:
    """Return as what a solver is registered, a few names at most."""
    more = f" and {len(names) - FEW} more" if len(names) > FEW else ""
    return f"registered as {plain(', '.join(names[:FEW]), 300)}{more}" if names else ""


def _entry(board: Leaderboard, name: str) -> Entry:
    found = next((row.entry for row in board.rows if row.entry.name == name), None)
    if found is None:
        raise NotFoundError("solver", plain(name, 120), [row.entry.name for row in board.rows])
    return found


def _runs_view(board: Leaderboard, request: Request) -> dict[str, Any]:
    asked = {key: request.query_params.get(key, "") for key in ("solver", "task", "system", "outcome", "level")}
    if asked["outcome"] not in ("", *OUTCOMES):
        raise UserError(f"An outcome is one of {', '.join(OUTCOMES)}.")
    given = request.query_params.get("from", "0")
    start = int(given[:9]) if given.isascii() and given.isdigit() else 0
    found = [(name, run) for name, run in _every(board) if _is_asked(name, run, asked)]
    further = {key: value for key, value in asked.items() if value}
    return {
        "asked": {key: plain(value, 120) for key, value in asked.items()},
        "solvers": [row.entry.name for row in board.rows],
        "outcomes": OUTCOMES,
        "all": len(found),
        "first": start + 1,
        "runs": [_run_row(name, run) for name, run in found[start : start + ROWS]],
        "next": urlencode({**further, "from": start + ROWS}) if start + ROWS < len(found) else None,
        "previous": urlencode({**further, "from": max(0, start - ROWS)}) if start else None,
    }


def _every(board: Leaderboard) -> Iterator[tuple[str, LeaderboardRun]]:
    return ((row.entry.name, run) for row in board.rows for run in row.entry.runs)


def _is_asked(name: str, run: LeaderboardRun, asked: dict[str, str]) -> bool:
    fits = {"solver": name, "task": run.task[0], "system": run.system, "outcome": _outcome(run)}
    return all(not asked[key] or asked[key] == value for key, value in fits.items())


def _outcome(run: LeaderboardRun) -> str:
    return "failed" if run.failed else "succeeded" if run.succeeded else "not"


def _run_row(name: str, run: LeaderboardRun) -> dict[str, Any]:
    return {
        "run": plain(run.id, 80),
        "solver": plain(name, 120),
        "task": plain(run.task[0], 120),
        "system": plain(run.system, 60),
        "outcome": OUTCOMES[_outcome(run)],
        "ended": utc(run.ended_ns),
        "costs": [f"{cost:,.3g}" if (cost := run.cost(name)) else "–" for name in COSTS],
    }
