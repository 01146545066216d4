"""Pages of boards: the board itself, the runs behind its numbers, one run with its evidence, and two agents side by side.

Whoever reaches the server may read them. Of a run they show how it ended, its grades and the digest of its folder; its
answer and its steps lie in the folder, for whoever runs the platform.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from urllib.parse import urlencode

from sqlalchemy import Connection, and_, select
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from opsassay.bench.core.store import read_run
from opsassay.boards.board import Board
from opsassay.boards.entries import BoardRun, Entry
from opsassay.errors import NotFoundError, UserError
from opsassay.server.access import User
from opsassay.server.benchmarks import Platform
from opsassay.server.platform_boards import BoardShelf, self_reported
from opsassay.server.schema import BENCHMARKS, CELLS, EVENTS, RESULTS
from opsassay.server.showing import shown
from opsassay.web.boards import board_view
from opsassay.web.compared import compared
from opsassay.web.plain import plain, utc

ROWS = 100
"""Runs on a page."""
OUTCOMES = ("succeeded", "not", "failed")


class BoardPages:
    """The pages of the boards of *platform*."""

    def __init__(self, platform: Platform) -> None:
        self._platform, self._boards = platform, BoardShelf(platform)

    def board(self, connection: Connection, user: User | None, request: Request) -> Response:
        """Show the board of a task set."""
        name = request.path_params["task_set"]
        board = self._boards.board(connection, name)
        reports = [
            {
                "agent": plain(one["agent_name"], 100),
                "said": plain(", ".join(f"{k} {v:g}" for k, v in one["said"]["figures"].items()), 500),
                "source": plain(one["said"]["source"], 300),
                "when": utc(one["created_ns"]),
            }
            for one in self_reported(connection, name)
        ]
        solvers = [row.entry.name for row in board.rows]
        return shown(
            "platform_board.html", f"Board: {name}", user, boards=[board_view(board)], reports=reports, overall=[],
            page=f"/boards/{name}", solvers=solvers,
        )  # fmt: skip

    def board_json(self, connection: Connection, _user: User | None, request: Request) -> Response:
        """Give the board of a task set."""
        board = self._boards.board(connection, request.path_params["task_set"])
        rows = []
        for row in board.rows:
            item = row.as_item()
            item["evidence"] = [{k: one[k] for k in ("run", "task")} for one in item["evidence"]]
            rows.append(item)
        return JSONResponse({"domain": board.domain, "tasks": board.tasks, "warnings": board.warnings, "items": rows})

    def runs(self, connection: Connection, user: User | None, request: Request) -> Response:
        """Show the runs behind the numbers of a board, by solver, task, system and outcome."""
        name = request.path_params["task_set"]
        view = _runs_view(self._boards.board(connection, name), request)
        return shown("platform_runs.html", f"Runs: {name}", user, page=f"/boards/{name}", view=view)

    def runs_json(self, connection: Connection, _user: User | None, request: Request) -> Response:
        """Give these runs."""
        view = _runs_view(self._boards.board(connection, request.path_params["task_set"]), request)
        return JSONResponse({"all": view["all"], "items": view["runs"]})

    def run(self, connection: Connection, user: User | None, request: Request) -> Response:
        """Show one run with its evidence."""
        name = request.path_params["task_set"]
        view = self._run_view(connection, request)
        return shown("platform_run.html", f"Run {view['run']}", user, page=f"/boards/{name}", view=view)

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
        board = self._boards.board(connection, name)
        first, second = (_entry(board, request.query_params.get(key, "")) for key in ("one", "two"))
        page = f"/boards/{name}/runs?"
        return compared(first, second, board.metrics, lambda task: page + urlencode({"task": task}))

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
                {"name": plain(name.replace("_", " "), 60), **metric, "reason": plain(metric["reason"], 300)}
                for name, metric in row["metrics"].items()
            ],
            "facts": [
                ("system", plain(run.system, 60)), ("seed", str(run.seed)), ("arm", plain(run.arm, 60)),
                ("isolation", run.isolation.replace("_", " ")), ("began", utc(run.started_ns)),
                ("ended", utc(run.ended_ns)), ("limits", _words(run.limits)), ("limits hit", ", ".join(run.limits_hit)),
                ("spent", _words(run.spent)), ("versions", ", ".join(f"{k} {v}" for k, v in run.versions.items())),
            ],
        }  # fmt: skip


def _words(figures: dict[str, float]) -> str:
    return ", ".join(f"{plain(name.replace('_', ' '), 40)} {value:.4g}" for name, value in figures.items())


def _entry(board: Board, name: str) -> Entry:
    found = next((row.entry for row in board.rows if row.entry.name == name), None)
    if found is None:
        raise NotFoundError("solver", plain(name, 120), [row.entry.name for row in board.rows])
    return found


def _runs_view(board: Board, request: Request) -> dict[str, Any]:
    asked = {key: request.query_params.get(key, "") for key in ("solver", "task", "system", "outcome")}
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


def _every(board: Board) -> Iterator[tuple[str, BoardRun]]:
    return ((row.entry.name, run) for row in board.rows for run in row.entry.runs)


def _is_asked(name: str, run: BoardRun, asked: dict[str, str]) -> bool:
    fits = {"solver": name, "task": run.task[0], "system": run.system, "outcome": _outcome(run)}
    return all(not value or fits[key] == value for key, value in asked.items())


def _outcome(run: BoardRun) -> str:
    return "failed" if run.failed else "succeeded" if run.succeeded else "not"


def _run_row(name: str, run: BoardRun) -> dict[str, Any]:
    return {
        "run": plain(run.id, 80),
        "solver": plain(name, 120),
        "task": plain(run.task[0], 120),
        "system": plain(run.system, 60),
        "outcome": _outcome(run),
        "ended": utc(run.ended_ns),
        "spent": _words(dict(run.spent)),
    }
