"""Leaderboards of task sets, from the results of every benchmark on the tasks as they are frozen now."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from sqlalchemy import ARRAY, Connection, Row, Text, any_, cast, func, literal, select
from sqlalchemy.exc import SQLAlchemyError

from opsassay.analysis.leaderboard.board import Leaderboard, make_board
from opsassay.analysis.leaderboard.entries import TaskKey
from opsassay.core.errors import OpsAssayError, UserError
from opsassay.core.schema.run import Metric, Run
from opsassay.core.schema.task import LEVELS
from opsassay.evals.runner.domain import domain_named
from opsassay.evals.runner.grading import GradedRun, GradedRuns
from opsassay.evals.runner.ranking import solver_names
from opsassay.evals.runner.run import verdict_of
from opsassay.evals.runner.store import read_run
from opsassay.server.benchmarks import Platform
from opsassay.server.database import AGENTS, BENCHMARKS, CELLS, REPORTS, RESULTS
from opsassay.server.task_info import read_head
from opsassay.server.task_sets import USUAL_BASELINES, TaskSet, baselines_of, load_task_set
from opsassay.ui.platform.data import TaskSetLeaderboard

_CONTENT = func.hashtextextended(RESULTS.c.cell_id + RESULTS.c.evidence + cast(RESULTS.c.metrics, Text), 0)
"""What a result says, as one number: another run or another grade in its place has another."""


BenchmarkMark = Row[*tuple[Any, ...]]
"""A benchmark's id, its agent, and what changes when its results, or its cells without any, do."""


class BenchmarkRuns(NamedTuple):
    """What was read of a benchmark that had this *mark*: its *cells* by hash, and each run by what its result says."""

    mark: BenchmarkMark
    cells: Mapping[str, GradedRun | None]
    contents: Mapping[tuple[str, int], GradedRun]


class LeaderboardCache:
    """Leaderboards by task set; one is computed again when its results change, or the cells without a result.

    Benchmarks and solvers without a change keep what was computed of them; removed ones are forgotten.
    """

    def __init__(self, platform: Platform) -> None:
        self._platform, self._lock = platform, threading.Lock()
        self._kept: dict[tuple[str, str, bool], tuple[tuple[Any, ...], TaskSetLeaderboard]] = {}
        self._read: dict[str, dict[str, BenchmarkRuns]] = {}
        self._named: dict[str, dict[str, tuple[GradedRun, str | None, GradedRun]]] = {}
        self._levels: dict[TaskKey, str | None] = {}

    def prepare(self, task_set: str) -> None:
        """Compute the leaderboard of *task_set* in advance; errors are left to its page."""
        with suppress(OpsAssayError, SQLAlchemyError, OSError), self._platform.engine.connect() as connection:
            self.board(connection, task_set)

    def board(
        self, connection: Connection, task_set: str, level: str = "", *, hosted: bool = False
    ) -> TaskSetLeaderboard:
        """Return the leaderboard of *task_set*, restricted to tasks of *level* if one is given.

        *hosted* keeps only self-hosted agents and baselines. A level without runs gives an empty leaderboard.
        Raises NotFoundError and UserError.
        """
        if level not in ("", *LEVELS):
            raise UserError(f"A level is one of {', '.join(LEVELS)}.")
        tasks = load_task_set(self._platform.state, task_set)
        digest = tasks.digest()
        sums = func.count(RESULTS.c.cell_id), func.sum(_CONTENT), func.count(CELLS.c.error).label("errors")
        agent = AGENTS.c.name, AGENTS.c.kind, AGENTS.c.source
        counted = select(BENCHMARKS.c.id, *agent, *sums).group_by(BENCHMARKS.c.id, AGENTS.c.id)
        counted = counted.select_from(CELLS.join(BENCHMARKS).join(AGENTS).outerjoin(RESULTS))
        counted = counted.where(BENCHMARKS.c.task_set == task_set, BENCHMARKS.c.digest == digest)
        in_order = AGENTS.c.created_ns.desc(), AGENTS.c.id, BENCHMARKS.c.created_ns, BENCHMARKS.c.id
        mark = digest, *connection.execute(counted.order_by(*in_order))
        with self._lock:
            kept = self._kept.get((task_set, level, hosted))
            if kept is None or kept[0] != mark:
                before = None if kept is None else kept[1].board
                read = self._read_benchmarks(connection, task_set, mark[1:])
                kept = mark, self._make_leaderboard(connection, task_set, tasks, read, level, before, hosted=hosted)
                self._kept[task_set, level, hosted] = kept
            return kept[1]

    def _make_leaderboard(
        self, connection: Connection, task_set: str, tasks: TaskSet, read: Sequence[BenchmarkRuns], level: str,
        before: Leaderboard | None, *, hosted: bool,
    ) -> TaskSetLeaderboard:  # fmt: skip
        """Return the leaderboard of *task_set* over the runs that were *read*, *before* what it was the last time.

        *level* "" takes all levels; *hosted* keeps only self-hosted agents and baselines.
        """
        registered, self_hosted, baselines = _registered(read, tasks)
        every = self._as_registered(task_set, read, registered)
        level_of = {key: self._level_of_task(key) for key in {(one.run.item, one.run.item_hash) for one in every}}
        chosen = [
            one
            for one in every
            if not level or level_of[one.run.item, one.run.item_hash] == level
            if not hosted or one.run.cell in self_hosted or one.run.cell in baselines
        ]
        runs = [one.run for one in chosen]
        aborted = _aborted(connection, read, runs, level_of if level else None)
        hashes = frozenset(run.solver_hash for run in runs if run.cell in baselines)
        domain = domain_named(tasks.domain)
        graded = GradedRuns(domain, tuple(chosen), aborted=aborted, baselines=hashes, ranks_unsealed=hosted)
        board = make_board(graded, before)
        levels = tuple(one for one in LEVELS if one in level_of.values())
        return TaskSetLeaderboard(board, _agents_by_solver(read, graded), levels, level_of)

    def _as_registered(
        self, task_set: str, read: Sequence[BenchmarkRuns], agent_names: Mapping[str, str]
    ) -> list[GradedRun]:
        """Return the runs that were *read*, one for each cell, by the name of its agent and not what it reports."""
        before, now = self._named.get(task_set, {}), dict[str, tuple[GradedRun, str | None, GradedRun]]()
        every = {cell: run for one in read for cell, run in one.cells.items() if run is not None}
        for cell, graded in every.items():
            known, name = before.get(cell), agent_names.get(cell)
            unchanged = known is not None and known[0] is graded and known[1] == name
            now[cell] = known if known is not None and unchanged else (graded, name, _under_name(graded, name))
        self._named[task_set] = now
        return [named for _, _, named in now.values()]

    def _level_of_task(self, key: TaskKey) -> str | None:
        """Return the level of the task with *key*, None where it is unknown."""
        if key not in self._levels:
            head = read_head(self._platform.state, key)
            self._levels[key] = None if head is None else head.level
        return self._levels[key]

    def _read_benchmarks(
        self, connection: Connection, task_set: str, marks: Sequence[BenchmarkMark]
    ) -> list[BenchmarkRuns]:
        """Return the runs of the benchmarks with *marks*, in their order; those alone are read that have changed."""
        before = self._read.get(task_set, {})
        changed = {row.id: row for row in marks if row.id not in before or before[row.id].mark != row}
        columns = (func.array_agg(one) for one in (CELLS.c.hash, RESULTS.c.run, _CONTENT))
        query = select(CELLS.c.benchmark_id, *columns).select_from(CELLS.outerjoin(RESULTS))
        query = query.where(CELLS.c.benchmark_id.in_(changed)).group_by(CELLS.c.benchmark_id)
        said = {benchmark: sorted(zip(*of, strict=True)) for benchmark, *of in connection.execute(query)}
        known = {key: run for one in said if one in before for key, run in before[one].contents.items()}
        asked = {(run, content) for of in said.values() for _, run, content in of if run is not None}
        known |= self._read_runs(connection, task_set, list(said), [run for run, _ in asked - known.keys()])
        fresh = {
            benchmark: BenchmarkRuns(
                changed[benchmark],
                {cell: known.get((run, content)) for cell, run, content in of},
                {(run, content): known[run, content] for _, run, content in of if (run, content) in known},
            )
            for benchmark, of in said.items()
        }
        found = {row.id: fresh.get(row.id) or before[row.id] for row in marks}
        self._read[task_set] = found
        return list(found.values())

    def _read_runs(
        self, connection: Connection, task_set: str, benchmarks: Sequence[str], runs: Sequence[str]
    ) -> dict[tuple[str, int], GradedRun]:
        """Return *runs* of *benchmarks* with their verdicts, by folder and by what the result says."""
        if not runs:
            return {}
        store = self._platform.store(task_set)
        query = select(RESULTS.c.run, RESULTS.c.metrics, RESULTS.c.record, _CONTENT.label("content"))
        query = query.select_from(RESULTS.join(CELLS)).where(CELLS.c.benchmark_id.in_(benchmarks))
        query = query.where(RESULTS.c.run == any_(literal(runs, ARRAY(Text))))
        return {(row.run, row.content): _read_graded_run(store / row.run, row) for row in connection.execute(query)}


def _under_name(graded: GradedRun, name: str | None) -> GradedRun:
    """Return *graded* as the run of a solver called *name*; *graded* itself where that is its name, or for None."""
    if name in (None, graded.run.solver.name):
        return graded
    solver = graded.run.solver.model_copy(update={"name": name})
    return replace(graded, run=graded.run.model_copy(update={"solver": solver}))


def _aborted(
    connection: Connection,
    read: Sequence[BenchmarkRuns],
    runs: Sequence[Run],
    tasks: Mapping[TaskKey, str | None] | None,
) -> dict[str, int]:
    """Return solver, by its name on the leaderboard, to the number of its cells that ended in an error.

    *runs* are those on the leaderboard, *tasks* all graded tasks: one without a run in *runs* does not count.
    None counts all.
    """
    with_errors = {one.mark.id: one for one in read if one.mark.errors}
    if not with_errors:
        return {}
    lost = select(CELLS.c.benchmark_id, CELLS.c.task, CELLS.c.task_digest).select_from(CELLS.outerjoin(RESULTS))
    lost = lost.where(CELLS.c.benchmark_id.in_(with_errors), CELLS.c.error.is_not(None), RESULTS.c.cell_id.is_(None))
    shown = {(run.item, run.item_hash) for run in runs}
    lost_of = Counter(
        row.benchmark_id
        for row in connection.execute(lost)
        if tasks is None or (row.task, row.task_digest) in shown or (row.task, row.task_digest) not in tasks
    )
    name = solver_names(runs)
    of_cell = {run.cell: name(run) for run in runs}
    counts: Counter[str] = Counter()
    for benchmark, cells in lost_of.items():
        names = {of_cell[cell] for cell in with_errors[benchmark].cells if cell in of_cell}
        counts.update(dict.fromkeys(names, cells))
    return dict(counts)


def _read_graded_run(folder: Path, row: Row[*tuple[Any, ...]]) -> GradedRun:
    """Return the run of *row* with its metrics; read from *folder* when the row has no copy of it."""
    run = read_run(folder) if row.record is None else Run.model_validate_json(row.record)
    metrics = {name: Metric.model_validate(metric) for name, metric in row.metrics.items()}
    return GradedRun(folder, run, verdict_of(run, metrics))


def _registered(read: Sequence[BenchmarkRuns], tasks: TaskSet) -> tuple[dict[str, str], frozenset[str], frozenset[str]]:
    """Return cell to the name of the agent registered first that ran it; self-hosted agents' cells; baselines' cells.

    *read* begins with the agent registered last. A baseline is a built-in solver that the platform runs under its usual
    name, or that *tasks* lists.
    """
    known = {*baselines_of(tasks), *USUAL_BASELINES.get(tasks.domain, ())}
    brought = {cell: one.mark.name for one in read if one.mark.kind != "built_in" for cell in one.cells}
    hosted = frozenset(cell for one in read if one.mark.kind == "self_hosted" for cell in one.cells)
    usual = (one for one in read if one.mark.kind == "built_in" and one.mark.source in known)
    return brought, hosted, frozenset(cell for one in usual for cell in one.cells)


def _agents_by_solver(read: Sequence[BenchmarkRuns], graded: GradedRuns) -> dict[str, tuple[str, ...]]:
    """Return the name of each solver of *graded* to its registered agents."""
    solvers = graded.solver_of_cell
    found: dict[str, set[str]] = {}
    for one in read:
        for solver in {solvers[cell] for cell in one.cells if cell in solvers}:
            found.setdefault(solver, set()).add(one.mark.name)
    return {solver: tuple(sorted(names)) for solver, names in found.items()}


def self_reported(connection: Connection, task_set: str) -> list[dict[str, Any]]:
    """Return the figures that owners reported of their agents on *task_set*, the latest first."""
    query = select(REPORTS, AGENTS.c.name.label("agent_name")).join_from(REPORTS, AGENTS)
    query = query.where(REPORTS.c.task_set == task_set).order_by(REPORTS.c.created_ns.desc()).limit(200)
    return [dict(row) for row in connection.execute(query).mappings()]
