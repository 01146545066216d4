"""Pages for signed-in users: their agents and benchmarks; for admins also the users of the platform."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from opsassay.analysis.leaderboard.tables import rank_text
from opsassay.core.text import plural
from opsassay.evals.runner.domain import DOMAINS
from opsassay.ui.plain import plain, utc
from opsassay.ui.platform.cell_words import AGENT_WORDS, BENCHMARK_WORDS, BUNDLE_WORDS, why_not
from opsassay.ui.platform.data import PlatformRequest, Visitor

View = dict[str, Any]
SHOWN_CELLS, SHOWN_BENCHMARKS = 500, 100
ANONYMOUS = "Owners with a token register agents and ask for benchmarks; leaderboards are for everybody."


def login_view(request: PlatformRequest, *, wrong: bool = False) -> View:
    """Return the page data of the sign-in page; *wrong* adds a message that the token is unknown."""
    signed_in = (
        request.visitor and f"You are signed in as {plain(request.visitor.name, 80)}; another token takes its place."
    )
    return {"title": "Sign in", "answer": signed_in or ANONYMOUS, "wrong": wrong}


def agents_view(request: PlatformRequest) -> View:
    """Return the page data of the user's agents, with the choices of its forms."""
    rows = request.data.agents(_require_visitor(request))
    agents = _agent_items(request, rows)
    benchmarks = sum(len(one["benchmarks"]) for one in agents)
    return {
        "title": "Your agents",
        "answer": f"{plural(len(agents), 'agent')}, {plural(benchmarks, 'benchmark')}.",
        "agents": agents,
        "domains": DOMAINS.names(),
        "levels": request.access.levels,
    }


def agent_view(request: PlatformRequest) -> View:
    """Return the page data of the agent that the path of *request* names: its benchmarks and leaderboard rows."""
    row = request.data.agent(_require_visitor(request), request.path["agent"])
    (agent,) = _agent_items(request, [row])
    last = next(iter(agent["benchmarks"]), None)
    sets = dict.fromkeys(one["task_set"] for one in agent["benchmarks"] if one["task_set"] in agent["task_sets"])
    built_in, hosted = agent["kind"] == "built in", agent["kind"] == "self hosted"
    return {
        "title": agent["name"],
        "answer": f"{last['task_set']}: {last['state']}, {last['ended']} of {last['cells']} cells have ended."
        if last
        else "It was run on nothing yet.",
        "agent": agent,
        "standings": [one for name in sets if (one := _leaderboard_place(request, name, row["name"]))],
        "facts": [
            *((name, agent[name]) for name in ("name", "kind", "level", "domains")),
            ("name there" if built_in else "digest of the bundle", agent["source"]),
            ("manifest", f"/api/agents/{agent['id']}/manifest" if hosted else ""),
            ("registered", agent["since"]),
        ],
    }


def _require_visitor(request: PlatformRequest) -> Visitor:
    """Return the signed-in user of *request*; raises AssertionError without one."""
    assert request.visitor is not None  # pages of owners are not made for anybody else
    return request.visitor


def _agent_items(request: PlatformRequest, rows: Any) -> list[View]:
    """Return *rows* of agents as page data with their benchmarks and available task sets."""
    sets = request.data.task_sets()
    found: dict[str, list[View]] = {}
    for one in request.data.benchmarks([row["id"] for row in rows]):
        words = {"state": BENCHMARK_WORDS[one["state"]], "when": utc(one["created_ns"])}
        found.setdefault(one["agent_id"], []).append({**one, **words})
    return [
        {
            "id": row["id"],
            "name": plain(row["name"], 100),
            "kind": row["kind"].replace("_", " "),
            "level": row["level"],
            "domains": ", ".join(row["domains"]),
            "since": utc(row["created_ns"]),
            "source": plain(row["source"], 200),
            "task_sets": [name for name, of in sets.items() if of.domain in row["domains"]],
            "benchmarks": found.get(row["id"], []),
        }
        for row in rows
    ]


def _leaderboard_place(request: PlatformRequest, task_set: str, agent: str) -> View | None:
    """Return rank and success of *agent* on the leaderboard of *task_set*, None when it has no result there."""
    found = request.data.board(task_set)
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


def benchmark_view(request: PlatformRequest) -> View:
    """Return the page data of the benchmark that the path of *request* names, with its cells."""
    found = request.data.benchmark(_require_visitor(request), request.path["benchmark"])
    cells, agent = found["cells"], plain(found["agent_name"], 100)
    ended, passed = found["ended"], sum(bool(cell["passed"]) for cell in cells)
    return {
        "title": f"Benchmark of {agent}",
        "answer": f"{BENCHMARK_WORDS[found['state']]}: {ended} of {len(cells)} cells have ended, {passed} passed.",
        "agent": agent,
        "task_set": plain(found["task_set"], 100),
        "error": plain(found["error"] or "", 500),
        "ended": ended,
        "all": len(cells),
        "cells": [_cell_row(cell) for cell in cells[:SHOWN_CELLS]],
        "left_out": max(0, len(cells) - SHOWN_CELLS),
    }


def _cell_row(cell: Mapping[str, Any]) -> View:
    """Return a benchmark's cell, one task with a seed, as a table row."""
    passed = {True: "yes", False: "no", None: "–"}[cell["passed"]]
    task, error = plain(cell["task"], 120), plain(why_not(cell), 300)
    where = {"bundle": BUNDLE_WORDS[cell["bundle"]], "agent": AGENT_WORDS[cell["agent"]]}
    return {
        **{key: cell[key] for key in ("seed", "run", "tries")},
        **where,
        "task": task,
        "passed": passed,
        "error": error,
    }


def users_view(request: PlatformRequest, token: Mapping[str, str] | None = None) -> View:
    """Return the page data of all users and latest benchmarks, for admins; *token* is a new user's, shown once."""
    users = request.data.users(_require_visitor(request))
    return {
        "title": "Users",
        "answer": f"{plural(len(users), 'user')}, and the latest benchmarks of everybody.",
        "users": [
            {"name": plain(row["name"], 100), "role": row["role"], "since": utc(row["created_ns"]),
             "ends": utc(row["expires_ns"]) if row["expires_ns"] else "never"}
            for row in users
        ],
        "roles": request.access.roles,
        "token": token,
        "benchmarks": [
            {"id": row["id"], "agent": plain(row["agent_name"], 100), "task_set": plain(row["task_set"], 100),
             "state": BENCHMARK_WORDS[row["state"]], "when": utc(row["created_ns"])}
            for row in request.data.latest_benchmarks(SHOWN_BENCHMARKS)
        ],
    }  # fmt: skip
