"""Pages of agents for whom they belong to: all of one's own, and one with its benchmarks and where it stands."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection, select
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from opsassay.analysis.leaderboard.tables import rank_text
from opsassay.core.text import counted
from opsassay.evals.runner.domain import DOMAINS
from opsassay.server.access import User
from opsassay.server.agents import LEVELS, agent_of
from opsassay.server.benchmarks import Platform, cell_counts
from opsassay.server.leaderboards import LeaderboardCache
from opsassay.server.schema import AGENTS, BENCHMARKS
from opsassay.server.showing import shown
from opsassay.server.task_sets import load_task_set, task_set_names
from opsassay.ui.plain import plain, utc


class AgentPages:
    """The pages of the agents of *platform*."""

    def __init__(self, platform: Platform, boards: LeaderboardCache) -> None:
        self._platform, self._boards = platform, boards

    def agents(self, connection: Connection, user: User | None, _request: Request) -> Response:
        """Show the agents of *user*, with forms to register one and to ask for a benchmark."""
        if user is None:
            return RedirectResponse("/login", status_code=303)
        rows = connection.execute(select(AGENTS).order_by(AGENTS.c.name)).mappings().all()
        mine = [dict(row) for row in rows if user.owns(row["owner_id"])]
        asked = self._benchmarks(connection, [row["id"] for row in mine])
        agents = [{**_facts(row), "task_sets": self._task_sets(row["domains"]), "benchmarks": asked.get(row["id"], [])}
                  for row in mine]  # fmt: skip
        answer = f"{counted(len(mine), 'agent')}, {counted(sum(map(len, asked.values())), 'benchmark')}."
        return shown(
            "platform_agents.html", "Your agents", user, answer=answer, agents=agents, domains=DOMAINS.names(),
            levels=LEVELS,
        )  # fmt: skip

    def agent(self, connection: Connection, user: User | None, request: Request) -> Response:
        """Show one agent of *user*."""
        if user is None:
            return RedirectResponse("/login", status_code=303)
        row = agent_of(connection, user, request.path_params["agent"])
        benchmarks = self._benchmarks(connection, [row["id"]]).get(row["id"], [])
        view = {**_facts(row), "task_sets": self._task_sets(row["domains"]), "benchmarks": benchmarks}
        sets = dict.fromkeys(one["task_set"] for one in benchmarks if one["task_set"] in view["task_sets"])
        standings = [self._standing(connection, name, row["name"]) for name in sets]
        return shown("platform_agent.html", view["name"], user, agent=view, standings=[one for one in standings if one])

    def _task_sets(self, domains: list[str]) -> list[str]:
        state = self._platform.state
        return [name for name in task_set_names(state) if load_task_set(state, name).domain in domains]

    def _benchmarks(self, connection: Connection, agents: list[str]) -> dict[str, list[dict[str, Any]]]:
        """Return the benchmarks of *agents*, the latest first."""
        query = select(BENCHMARKS).where(BENCHMARKS.c.agent_id.in_(agents)).order_by(BENCHMARKS.c.created_ns.desc())
        rows = connection.execute(query).mappings().all()
        counts, found = cell_counts(connection, [row["id"] for row in rows]), dict[str, list[dict[str, Any]]]()
        for row in rows:
            one = {"id": row["id"], "task_set": row["task_set"], "state": row["state"], "when": utc(row["created_ns"])}
            found.setdefault(row["agent_id"], []).append(one | counts[row["id"]])
        return found

    def _standing(self, connection: Connection, task_set: str, agent: str) -> dict[str, Any] | None:
        """Return where an agent stands on a board, None where it is not on it."""
        found = self._boards.board(connection, task_set)
        solver = next((solver for solver, names in found.agents.items() if agent in names), None)
        row = next((row for row in found.board.rows if row.entry.name == solver), None)
        if row is None or row.success is None:
            return None
        return {
            "task_set": task_set,
            "solver": plain(row.entry.name, 120),
            "rank": rank_text(row),
            "success": row.success.text,
            "tasks": f"{row.success.n} of {found.board.tasks}",
            "reasons": [plain(why, 300) for why in row.reasons],
        }


def _facts(row: Any) -> dict[str, Any]:
    return {
        "id": row["id"],
        "name": plain(row["name"], 100),
        "kind": row["kind"].replace("_", " "),
        "level": row["level"],
        "domains": ", ".join(row["domains"]),
        "since": utc(row["created_ns"]),
        "source": plain(row["source"], 200),
    }
