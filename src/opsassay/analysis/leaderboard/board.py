"""The leaderboard of one domain: shared ranks, an interval for every number, and reasons for missing ranks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from opsassay.analysis.leaderboard.entries import COSTS, Entry, TaskKey, entries_of
from opsassay.analysis.leaderboard.separation import LEVEL, better_than, separate
from opsassay.core.schema.task import MetricDefinition
from opsassay.core.text import plural
from opsassay.evals.runner.domain import is_generated
from opsassay.evals.runner.generated_tasks import HELD_OUT
from opsassay.evals.runner.grading import GradedRuns
from opsassay.scoring.figures import MeanFigure
from opsassay.scoring.rates import estimate_of
from opsassay.scoring.void import void_note

SHOWN = 8
"""Number of a domain's metrics on its leaderboard, the first that it defines."""
NO_ANSWER = "no answer"
"""The baseline on every leaderboard: a solver that gives no answer and fails every task."""
FEWEST_OF_SYSTEM = 6
"""Fewer tasks of a system cannot give a warning about it: the signs of five cannot reach p < 0.05."""


def figure_item(figure: MeanFigure) -> dict[str, Any]:
    """Return a mean with its interval as JSON-ready data, a share as a fraction."""
    return {"value": figure.value, "low": figure.low, "high": figure.high, "tasks": figure.n}


@dataclass(frozen=True)
class LeaderboardRow:
    """One solver's row. *rank* is None, with *reasons*, if it is not ranked; *ranks* is the interval of the rank.

    *beats*: solvers that are significantly worse. *spent*: mean usage per task by the names of `COSTS`.
    """

    entry: Entry
    rank: int | None
    ranks: tuple[int, int] | None
    success: MeanFigure | None
    metrics: Mapping[str, MeanFigure]
    systems: Mapping[str, MeanFigure]
    reasons: tuple[str, ...]
    beats: tuple[str, ...]
    failed: int
    spent: Mapping[str, MeanFigure]
    last_ns: int

    def as_item(self) -> dict[str, Any]:
        """Return the row as JSON-ready data, with the runs behind it."""
        return {
            "solver": self.entry.name,
            "baseline": self.entry.baseline,
            "rank": self.rank,
            "ranks": self.ranks,
            "success": self.success and figure_item(self.success),
            "metrics": {name: figure_item(figure) for name, figure in self.metrics.items()},
            "systems": {name: figure_item(figure) for name, figure in self.systems.items()},
            "not_ranked": list(self.reasons),
            "beats": list(self.beats),
            "runs": len(self.entry.runs),
            "failed": self.failed,
            "spent": {name: figure_item(figure) for name, figure in self.spent.items()},
            "stale": list(self.entry.stale),
            "last_ns": self.last_ns,
            "evidence": [{"run": run.id, "folder": str(run.folder), "task": run.task[0]} for run in self.entry.runs],
        }


@dataclass(frozen=True)
class Standing:
    """The test result of a solver: its *rank* and the interval of that, or the *reasons* for no rank."""

    rank: int | None = None
    ranks: tuple[int, int] | None = None
    reasons: tuple[str, ...] = ()
    beats: tuple[str, ...] = ()


@dataclass(frozen=True)
class Leaderboard:
    """The leaderboard of one *domain*, ranked solvers first; *warnings* are sentences on its limits."""

    domain: str
    tasks: int
    rows: tuple[LeaderboardRow, ...]
    metrics: tuple[MetricDefinition, ...]
    warnings: tuple[str, ...]
    void: int = 0
    """Number of void tasks, which are not in *tasks*."""


def make_board(graded: GradedRuns, before: Leaderboard | None = None) -> Leaderboard:
    """Return the leaderboard of *graded* runs; rows of unchanged solvers are copied from *before*, an earlier board.

    A solver is ranked if it ran on every task, sandboxed, without a flag, and differs significantly from every
    baseline. Its rank is one more than the number of significantly better solvers, so that ranks can be shared.
    """
    metrics = tuple(graded.domain.metrics()[:SHOWN])
    same = before is not None and (before.domain, before.metrics) == (graded.domain.name, metrics)
    known = {row.entry.name: row for row in before.rows} if before is not None and same else {}
    entries = entries_of(graded, [row.entry for row in known.values()])
    tasks = sorted({task for entry in entries for task in entry.scores})
    complete = [entry for entry in entries if entry.baseline or not entry.reasons]
    complete = [entry for entry in complete if entry.scores.keys() == set(tasks)]
    found: dict[str, Standing] = {}
    warnings: list[str] = []
    if tasks and complete:
        found = _rank_solvers(complete, tasks)
        warnings = [*_system_warnings(complete, tasks), *_list_general_warnings(complete, found, len(tasks))]
    if published := sum(HELD_OUT not in item for item, _ in tasks) if is_generated(graded.domain) else 0:
        warnings.append(
            f"{published} of {plural(len(tasks), 'task')} have the published seed: their answers follow from code that "
            "everybody has, so that a table of answers passes them."
        )
    warnings += [
        f"{plural(count, 'result')} of {name} came after aborted attempts, which an agent can cause when it brings its own "
        "model endpoint; `opsassay view` shows why each was aborted."
        for name, count in sorted(graded.retried.items())
    ]
    unranked = [one for one in graded.counted if not one.ranks]
    void = {one.run.item for one in unranked if one.void}
    if marked := {one.run.item for one in unranked if one.verdict.fingerprinted}:
        said = "recorded before draws had a secret: the fault can be computed, so no rank comes of them."
        warnings.insert(0, f"{plural(len(marked), 'task')} {said}")
    if note := void_note(len(void), len(tasks) + len(void), "task"):
        warnings.insert(0, note)
    rows = [_make_row(entry, metrics, found.get(entry.name, Standing()), known.get(entry.name)) for entry in entries]
    rows.sort(key=lambda row: (row.rank is None, row.rank or 0, row.entry.baseline, -_sort_value(row), row.entry.name))
    return Leaderboard(graded.domain.name, len(tasks), tuple(rows), metrics, tuple(warnings), len(void))


def _sort_value(row: LeaderboardRow) -> float:
    """Return the row's success, -1 without one."""
    return row.success.value if row.success else -1.0


def _rank_solvers(complete: Sequence[Entry], tasks: Sequence[TaskKey]) -> dict[str, Standing]:
    """Return solver to its standing, for the entries *complete*, which have a score on each of *tasks*."""
    names = [*(entry.name for entry in complete), NO_ANSWER]
    scores = np.array([[entry.scores[task] for task in tasks] for entry in complete] + [[0.0] * len(tasks)])
    baselines = [i for i, entry in enumerate(complete) if entry.baseline] + [len(complete)]
    better = better_than(scores)
    close = {i: [names[j] for j in baselines if not better[i, j]] for i in range(len(complete)) if i not in baselines}
    ranked = [i for i, names_of in close.items() if not names_of]
    among = separate(scores[ranked]) if ranked else None
    found = {}
    for i, entry in enumerate(complete):
        beats = tuple(names[int(j)] for j in np.flatnonzero(better[i]))
        if among is not None and i in ranked:
            at, rank = ranked.index(i), 1 + int(better[ranked, i].sum())
            ranks = min(rank, int(among.first[at])), max(rank, int(among.last[at]))
            found[entry.name] = Standing(rank, ranks, (), beats)
        else:
            reasons = (f"it cannot be separated from {', '.join(close[i])}",) if i in close else ()
            found[entry.name] = Standing(None, None, reasons, beats)
    return found


def _make_row(
    entry: Entry, metrics: Sequence[MetricDefinition], standing: Standing, known: LeaderboardRow | None
) -> LeaderboardRow:
    """Return the row of *entry* with means over tasks, overall and by system; those of *known* if it has this entry."""
    reasons = (*entry.reasons, *standing.reasons)
    if known is not None and known.entry is entry:
        return replace(known, rank=standing.rank, ranks=standing.ranks, reasons=reasons, beats=standing.beats)
    by_system = {system: _list_tasks(entry, system) for system in sorted({run.system for run in entry.runs})}
    on_system = {system: {task: entry.scores[task] for task in of} for system, of in by_system.items()}
    return LeaderboardRow(
        entry,
        standing.rank,
        standing.ranks,
        _estimate_mean(entry.scores),
        {m.name: figure for m in metrics if (figure := _estimate_mean(entry.by_task(m.name), share=m.is_share))},
        {system: figure for system, of in on_system.items() if (figure := _estimate_mean(of))},
        reasons,
        standing.beats,
        sum(run.failed for run in entry.runs),
        {name: figure for name in COSTS if (figure := _estimate_mean(entry.costs(name), share=False)) and figure.value},
        max((run.ended_ns for run in entry.runs), default=0),
    )


def _list_tasks(entry: Entry, system: str) -> set[TaskKey]:
    """Return the tasks of *system* on which the solver has runs."""
    return {run.task for run in entry.runs if run.system == system}


def _estimate_mean(scores: Mapping[TaskKey, float], *, share: bool = True) -> MeanFigure | None:
    """Return the mean over tasks with its interval, None without tasks; *share*: values are 0 to 1."""
    return estimate_of([scores[task] for task in sorted(scores)], share=share)


def _system_warnings(complete: Sequence[Entry], tasks: Sequence[TaskKey]) -> list[str]:
    """Return a sentence for each pair of solvers whose order on one system contradicts the overall order."""
    systems = {run.task: run.system for entry in complete for run in entry.runs}
    solvers = [entry for entry in complete if not entry.baseline]
    if len(solvers) < 2:
        return []
    scores = np.array([[entry.scores[task] for task in tasks] for entry in solvers])
    means, found = scores.mean(axis=1), []
    for system in sorted(set(systems.values())):
        of = np.array([systems[task] == system for task in tasks])
        if of.sum() < FEWEST_OF_SYSTEM or of.all():
            continue
        better = better_than(scores[:, of])
        for i, j in zip(*np.nonzero(better), strict=True):
            if means[i] <= means[j]:
                a, b = solvers[i].name, solvers[j].name
                found.append(
                    f"{b} and {a} may not be compared here on systems like {system}: there {a} is better, and "
                    "over all tasks it is not."
                )
    return found


def _list_general_warnings(complete: Sequence[Entry], standings: Mapping[str, Standing], tasks: int) -> list[str]:
    """Return warnings about the whole board: no solver is ranked, or no baseline was run; *tasks*: number."""
    said = []
    solvers = [entry for entry in complete if not entry.baseline]
    if solvers and not any(standings[entry.name].rank is not None for entry in solvers):
        said.append(
            f"On {plural(tasks, 'task')} nobody can be separated from a baseline ({100 * LEVEL:.0f}%) and is ranked; "
            "run more tasks."
        )
    if solvers and not any(entry.baseline for entry in complete):
        said.append(
            "No baseline was run on all of these tasks: ranks say only that a solver is better than no answer at all. Run "
            "one, such as the methods constant and chance or the oracle no-op."
        )
    return said
