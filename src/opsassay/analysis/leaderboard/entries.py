"""The entries of a leaderboard: the graded runs of one domain by solver and task, and which solvers may be ranked."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from statistics import fmean
from typing import Any

from opsassay import __version__
from opsassay.core.schema.run import MetricStatus, Run, RunStatus
from opsassay.core.schema.scenario import CONTROL
from opsassay.core.text import plural
from opsassay.evals.runner.domain import outcome_of
from opsassay.evals.runner.grading import GradedRun, GradedRuns
from opsassay.evals.runner.ranking import NOT_RANKED, ORACLE, run_id, why_not_ranked

BASELINES = frozenset({
    "constant", "chance", "gap", "loudest", "detector", "allow-all", "deny-all", "untouched",
    "by-time", "by-service", "by-severity", "by-calls",
})  # fmt: skip
"""Names of solvers without skill; an external program is never a baseline, whatever its name."""

BASELINE_ORACLES = frozenset(
    {"nothing", "no-op", "scale-to-zero", "constant-diagnosis", "constant", "constant-true", "constant-false", "chance"}
)
"""Names of oracles and controls without skill: baselines that, like all oracles, are not ranked."""

COSTS: Mapping[str, tuple[tuple[str, ...], ...]] = {
    "tokens": (("input_tokens", "output_tokens"), ("tokens",)),
    "usd": (("usd",), ("money_usd",)),
    "seconds": (("seconds",),),
}
"""The costs of a run by name: groups of units; the first group with any usage is summed."""

TaskKey = tuple[str, str]
"""A task's id, and the digest of its whole content."""


@dataclass(frozen=True)
class LeaderboardRun:
    """One graded run: *succeeded* (1 or 0), and its *values* by metric.

    A failed run did not succeed and has 0 in metrics of which more is better, and no value in others, such as times.
    """

    task: TaskKey
    system: str
    succeeded: float
    values: Mapping[str, float]
    failed: bool
    spent: Mapping[str, float]
    ended_ns: int
    id: str
    folder: Path

    def cost(self, name: str) -> float | None:
        """Return the run's usage: "tokens" (input and output), "usd" or "seconds"; None when not recorded."""
        for units in COSTS[name]:
            if spent := [self.spent[unit] for unit in units if unit in self.spent]:
                return sum(spent)
        return None


@dataclass(frozen=True)
class Entry:
    """A solver with its runs; *reasons*: why it has no rank; *baseline*: without skill; *stale*: reasons of stale runs."""

    name: str
    runs: tuple[LeaderboardRun, ...]
    baseline: bool = False
    reasons: tuple[str, ...] = ()
    stale: tuple[str, ...] = ()
    made_of: tuple[Any, ...] = field(default=(), compare=False, repr=False)
    """All inputs of the entry, to detect whether it must be made again."""

    @cached_property
    def scores(self) -> dict[TaskKey, float]:
        """Task to the share of its repeats that succeeded."""
        return self._mean_by_task(lambda run: run.succeeded)

    def by_task(self, metric: str | None) -> dict[TaskKey, float]:
        """Return task to the mean over repeats of *metric* (None: of success)."""
        return self.scores if metric is None else self._mean_by_task(lambda run: run.values.get(metric))

    def costs(self, name: str) -> dict[TaskKey, float]:
        """Return the mean over repeats of the usage *name*, one of `COSTS`, by task."""
        return self._mean_by_task(lambda run: run.cost(name))

    def _mean_by_task(self, reading: Callable[[LeaderboardRun], float | None]) -> dict[TaskKey, float]:
        """Return the mean of *reading* over the runs of each task; runs whose reading is None are left out."""
        found = {}
        for task, runs in self._runs_of_task.items():
            if values := [value for run in runs if (value := reading(run)) is not None]:
                found[task] = fmean(values)
        return found

    @cached_property
    def _runs_of_task(self) -> dict[TaskKey, list[LeaderboardRun]]:
        """The entry's runs by task."""
        found: dict[TaskKey, list[LeaderboardRun]] = {}
        for run in self.runs:
            found.setdefault(run.task, []).append(run)
        return found


def entries_of(graded: GradedRuns, known: Iterable[Entry] = ()) -> list[Entry]:
    """Return the entries of *graded*, by solver name; an entry of *known* with the same inputs is reused.

    Of a changed task only one version counts: the one that most solvers ran, of these the latest, so that a solver
    cannot gain by an easier version. Runs of other versions are stale.
    """
    present = _find_present_tasks([one for one in graded.counted if one.ranks])
    groups: dict[str, list[GradedRun]] = {}
    for one in graded.counted:
        groups.setdefault(graded.solver_of_cell[one.run.cell], []).append(one)
    tasks, before = set(present.items()), {entry.name: entry for entry in known}
    return [_make_entry(graded, name, groups[name], tasks, before.get(name)) for name in sorted(groups)]


def _find_present_tasks(runs: Sequence[GradedRun]) -> dict[str, str]:
    """Return task id to the digest of its current version: the one that most solvers ran, of these the latest."""
    solvers: dict[TaskKey, set[str]] = {}
    latest: dict[TaskKey, int] = {}
    for one in runs:
        run, task = one.run, (one.run.item, one.run.item_hash)
        solvers.setdefault(task, set()).add(run.solver_hash)
        latest[task] = max(latest.get(task, 0), run.started_ns)
    order = sorted(solvers, key=lambda task: (len(solvers[task]), latest[task], task))
    return dict(order)


def _make_entry(
    graded: GradedRuns, name: str, solver_runs: Sequence[GradedRun], tasks: set[TaskKey], known: Entry | None
) -> Entry:
    """Return the solver's entry from its runs on current *tasks*, with reasons for no rank; *known* if unchanged."""
    baseline = _is_baseline(graded, solver_runs[0].run)
    made_of = (solver_runs, tasks, baseline, graded.ranks_unsealed, graded.aborted.get(name))
    if known is not None and known.made_of == made_of:
        return known
    present = [one for one in solver_runs if (one.run.item, one.run.item_hash) in tasks]
    void = sum(not one.ranks for one in solver_runs)
    higher = [one.name for one in graded.domain.metrics() if one.direction == "higher"]
    made = [run for one in present if (run := _as_board_run(graded, one, higher)) is not None]
    reasons = list(dict.fromkeys(reason for one in solver_runs for reason in why_not_ranked(one.run)))
    if graded.ranks_unsealed:
        reasons = [reason for reason in reasons if reason != NOT_RANKED["unsealed"]]
    if cells := graded.aborted.get(name):
        reasons.append(f"{cells} of its cells were aborted and have no result")
    if missing := len(tasks - {run.task for run in made}):
        reasons.append(f"it has no graded run of {missing} of {plural(len(tasks), 'task')}")
    if baseline:
        reasons.insert(0, "it is a baseline")
    stale = []
    if old := len(solver_runs) - len(present) - void:
        stale.append(f"not counted: {plural(old, 'run')} of former forms of tasks")
    if others := sorted({one.run.versions.get("opsassay", "unknown") for one in present} - {__version__}):
        stale.append(f"made with OpsAssay {', '.join(others)}, not {__version__}")
    return Entry(name, tuple(made), baseline, tuple(reasons), tuple(stale), made_of)


def _as_board_run(graded: GradedRuns, one: GradedRun, higher: Sequence[str]) -> LeaderboardRun | None:
    """Return *one* as a run of the board, 0 for failed metrics in *higher*; None when its success is unknown."""
    run, metrics = one.run, one.verdict.metrics
    failed = run.status is not RunStatus.DONE
    succeeded = outcome_of(graded.domain, run, metrics)
    if succeeded is None:
        return None
    values = {name: metric.value for name, metric in metrics.items() if metric.value is not None}
    values |= {name: 0.0 for name in higher if name in metrics and metrics[name].status is MetricStatus.FAILED}
    return LeaderboardRun(
        (run.item, run.item_hash), run.system, float(succeeded), values, failed, run.spent, run.ended_ns or 0,
        run_id(run), one.folder,
    )  # fmt: skip


def _is_baseline(graded: GradedRuns, run: Run) -> bool:
    """Return whether the run's solver is a baseline, as *graded* states or by name; never an external agent."""
    if graded.baselines is not None:
        return run.solver_hash in graded.baselines
    brought = run.isolation in ("sealed", "unsealed")
    return not brought and (run.solver.name in BASELINES or _is_baseline_oracle(run.solver.name))


def _is_baseline_oracle(name: str) -> bool:
    """Return whether *name* is an oracle, or a control run as oracle, that counts as a baseline."""
    return name.startswith(ORACLE) and name.removeprefix(ORACLE).removeprefix(CONTROL) in BASELINE_ORACLES
