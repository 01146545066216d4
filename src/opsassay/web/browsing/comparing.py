"""Two solvers on the tasks that both were run on: the paired difference, its interval, and the tasks that flipped."""

from __future__ import annotations

import numpy as np

from opsassay.boards.entries import Entry
from opsassay.boards.separation import LEVEL, intervals, separate
from opsassay.errors import UserError
from opsassay.web.browsing.beside import beside_page
from opsassay.web.browsing.rows import Shown, View, board_page, solver_page
from opsassay.web.plain import plain

SHOWN_METRICS = 5
MOST_FLIPPED = 500


def compare_view(shown: Shown, domain: str, one: str, two: str) -> View:
    """Return the page that compares the solvers *one* and *two* of *domain*; raises UserError where nothing can be said."""
    standing = shown.verdicts.standing(shown.catalogue, domain)
    missing = [plain(name, 120) for name in (one, two) if name not in standing.entries]
    if missing:
        raise UserError(f"{' and '.join(missing)} has no graded run; grade the store with `opsassay grade` and reload.")
    first, second = standing.entries[one], standing.entries[two]
    tasks = sorted(first.scores.keys() & second.scores.keys())
    if not tasks:
        raise UserError(
            f"{plain(one, 120)} and {plain(two, 120)} have no graded task in common; run both on the same tasks."
        )
    scores = np.array([[entry.scores[task] for task in tasks] for entry in (first, second)])
    better = separate(scores).better
    flipped = [
        {"task": plain(task[0], 120), "page": beside_page(domain, task[0], one, two), "one": a, "two": b}
        for task, a, b in zip(tasks, scores[0].tolist(), scores[1].tolist(), strict=True)
        if a != b
    ]
    names = plain(one, 120), plain(two, 120)
    figures = [_paired("succeeded", first, second, None)]
    figures += [_paired(m.name, first, second, m.name) for m in standing.board.metrics[:SHOWN_METRICS]]
    return {
        "answer": _answer(names, bool(better[0, 1]), bool(better[1, 0]), len(tasks), len(flipped)),
        "one": {"name": names[0], "page": solver_page(domain, one)},
        "two": {"name": names[1], "page": solver_page(domain, two)},
        "domain": plain(domain, 60),
        "board": board_page(domain),
        "tasks": len(tasks),
        "apart": {"one": len(first.scores) - len(tasks), "two": len(second.scores) - len(tasks)},
        "figures": [figure for figure in figures if figure],
        "level": LEVEL,
        "flipped": flipped[:MOST_FLIPPED],
        "flipped_more": max(0, len(flipped) - MOST_FLIPPED),
        "only_one": sum(row["one"] > row["two"] for row in flipped),
        "only_two": sum(row["one"] < row["two"] for row in flipped),
    }


def _answer(names: tuple[str, str], one: bool, two: bool, tasks: int, flipped: int) -> str:
    on = f"{tasks} task" + ("" if tasks == 1 else "s")
    if not flipped:
        return f"{names[0]} and {names[1]} succeeded on exactly the same of {on}."
    if one or two:
        return f"{names[0 if one else 1]} is better than {names[1 if one else 0]} on {on}."
    return f"{names[0]} and {names[1]} cannot be distinguished by {on}."


def _paired(title: str, first: Entry, second: Entry, metric: str | None) -> View | None:
    """Return both means of *metric* over common tasks and their difference with its interval; None without any."""
    one, two = first.by_task(metric), second.by_task(metric)
    tasks = sorted(one.keys() & two.keys())
    if not tasks:
        return None
    a, b = (np.array([of[task] for task in tasks]) for of in (one, two))
    low, high = intervals(a - b) if len(tasks) > 1 else (None, None)
    return {
        "name": plain(title.replace("_", " "), 80),
        "one": float(a.mean()),
        "two": float(b.mean()),
        "difference": float((a - b).mean()),
        "low": low,
        "high": high,
        "tasks": len(tasks),
    }
