"""Leaderboards of task sets, from the results of every benchmark on the tasks as they are frozen now."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from sqlalchemy import ARRAY, Connection, Row, Text, and_, any_, cast, func, literal, select
from sqlalchemy.exc import SQLAlchemyError

from opsassay.analysis.leaderboard.board import make_board
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


class AgentCells(NamedTuple):
    """A registered agent, and the hashes of its *cells*."""

    name: str
    kind: str
    source: str
    cells: Sequence[str]


class LeaderboardCache:
    """Leaderboards by task set; one is made again when the results, or the cells that have none, change."""

    def __init__(self, platform: Platform) -> None:
        self._platform, self._lock = platform, threading.Lock()
        self._kept: dict[tuple[str, str, bool], tuple[tuple[Any, ...], TaskSetLeaderboard]] = {}
        self._runs: dict[tuple[str, str, int], GradedRun] = {}
        self._renamed: dict[tuple[str, str], tuple[GradedRun, GradedRun]] = {}
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
        here = and_(BENCHMARKS.c.task_set == task_set, BENCHMARKS.c.digest == digest)
        joined = CELLS.join(BENCHMARKS)
        counted = select(func.count(RESULTS.c.cell_id), func.sum(_CONTENT), func.count(CELLS.c.error))
        mark = (digest, *connection.execute(counted.select_from(joined.outerjoin(RESULTS)).where(here)).one())
        with self._lock:
            kept = self._kept.get((task_set, level, hosted))
            if kept is None or kept[0] != mark:
                kept = mark, self._make_leaderboard(connection, task_set, tasks, here, level, hosted=hosted)
                self._kept[task_set, level, hosted] = kept
            return kept[1]

    def _make_leaderboard(
        self, connection: Connection, task_set: str, tasks: TaskSet, condition: Any, level: str, *, hosted: bool
    ) -> TaskSetLeaderboard:
        """Return the leaderboard of *task_set* over the runs that meet *condition*.

        *level* "" takes all levels; *hosted* keeps only self-hosted agents and baselines.
        """
        every = self._grade_runs(connection, task_set, condition)
        level_of = {key: self._level_of_task(key) for one in every for key in [(one.run.item, one.run.item_hash)]}
        agents = _agents(connection, condition)
        registered, self_hosted, baselines = _registered(agents, tasks)
        chosen = [
            self._as_registered(one, registered)
            for one in every
            if not level or level_of[one.run.item, one.run.item_hash] == level
            if not hosted or one.run.cell in self_hosted | baselines
        ]
        runs = [one.run for one in chosen]
        aborted = self._aborted(connection, condition, runs, level_of if level else None)
        hashes = frozenset(run.solver_hash for run in runs if run.cell in baselines)
        domain = domain_named(tasks.domain)
        graded = GradedRuns(domain, tuple(chosen), aborted=aborted, baselines=hashes, ranks_unsealed=hosted)
        board = make_board(graded)
        levels = tuple(one for one in LEVELS if one in level_of.values())
        return TaskSetLeaderboard(board, _agents_by_solver(agents, graded), levels, level_of)

    def _as_registered(self, graded: GradedRun, agent_names: Mapping[str, str]) -> GradedRun:
        """Return *graded* under the registered name of its agent, not the name that the agent reports; made only once."""
        if (name := agent_names.get(graded.run.cell)) is None:
            return graded
        key = graded.run.cell, name
        known, renamed = self._renamed.get(key, (None, graded))
        if known is not graded:
            solver = graded.run.solver.model_copy(update={"name": name})
            renamed = replace(graded, run=graded.run.model_copy(update={"solver": solver}))
            self._renamed[key] = graded, renamed
        return renamed

    def _level_of_task(self, key: TaskKey) -> str | None:
        """Return the level of the task with *key*, None where it is unknown."""
        if key not in self._levels:
            head = read_head(self._platform.state, key)
            self._levels[key] = None if head is None else head.level
        return self._levels[key]

    def _grade_runs(self, connection: Connection, task_set: str, condition: Any) -> list[GradedRun]:
        """Return the runs on *task_set* whose cells meet *condition*, with verdicts; an ended run is read only once."""
        joined = RESULTS.join(CELLS).join(BENCHMARKS)
        columns = (func.array_agg(one) for one in (CELLS.c.hash, RESULTS.c.run, _CONTENT))
        found = connection.execute(select(*columns).select_from(joined).where(condition)).one()
        runs = {
            cell: (task_set, run, content) for cell, run, content in zip(*(one or () for one in found), strict=True)
        }
        unknown = [run for _, run, _ in set(runs.values()) - self._runs.keys()]
        if unknown:
            store = self._platform.store(task_set)
            said = RESULTS.c.run, RESULTS.c.metrics, RESULTS.c.record, _CONTENT.label("content")
            of = RESULTS.c.run == any_(literal(unknown, ARRAY(Text)))
            for row in connection.execute(select(*said).select_from(joined).where(condition, of)):
                self._runs[task_set, row.run, row.content] = _read_graded_run(store / row.run, row)
        return [self._runs[key] for key in runs.values()]

    def _aborted(
        self, connection: Connection, condition: Any, runs: Sequence[Run], tasks: Mapping[TaskKey, str | None] | None
    ) -> dict[str, int]:
        """Return solver, by its name on the leaderboard, to the number of its cells that ended in an error.

        *runs* are those on the leaderboard, *tasks* all graded tasks: one without a run in *runs* does not count.
        None counts all.
        """
        joined = CELLS.join(BENCHMARKS).outerjoin(RESULTS)
        lost = select(CELLS.c.benchmark_id, CELLS.c.task, CELLS.c.task_digest).select_from(joined)
        lost = lost.where(condition, CELLS.c.error.is_not(None), RESULTS.c.cell_id.is_(None))
        shown = {(run.item, run.item_hash) for run in runs}
        lost_of = Counter(
            row.benchmark_id
            for row in connection.execute(lost)
            if tasks is None or (row.task, row.task_digest) in shown or (row.task, row.task_digest) not in tasks
        )
        if not lost_of:
            return {}
        name = solver_names(runs)
        of_cell = {run.cell: name(run) for run in runs}
        counts: Counter[str] = Counter()
        for benchmark, cells in lost_of.items():
            with_run = select(CELLS.c.hash).where(CELLS.c.benchmark_id == benchmark)
            names = {of_cell[h] for h in connection.execute(with_run).scalars() if h in of_cell}
            counts.update(dict.fromkeys(names, cells))
        return dict(counts)


def _read_graded_run(folder: Path, row: Row[*tuple[Any, ...]]) -> GradedRun:
    """Return the run of *row* with its metrics; read from *folder* when the row has no copy of it."""
    run = read_run(folder) if row.record is None else Run.model_validate_json(row.record)
    metrics = {name: Metric.model_validate(metric) for name, metric in row.metrics.items()}
    return GradedRun(folder, run, verdict_of(run, metrics))


def _agents(connection: Connection, condition: Any) -> list[AgentCells]:
    """Return the agents of the cells that meet *condition* with the hashes of these, the one registered last first."""
    columns = AGENTS.c.name, AGENTS.c.kind, AGENTS.c.source, func.array_agg(CELLS.c.hash)
    query = select(*columns).select_from(CELLS.join(BENCHMARKS).join(AGENTS)).where(condition).group_by(AGENTS.c.id)
    return [AgentCells(*row) for row in connection.execute(query.order_by(AGENTS.c.created_ns.desc()))]


def _registered(agents: Sequence[AgentCells], tasks: TaskSet) -> tuple[dict[str, str], frozenset[str], frozenset[str]]:
    """Return cell to the first owner's agent that ran it, the cells of self-hosted agents, and those of baselines.

    A baseline is what the platform runs itself under its usual name, or what *tasks* lists.
    """
    known = {*baselines_of(tasks), *USUAL_BASELINES.get(tasks.domain, ())}
    brought = {cell: one.name for one in agents if one.kind != "built_in" for cell in one.cells}
    hosted = frozenset(cell for one in agents if one.kind == "self_hosted" for cell in one.cells)
    usual = (one for one in agents if one.kind == "built_in" and one.source in known)
    return brought, hosted, frozenset(cell for one in usual for cell in one.cells)


def _agents_by_solver(agents: Sequence[AgentCells], graded: GradedRuns) -> dict[str, tuple[str, ...]]:
    """Return the name of each solver of *graded* to its registered agents."""
    solvers = graded.solver_of_cell
    found: dict[str, set[str]] = {}
    for agent in agents:
        for solver in {solvers[cell] for cell in agent.cells if cell in solvers}:
            found.setdefault(solver, set()).add(agent.name)
    return {solver: tuple(sorted(names)) for solver, names in found.items()}


def self_reported(connection: Connection, task_set: str) -> list[dict[str, Any]]:
    """Return the figures that owners reported of their agents on *task_set*, the latest first."""
    query = select(REPORTS, AGENTS.c.name.label("agent_name")).join_from(REPORTS, AGENTS)
    query = query.where(REPORTS.c.task_set == task_set).order_by(REPORTS.c.created_ns.desc()).limit(200)
    return [dict(row) for row in connection.execute(query).mappings()]
