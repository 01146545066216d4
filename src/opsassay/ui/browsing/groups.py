"""Pages of many runs: a task with all its runs, a solver with its figures, the leaderboard of a domain."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from opsassay.analysis.leaderboard.board import LeaderboardRow, figure_item
from opsassay.analysis.leaderboard.entries import Entry
from opsassay.analysis.leaderboard.tables import rank_text
from opsassay.core.errors import OpsAssayError
from opsassay.core.schema.metric_words import word
from opsassay.core.text import plural
from opsassay.ui.browsing.catalogue import StoredRun, TaskPlace
from opsassay.ui.browsing.rows import (
    Shown,
    View,
    audit_page,
    board_page,
    compare_page,
    outcome_of,
    page_of,
    run_row,
    solver_page,
    task_page,
    trials_page,
)
from opsassay.ui.browsing.stored_incidents import page_of_task, task_name
from opsassay.ui.leaderboards import board_view
from opsassay.ui.plain import plain

FORMS = "The task had {} forms; runs on different ones are no repeats of each other."
OTHERS = 12
"""Most solvers that a page offers for comparison: those with most graded tasks in common."""


def task_view(state: Shown, place: TaskPlace, number: int) -> View:
    """Return the page data of the task *place*, (domain, task), with page *number* of its runs."""
    domain, task = place
    runs = state.catalogue.by_task[place]
    outcomes = _count_outcomes(state, runs)
    chosen, paging = page_of(runs, number, task_page(domain, task))
    solvers = {state.catalogue.solver_of(one) for one in runs}
    forms = len({one.run.item_hash for one in runs})
    name = task_name(state, domain, task)
    tally = _summarise_outcomes(outcomes)
    return {
        "answer": f"{tally} on {name}: {plural(len(runs), 'run')} by {plural(len(solvers), 'solver')}.",
        "name": name,
        "incident": page_of_task(state, domain, task),
        "domain": plain(domain, 60),
        "board": board_page(domain),
        "trials": trials_page(domain),
        "warnings": [FORMS.format(forms)] if forms > 1 else [],
        "outcomes": dict(outcomes),
        "figures": [],
        "remarks": [],
        "others": [],
        "results": [run_row(state, one) for one in chosen],
        "paging": paging,
    }


def solver_view(state: Shown, place: TaskPlace, number: int) -> View:
    """Return the page data of the solver *place*, (domain, solver): its figures, and page *number* of its runs."""
    domain, solver = place
    runs = state.catalogue.by_solver[place]
    chosen, paging = page_of(runs, number, solver_page(domain, solver))
    warnings, row, entries = [], None, {}
    try:
        standing = state.verdicts.standing(state.catalogue, domain)
        entries = standing.entries
        row = next((one for one in standing.board.rows if one.entry.name == solver), None)
    except OpsAssayError as error:
        warnings = [plain(str(error), 600)]
    ungraded = sum(outcome_of(state, one) == "not graded" for one in chosen)
    if ungraded:
        warnings.append(f"Not graded on this page: {plural(ungraded, 'run')}; `opsassay score run` does it.")
    return {
        "answer": _summarise_solver(solver, row, len(runs)),
        "name": plain(solver, 200),
        "domain": plain(domain, 60),
        "board": board_page(domain),
        "trials": trials_page(domain),
        "incident": None,
        "warnings": warnings,
        "figures": _figure_items(row) if row else [],
        "remarks": [plain(why, 300) for why in row.reasons] if row else [],
        "others": _other_solvers(entries, place),
        "results": [run_row(state, one) for one in chosen],
        "paging": paging,
    }


def board_page_view(state: Shown, domain: str) -> View:
    """Return the page data of the leaderboard of *domain*; raises NotFoundError when its package is missing."""
    standing = state.verdicts.standing(state.catalogue, domain)
    view = board_view(standing.board)
    if standing.ungraded:
        view["warnings"].insert(
            0,
            f"Not graded and not on this leaderboard: {plural(standing.ungraded, 'result')}; `opsassay score run` does it.",
        )
    on_it = [row.entry.name for row in standing.board.rows]
    for row, name in zip(view["rows"], on_it, strict=True):
        row["page"] = solver_page(domain, name)
    others = sorted({place[1] for place in state.catalogue.by_solver if place[0] == domain} - {*on_it})
    return {
        "answer": view["answer"],
        "name": plain(domain, 60),
        "trials": trials_page(domain),
        "audit": audit_page(domain),
        "boards": [view],
        "solvers": [{"name": plain(name, 120), "page": solver_page(domain, name)} for name in others],
    }


def _summarise_solver(solver: str, row: LeaderboardRow | None, runs: int) -> str:
    """Return a sentence on *solver*: how many tasks it succeeded on, its rank; without a grade its number of *runs*."""
    name = plain(solver, 120)
    if row is None or row.success is None:
        return f"{name} has {plural(runs, 'run')}, and none that is graded."
    rank = f"rank {rank_text(row)}" if row.rank is not None else "not ranked"
    return f"{name} succeeded on {row.success.text} of {plural(row.success.n, 'task')}; {rank}."


def _figure_items(row: LeaderboardRow) -> list[View]:
    """Return the means of *row* over all tasks and, where there are several systems, by system."""
    success = word("succeeded").title
    found = [(success, row.success), *((word(name).title, figure) for name, figure in row.metrics.items())]
    found += [(f"{success} on {system}", figure) for system, figure in row.systems.items() if len(row.systems) > 1]
    return [
        {"name": plain(name, 80), **figure_item(figure), "words": figure.text}
        for name, figure in found
        if figure is not None
    ]


def _other_solvers(entries: Mapping[str, Entry], place: TaskPlace) -> list[View]:
    """Return the solvers in *entries* with most tasks in common with that of *place*, with links to comparisons."""
    domain, solver = place
    tasks = entries[solver].scores.keys() if solver in entries else set()
    common = Counter({name: len(tasks & of.scores.keys()) for name, of in entries.items() if name != solver})
    return [
        {"name": plain(name, 120), "tasks": count, "page": compare_page(domain, solver, name)}
        for name, count in common.most_common(OTHERS)
        if count
    ]


def _count_outcomes(state: Shown, runs: Iterable[StoredRun]) -> Counter[str]:
    """Return how many of *runs* have each outcome in words, such as "succeeded"."""
    return Counter(outcome_of(state, one) for one in runs)


def _summarise_outcomes(outcomes: Counter[str]) -> str:
    """Return how many of the graded runs succeeded, as a phrase; *outcomes* counts runs by outcome in words."""
    judged = outcomes["succeeded"] + outcomes["did not succeed"]
    if not judged:
        return "No solver is graded" if outcomes["not applicable"] else "Nothing is graded yet"
    return f"{outcomes['succeeded']:,} of {plural(judged, 'graded run')} succeeded"
