"""Pages of the tasks of a board: all of them, and one with what every solver made of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from opsassay.analysis.leaderboard.board import LeaderboardRow
from opsassay.analysis.leaderboard.entries import TaskKey
from opsassay.core.errors import NotFoundError
from opsassay.server.access import User
from opsassay.server.benchmarks import Platform
from opsassay.server.leaderboards import LeaderboardCache, TaskSetLeaderboard
from opsassay.server.showing import shown
from opsassay.server.task_info import read_head
from opsassay.ui.plain import plain


class TaskPages:
    """The pages of the tasks of *platform*."""

    def __init__(self, platform: Platform, boards: LeaderboardCache) -> None:
        self._platform, self._boards = platform, boards

    def tasks(self, connection: Connection, user: User | None, request: Request) -> Response:
        """Show the tasks of a board, and how many solvers each tells apart."""
        name = request.path_params["task_set"]
        view = _tasks_view(self._boards.board(connection, name))
        return shown("platform_tasks.html", f"Tasks: {name}", user, page=f"/boards/{name}", view=view)

    def tasks_json(self, connection: Connection, _user: User | None, request: Request) -> Response:
        """Give these tasks."""
        return JSONResponse(
            {"items": _tasks_view(self._boards.board(connection, request.path_params["task_set"]))["tasks"]}
        )

    def task(self, connection: Connection, user: User | None, request: Request) -> Response:
        """Show one task, and what every solver made of it."""
        name = request.path_params["task_set"]
        view = self._task_view(connection, request)
        if user is not None and user.role == "admin":
            view["facts"] += self._for_admins((request.path_params["task"], view["digest"]))
        return shown("platform_task.html", f"Task: {view['task']}", user, page=f"/boards/{name}", view=view)

    def task_json(self, connection: Connection, _user: User | None, request: Request) -> Response:
        """Give this task."""
        return JSONResponse(self._task_view(connection, request))

    def _for_admins(self, key: TaskKey) -> list[tuple[str, str]]:
        """Return what an agent may not hear of a task."""
        if (head := read_head(self._platform.state, key)) is None:
            return []
        complexity = "" if head.complexity is None else f"{head.complexity:.2f}"
        return [
            ("class (for admins)", plain(head.task_class or "", 120)), ("complexity (for admins)", complexity),
            ("description (for admins)", plain(head.description, 1000)),
        ]  # fmt: skip

    def _task_view(self, connection: Connection, request: Request) -> dict[str, Any]:
        found, name = self._boards.board(connection, request.path_params["task_set"]), request.path_params["task"]
        keys = sorted(key for key in found.level_of if key[0] == name)
        shown_keys = {task for row in found.board.rows for task in row.entry.scores}
        key = next((one for one in keys if one in shown_keys), None)
        if key is None:
            raise NotFoundError("task", plain(name, 120), sorted({one[0] for one in shown_keys}))
        rows = [_made_of(row, key) for row in found.board.rows if key in row.entry.scores]
        systems = sorted({run.system for row in found.board.rows for run in row.entry.runs if run.task == key})
        return {
            "task": plain(name, 120),
            "answer": _answer(name, found.board.rows, key),
            "digest": key[1],
            "forms": len(keys),
            "rows": rows,
            "facts": [("level", found.level_of[key] or "not known"), ("system", plain(", ".join(systems), 120))],
        }


def _answer(name: str, rows: Sequence[LeaderboardRow], key: TaskKey) -> str:
    of = [row.entry.scores[key] for row in rows if key in row.entry.scores]
    return f"{sum(value == 1.0 for value in of)} of {len(of)} solvers always succeed on {plain(name, 120)}."


def _made_of(row: LeaderboardRow, key: TaskKey) -> dict[str, Any]:
    runs = [run for run in row.entry.runs if run.task == key]
    kind = "baseline" if row.entry.baseline else "" if row.rank is not None else "not ranked"
    return {
        "solver": plain(row.entry.name, 120),
        "kind": kind,
        "succeeded": row.entry.scores[key],
        "runs": [run.id for run in runs],
        "failed": sum(run.failed for run in runs),
    }


def _tasks_view(found: TaskSetLeaderboard) -> dict[str, Any]:
    keys = sorted({task for row in found.board.rows for task in row.entry.scores})
    tasks = []
    for key in keys:
        of = [(row.entry.baseline, row.entry.scores[key]) for row in found.board.rows if key in row.entry.scores]
        agents = [score for baseline, score in of if not baseline]
        tasks.append({
            "task": plain(key[0], 120), "id": key[0], "level": found.level_of[key], "digest": key[1],
            "solvers": len(agents), "solved": sum(score == 1.0 for score in agents),
            "baselines": len(of) - len(agents), "by_baselines": sum(score == 1.0 for baseline, score in of if baseline),
        })  # fmt: skip
    unsolved = sum(not one["solved"] for one in tasks)
    return {"answer": f"{len(tasks)} tasks, {unsolved} of which no solver always solves.", "tasks": tasks}
