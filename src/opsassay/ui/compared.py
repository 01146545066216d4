"""Compares two solvers on their common tasks: the paired difference, its interval, and tasks with other results."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from opsassay.analysis.leaderboard.entries import Entry
from opsassay.analysis.leaderboard.separation import LEVEL, better_than, intervals
from opsassay.core.errors import UserError
from opsassay.core.schema.task import MetricDefinition
from opsassay.core.text import plural
from opsassay.scoring.figures import difference_text
from opsassay.scoring.rates import estimate_of
from opsassay.ui.plain import plain

SHOWN_METRICS = 5
MOST_FLIPPED = 500


def compare_solvers(
    first: Entry,
    second: Entry,
    metrics: Sequence[MetricDefinition],
    task_page: Callable[[str], str],
    task_name: Callable[[str], str] = lambda task: plain(task, 120),
    most: int = MOST_FLIPPED,
) -> dict[str, Any]:
    """Return the data of compare_tables.html for *first* and *second*; raises UserError without a common task.

    *task_page* returns the URL of a task's page, *task_name* its display name; at most *most* tasks with other results
    are listed.
    """
    names = plain(first.name, 120), plain(second.name, 120)
    tasks = sorted(first.scores.keys() & second.scores.keys())
    if not tasks:
        raise UserError(f"{names[0]} and {names[1]} have no graded task in common; run both on the same tasks.")
    scores = np.array([[entry.scores[task] for task in tasks] for entry in (first, second)])
    better = better_than(scores)
    flipped = [
        {"task": task_name(task[0]), "page": task_page(task[0]), "one": a, "two": b}
        for task, a, b in zip(tasks, scores[0].tolist(), scores[1].tolist(), strict=True)
        if a != b
    ]
    figures = [_paired_row(MetricDefinition(name="succeeded"), first, second, None)]
    figures += [_paired_row(m, first, second, m.name) for m in metrics[:SHOWN_METRICS]]
    return {
        "answer": _describe_comparison(
            names, bool(better[0, 1]), bool(better[1, 0]), len(tasks), len(flipped), round(float(scores[0].sum()), 2)
        ),
        "names": names,
        "tasks": len(tasks),
        "apart": {"one": len(first.scores) - len(tasks), "two": len(second.scores) - len(tasks)},
        "figures": [figure for figure in figures if figure],
        "level": LEVEL,
        "flipped": flipped[:most],
        "flipped_more": max(0, len(flipped) - most),
        "only_one": sum(row["one"] > row["two"] for row in flipped),
        "only_two": sum(row["one"] < row["two"] for row in flipped),
    }


def _describe_comparison(
    names: tuple[str, str], first_better: bool, second_better: bool, tasks: int, flipped: int, both: float
) -> str:
    """Return which solver is better, if one is; *flipped* tasks differ; *both*: successes of each if none do."""
    on = plural(tasks, "task")
    if not flipped:
        return f"{names[0]} and {names[1]} succeeded on exactly the same of {on}: {both:g} of {tasks}."
    if first_better or second_better:
        return f"{names[0 if first_better else 1]} is better than {names[1 if first_better else 0]} on {on}."
    return f"{names[0]} and {names[1]} cannot be distinguished by {on}."


def _paired_row(definition: MetricDefinition, first: Entry, second: Entry, metric: str | None) -> dict[str, Any] | None:
    """Return means of *metric* (None: success) on common tasks, and their difference with interval; None if no task."""
    one, two = first.by_task(metric), second.by_task(metric)
    tasks = sorted(one.keys() & two.keys())
    if not tasks:
        return None
    a, b = (np.array([of[task] for task in tasks]) for of in (one, two))
    low, high = intervals(a - b) if np.ptp(a - b) > 0 else (None, None)
    difference = float((a - b).mean())
    one_, two_ = (estimate_of(of, share=definition.is_share) for of in (a, b))
    return {
        "name": plain(definition.title, 80),
        "one": float(a.mean()),
        "two": float(b.mean()),
        "difference": difference,
        "low": low,
        "high": high,
        "words": {
            "one": one_ and one_.text,
            "two": two_ and two_.text,
            "difference": difference_text(difference, low, high, share=bool(one_ and one_.share)),
        },
        "tasks": len(tasks),
    }
