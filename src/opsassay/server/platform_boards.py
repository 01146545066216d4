"""Boards of task sets, from the results of every benchmark on the tasks as they are frozen now."""

from __future__ import annotations

import threading
from collections import Counter
from typing import Any

from sqlalchemy import Connection, and_, func, select

from opsassay.bench.core.domain import domain_named
from opsassay.bench.core.grading import GradedRun, GradedRuns
from opsassay.bench.core.ranking import solver_names
from opsassay.bench.core.results import verdict_of
from opsassay.bench.core.store import read_run
from opsassay.boards.board import Board, make_board
from opsassay.model.run import Metric, Run
from opsassay.server.benchmarks import Platform
from opsassay.server.schema import AGENTS, BENCHMARKS, CELLS, REPORTS, RESULTS
from opsassay.server.task_sets import load_task_set


class BoardShelf:
    """Boards by task set; one is made again when there is a result, or a cell that has none, that it does not know."""

    def __init__(self, platform: Platform) -> None:
        self._platform, self._lock = platform, threading.Lock()
        self._kept: dict[str, tuple[tuple[Any, ...], Board]] = {}

    def board(self, connection: Connection, task_set: str) -> Board:
        """Return the board of *task_set*; raises NotFoundError."""
        tasks = load_task_set(self._platform.state, task_set)
        digest = tasks.digest()
        here = and_(BENCHMARKS.c.task_set == task_set, BENCHMARKS.c.digest == digest)
        joined = CELLS.join(BENCHMARKS)
        counted = select(func.count(RESULTS.c.cell_id), func.max(RESULTS.c.ended_ns), func.count(CELLS.c.error))
        mark = (digest, *connection.execute(counted.select_from(joined.outerjoin(RESULTS)).where(here)).one())
        with self._lock:
            kept = self._kept.get(task_set)
            if kept is None or kept[0] != mark:
                kept = mark, make_board(self._graded(connection, task_set, tasks.domain, here))
                self._kept[task_set] = kept
            return kept[1]

    def _graded(self, connection: Connection, task_set: str, domain: str, here: Any) -> GradedRuns:
        root = self._platform.store(task_set) / "runs"
        joined = RESULTS.join(CELLS).join(BENCHMARKS)
        columns = (CELLS.c.hash, RESULTS.c.run, RESULTS.c.metrics)
        rows = {row.hash: row for row in connection.execute(select(*columns).select_from(joined).where(here))}
        found = []
        for row in rows.values():
            folder = root.parent / row.run
            run = read_run(folder)
            metrics = {name: Metric.model_validate(metric) for name, metric in row.metrics.items()}
            found.append(GradedRun(folder, run, verdict_of(run, metrics)))
        return GradedRuns(
            domain_named(domain), tuple(found), aborted=self._aborted(connection, here, [g.run for g in found])
        )

    def _aborted(self, connection: Connection, here: Any, runs: list[Run]) -> dict[str, int]:
        """Return how many cells of each solver came to an error, by the name that the board has for it."""
        joined = CELLS.join(BENCHMARKS).outerjoin(RESULTS)
        lost = (
            select(CELLS.c.benchmark_id)
            .select_from(joined)
            .where(here, CELLS.c.error.is_not(None), RESULTS.c.cell_id.is_(None))
        )
        lost_of = Counter(connection.execute(lost).scalars())
        name = solver_names(runs)
        of_cell = {run.cell: name(run) for run in runs}
        counts: Counter[str] = Counter()
        for benchmark, cells in lost_of.items():
            with_run = select(CELLS.c.hash).where(CELLS.c.benchmark_id == benchmark)
            names = {of_cell[h] for h in connection.execute(with_run).scalars() if h in of_cell}
            counts.update(dict.fromkeys(names, cells))
        return dict(counts)


def self_reported(connection: Connection, task_set: str) -> list[dict[str, Any]]:
    """Return what owners report of their agents on *task_set*, the latest first."""
    query = select(REPORTS, AGENTS.c.name.label("agent_name")).join_from(REPORTS, AGENTS)
    query = query.where(REPORTS.c.task_set == task_set).order_by(REPORTS.c.created_ns.desc()).limit(200)
    return [dict(row) for row in connection.execute(query).mappings()]
