"""Pages of leaderboards: their runs, a run with its evidence, the tasks, and a comparison of two agents.

They are public. Of a run they show outcome, grades and the digest of its folder; the answer and the steps in the folder
are for the operator of the platform only.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import quote, urlencode

from opsassay.analysis.leaderboard.board import Leaderboard, LeaderboardRow
from opsassay.analysis.leaderboard.entries import COSTS, Entry, LeaderboardRun, TaskKey
from opsassay.analysis.leaderboard.tables import overall
from opsassay.core.errors import NotFoundError, UserError
from opsassay.core.schema.metric_words import word
from opsassay.core.text import number_text, plural
from opsassay.ui.compared import compare_solvers
from opsassay.ui.glossary import format_value
from opsassay.ui.leaderboards import board_view
from opsassay.ui.plain import plain, utc
from opsassay.ui.platform.data import PlatformRequest, TaskSetLeaderboard

View = dict[str, Any]
ROWS = 100
"""Runs per page."""
OUTCOMES = {"succeeded": "succeeded", "not": "did not succeed", "failed": "failed"}
FEW = 3
SELF_HOSTED = "/self-hosted"
"""URL part, below a leaderboard, of the leaderboard of agents that their owners run."""


def home_view(request: PlatformRequest) -> View:
    """Return the page data of the first page: all task sets and the progress of runs."""
    sets, counts = request.data.task_sets(), request.data.counts()
    domains, domain = sorted({one.domain for one in sets.values()}), request.query.get("domain", "")
    if domain not in ("", *domains):
        raise NotFoundError("domain", plain(domain, 60), domains)
    return {
        "title": "OpsAssay leaderboards",
        "answer": f"{plural(len(sets), 'leaderboard')}, {plural(counts['results'], 'result')}; cells that run now: "
        f"{counts['running']}, that wait: {counts['waiting']}.",
        "domains": domains,
        "domain": domain,
        "task_sets": [
            {"name": name, "domain": of.domain, "description": of.description}
            for name, of in sets.items()
            if domain in ("", of.domain)
        ],
    }


def overall_view(request: PlatformRequest) -> View:
    """Return the page data of the table with a row per solver and a column per task set."""
    table = overall({name: request.data.board(name).board for name in request.data.task_sets()})
    sets = list(table.columns[2:])
    return {
        "title": "All leaderboards",
        "answer": f"{plural(len(table.rows), 'solver')} on {plural(len(sets), 'task set')}.",
        "sets": sets,
        "rows": [["" if cell is None else plain(str(cell), 120) for cell in row] for row in table.rows],
        "note": table.note,
        "item": {"items": [dict(zip(table.columns, row, strict=True)) for row in table.rows]},
    }


def task_set_view(request: PlatformRequest) -> View:
    """Return the page data of the leaderboard of the task set that the path of *request* names."""
    return _leaderboard_view(request, _requested_leaderboard(request), "")


def self_hosted_view(request: PlatformRequest) -> View:
    """Return the page data of the leaderboard of a task set's self-hosted agents."""
    level = request.query.get("level", "")
    found = request.data.board(request.path["task_set"], level, hosted=True)
    return {**_leaderboard_view(request, found, SELF_HOSTED), "reports": []}


def _leaderboard_view(request: PlatformRequest, leaderboard: TaskSetLeaderboard, group: str) -> View:
    """Return the page data of *leaderboard*; *group* is its URL part: "/self-hosted", or "" for all agents."""
    name, level = request.path["task_set"], request.query.get("level", "")
    board, view = leaderboard.board, board_view(leaderboard.board)
    for row, made in zip(view["rows"], board.rows, strict=True):
        row["agents"] = "" if made.entry.baseline else _format_agents(leaderboard.agents.get(made.entry.name, ()))
    return {
        "title": f"Leaderboard: {name}" + (", self-hosted agents" if group else "") + (f", {level} tasks" if level else ""),
        "of": group,
        "answer": view["answer"],
        "boards": [view],
        "description": request.data.task_sets()[name].description,
        "levels": leaderboard.levels,
        "solvers": [row.entry.name for row in board.rows],
        "reports": [_report_row(one) for one in request.data.self_reported(name)],
        "item": lambda: {"domain": board.domain, "tasks": board.tasks, "warnings": board.warnings,
                         "items": [_board_item(row, leaderboard.agents) for row in board.rows]},
    }  # fmt: skip


def _requested_leaderboard(request: PlatformRequest) -> TaskSetLeaderboard:
    """Return the leaderboard that the URL names, of one task level if its query has one."""
    return request.data.board(request.path["task_set"], request.query.get("level", ""))


def _board_item(row: LeaderboardRow, agents: Mapping[str, Sequence[str]]) -> View:
    """Return *row* as JSON-ready data, with the names in *agents* of its solver."""
    item = row.as_item()
    evidence = [{key: one[key] for key in ("run", "task")} for one in item["evidence"]]
    return {**item, "agents": list(agents.get(row.entry.name, ())), "evidence": evidence}


def _format_agents(names: Sequence[str]) -> str:
    """Return the first of *names*, the agents registered with one solver, as text."""
    more = f" and {len(names) - FEW} more" if len(names) > FEW else ""
    return f"registered as {plain(', '.join(names[:FEW]), 300)}{more}" if names else ""


def _report_row(report: Mapping[str, Any]) -> tuple[str, str, str, str]:
    """Return (agent, figures, source, time) of the results that an owner reported."""
    figures = ", ".join(f"{name} {value:g}" for name, value in report["said"]["figures"].items())
    return (
        plain(report["agent_name"], 100),
        plain(figures, 500),
        plain(report["said"]["source"], 300),
        utc(report["created_ns"]),
    )


def runs_view(request: PlatformRequest) -> View:
    """Return the page data of a leaderboard's runs, filtered by solver, task, system and outcome."""
    board = _requested_leaderboard(request).board
    chosen = {key: request.query.get(key, "") for key in ("solver", "task", "system", "outcome", "level")}
    if chosen["outcome"] not in ("", *OUTCOMES):
        raise UserError(f"An outcome is one of {', '.join(OUTCOMES)}.")
    given = request.query.get("from", "0")
    start = int(given[:9]) if given.isascii() and given.isdigit() else 0
    found = [(name, run) for name, run in _list_runs(board) if _is_chosen(name, run, chosen)]
    further = {key: value for key, value in chosen.items() if value}
    rows = [_run_row(name, run) for name, run in found[start : start + ROWS]]
    of = {
        key: f" {words} {plain(chosen[key], 120)}" for key, words in (("solver", "of"), ("task", "on")) if chosen[key]
    }
    return {
        "title": f"Runs: {request.path['task_set']}",
        "answer": f"{plural(len(found), 'run')}{''.join(of.values())}.",
        "asked": {key: plain(value, 120) for key, value in chosen.items()},
        "solvers": [row.entry.name for row in board.rows],
        "outcomes": OUTCOMES,
        "runs": rows,
        "next": urlencode({**further, "from": start + ROWS}) if start + ROWS < len(found) else None,
        "previous": urlencode({**further, "from": max(0, start - ROWS)}) if start else None,
        "item": {"all": len(found), "items": rows},
    }


def _list_runs(board: Leaderboard) -> Iterator[tuple[str, LeaderboardRun]]:
    """Yield (solver, run) for each run on the leaderboard *board*, in the order of its rows."""
    return ((row.entry.name, run) for row in board.rows for run in row.entry.runs)


def _is_chosen(name: str, run: LeaderboardRun, filters: Mapping[str, str]) -> bool:
    """Whether *run* of solver *name* matches the filters; an empty filter matches all."""
    fits = {"solver": name, "task": run.task[0], "system": run.system, "outcome": _outcome_of_run(run)}
    return all(not filters[key] or filters[key] == value for key, value in fits.items())


def _outcome_of_run(run: LeaderboardRun) -> str:
    """Return "failed" without a result, "succeeded", or "not" for a wrong result."""
    return "failed" if run.failed else "succeeded" if run.succeeded else "not"


def _run_row(name: str, run: LeaderboardRun) -> View:
    """Return *run* of solver *name* as a table row."""
    return {
        "run": plain(run.id, 80),
        "solver": plain(name, 120),
        "task": plain(run.task[0], 120),
        "system": plain(run.system, 60),
        "outcome": OUTCOMES[_outcome_of_run(run)],
        "ended": utc(run.ended_ns),
        "costs": [number_text(cost) if (cost := run.cost(name)) else "–" for name in COSTS],
    }


def run_view(request: PlatformRequest) -> View:
    """Return the page data of the run that the path of *request* names, with its grades and evidence."""
    task_set = request.path["task_set"]
    run, row = request.data.run(task_set, f"runs/{request.path['cell']}/{request.path['attempt']}")
    passed = "" if row["passed"] is None else ", passed" if row["passed"] else ", not passed"
    item = {
        "run": f"{run.cell}/{run.attempt}",
        "task_page": f"/leaderboards/{task_set}/tasks/{quote(run.item, safe='')}",
        "solver": plain(run.solver.label, 120),
        "task": plain(run.item, 120),
        "status": run.status.value,
        "passed": row["passed"],
        "error": plain(run.error or "", 1000),
        "evidence": row["evidence"],
        "event": row["event"],
        "event_number": row["seq"],
        "not_ranked": [plain(why, 300) for why in row["not_ranked"]],
        "metrics": [_metric_item(name, metric) for name, metric in row["metrics"].items()],
        "facts": [
            ("solver", plain(run.solver.label, 120)), ("task", plain(run.item, 120)),
            ("system", plain(run.system, 60)), ("seed", str(run.seed)), ("arm", plain(run.arm, 60)),
            ("isolation", run.isolation.replace("_", " ")), ("began", utc(run.started_ns)),
            ("ended", utc(run.ended_ns)), ("limits", _format_figures(run.limits)),
            ("limits hit", ", ".join(run.limits_hit)), ("spent", _format_figures(run.spent)),
            ("versions", ", ".join(f"{k} {v}" for k, v in run.versions.items())),
        ],
    }  # fmt: skip
    title, answer = f"{item['solver']} on {item['task']}", f"{run.status.value.capitalize()}{passed}."
    return {**item, "title": title, "answer": answer, "item": item}


def _metric_item(name: str, metric: Mapping[str, Any]) -> View:
    """Return a stored metric as page data: title, value in words, reason."""
    about, value = word(name), metric["value"]
    return {
        "name": plain(name.replace("_", " "), 60), "title": plain(about.title, 60), **metric,
        "words": None if value is None else format_value(value, about.unit), "reason": plain(metric["reason"], 300),
    }  # fmt: skip


def _format_figures(figures: Mapping[str, float]) -> str:
    """Return "name value" of each of *figures* that is not 0, joined by commas."""
    some = ((name, value) for name, value in figures.items() if value)
    return ", ".join(f"{plain(name.replace('_', ' '), 40)} {number_text(value, 4)}" for name, value in some)


def compare_view(request: PlatformRequest) -> View:
    """Return the page data that compares the two solvers named in the query of *request* on their common tasks."""
    task_set, board = request.path["task_set"], _requested_leaderboard(request).board
    first, second = (_require_entry(board, request.query.get(key, "")) for key in ("one", "two"))
    page = f"/leaderboards/{task_set}/tasks/"
    item = compare_solvers(first, second, board.metrics, lambda task: page + quote(task, safe=""))
    return {**item, "title": f"Two agents: {task_set}", "item": item}


def _require_entry(board: Leaderboard, name: str) -> Entry:
    """Return the solver *name* of *board*; raises NotFoundError."""
    found = next((row.entry for row in board.rows if row.entry.name == name), None)
    if found is None:
        raise NotFoundError("solver", plain(name, 120), [row.entry.name for row in board.rows])
    return found


def tasks_view(request: PlatformRequest) -> View:
    """Return the page data of a leaderboard's tasks, with how many solvers solved each."""
    found = request.data.board(request.path["task_set"])
    keys = sorted({task for row in found.board.rows for task in row.entry.scores})
    tasks = [_task_row(found, key) for key in keys]
    unsolved = sum(not one["solved"] for one in tasks)
    answer = f"{plural(len(tasks), 'task')}; no solver always solves {unsolved} of them."
    return {"title": f"Tasks: {request.path['task_set']}", "answer": answer, "tasks": tasks, "item": {"items": tasks}}


def _task_row(leaderboard: TaskSetLeaderboard, key: TaskKey) -> View:
    """Return the task as a table row: how many agents and baselines ran it and solved it."""
    of = [(row.entry.baseline, row.entry.scores[key]) for row in leaderboard.board.rows if key in row.entry.scores]
    agents = [score for baseline, score in of if not baseline]
    return {
        "task": plain(key[0], 120), "id": key[0], "level": leaderboard.level_of[key], "digest": key[1],
        "solvers": len(agents), "solved": sum(score == 1.0 for score in agents),
        "baselines": len(of) - len(agents), "by_baselines": sum(score == 1.0 for baseline, score in of if baseline),
    }  # fmt: skip


def task_view(request: PlatformRequest) -> View:
    """Return the page data of a task with every solver's result; its description only for admins."""
    found, name = request.data.board(request.path["task_set"]), request.path["task"]
    keys = sorted(key for key in found.level_of if key[0] == name)
    rows = found.board.rows
    scored = {task for row in rows for task in row.entry.scores}
    key = next((one for one in keys if one in scored), None)
    if key is None:
        raise NotFoundError("task", plain(name, 120), sorted({one[0] for one in scored}))
    of = [row.entry.scores[key] for row in rows if key in row.entry.scores]
    systems = sorted({run.system for row in rows for run in row.entry.runs if run.task == key})
    item: View = {
        "task": plain(name, 120),
        "answer": f"{sum(value == 1.0 for value in of)} of {len(of)} solvers always succeed on {plain(name, 120)}.",
        "digest": key[1],
        "forms": len(keys),
        "rows": [_solver_row(row, key) for row in rows if key in row.entry.scores],
        "facts": [("level", found.level_of[key] or "not known"), ("system", plain(", ".join(systems), 120))],
    }
    facts = [*item["facts"], *_facts_for_admins(request, key), ("digest", key[1])]
    return {**item, "title": f"Task: {item['task']}", "facts": facts, "item": item}


def _solver_row(row: LeaderboardRow, key: TaskKey) -> View:
    """Return the result of one solver on the task *key* as a table row."""
    runs = [run for run in row.entry.runs if run.task == key]
    return {
        "solver": plain(row.entry.name, 120),
        "kind": "baseline" if row.entry.baseline else "" if row.rank is not None else "not ranked",
        "succeeded": row.entry.scores[key],
        "runs": [run.id for run in runs],
        "failed": sum(run.failed for run in runs),
    }


def _facts_for_admins(request: PlatformRequest, key: TaskKey) -> list[tuple[str, str]]:
    """Return (name, text) of the task's class, complexity and description; [] unless the visitor is an admin."""
    if request.visitor is None or request.visitor.role != "admin" or (task := request.data.task(key)) is None:
        return []
    complexity = "" if task.complexity is None else f"{task.complexity:.2f}"
    return [
        ("class (for admins)", plain(task.task_class or "", 120)), ("complexity (for admins)", complexity),
        ("description (for admins)", plain(task.description, 1000)),
    ]  # fmt: skip
