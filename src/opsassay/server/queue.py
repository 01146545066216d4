"""The queue of cells: jobs in PostgreSQL (procrastinate), one per cell, in a queue per domain."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from procrastinate import App, PsycopgConnector, SyncPsycopgConnector
from procrastinate.exceptions import ConnectorException
from procrastinate.types import JSONValue
from procrastinate.worker import Worker
from sqlalchemy import Connection, select, text

from opsassay.core.logs import Log
from opsassay.server.benchmarks import queued_cells
from opsassay.server.database import BENCHMARKS, CELLS
from opsassay.server.presence import is_present
from opsassay.server.states import BUNDLE

_log = Log(__name__)
RUN_CELL = "opsassay.run_cell"
STALLED_S = 20.0
"""Seconds without a heartbeat of its worker after which a job is given to another."""
SWEEP_S = 5.0
"""Seconds between two searches for such jobs."""

_FAIR = text(Path(__file__).with_name("fair_queue.sql").read_text(encoding="utf-8"))
"""Start-time fair queueing (Goyal, Vin and Cheng 1997): one owner's cells get successively lower priority.

The first gets the priority that is served now, so an owner with few cells does not wait for all cells of another.
"""


def queue_name(domain: str) -> str:
    """Return the name of the queue of *domain*."""
    return f"cells-{domain}"


def defer_benchmark(url: str, cells: Sequence[tuple[str, str]]) -> None:
    """Queue *cells*, (id, domain), each in the queue of its domain unless it is queued already."""
    with App(connector=SyncPsycopgConnector(conninfo=url)).open() as app:
        for domain in sorted({domain for _, domain in cells}):
            deferrer = app.configure_task(RUN_CELL, queue=queue_name(domain))
            given: list[dict[str, JSONValue]] = [{"cell": cell} for cell, of in cells if of == domain]
            deferrer.batch_defer(*given)


def defer_lost(url: str, connection: Connection) -> int:
    """Queue all open cells that are in no queue, as after a crash, in the database *url*; return their number."""
    waiting = text(
        "SELECT args->>'cell' FROM procrastinate_jobs WHERE task_name = :task AND status IN ('todo', 'doing')"
    )
    known = set(connection.execute(waiting, {"task": RUN_CELL}).scalars())
    benchmarks = connection.execute(
        select(BENCHMARKS.c.id).where(BENCHMARKS.c.state.in_(("Queued", "Running")))
    ).scalars()
    lost = [one for benchmark in benchmarks for one in queued_cells(connection, benchmark) if one[0] not in known]
    begun = CELLS.c.bundle.not_in((BUNDLE.first, *BUNDLE.ends))
    open_ones = select(CELLS.c.id, CELLS.c.domain).where(begun, is_present())
    lost += [(row.id, row.domain) for row in connection.execute(open_ones) if row.id not in known]
    if lost:
        defer_benchmark(url, lost)
        connection.execute(_FAIR, {"task": RUN_CELL, "cells": [cell for cell, _ in lost]})
        connection.commit()
    return len(lost)


class _Connector(PsycopgConnector):
    """A connector that raises when the listening connection breaks, instead of reconnecting."""

    async def _loop_notify(self, *arguments: Any, **keywords: Any) -> None:
        """Listen for new jobs; raise ConnectorException when the connection ends."""
        await super()._loop_notify(*arguments, **keywords)
        raise ConnectorException("The connection that listens for jobs broke.")


def app_of(url: str) -> App:
    """Return the Procrastinate application by which workers use the queue in the database at *url*."""
    return App(connector=_Connector(conninfo=url, min_size=1, max_size=2))


class QueueWorker(Worker):
    """procrastinate's worker that ends with ConnectorException as soon as any part of it loses the database.

    The worker process then starts another one, which registers anew, so that jobs of the old one are queued again: those
    taken while the response was lost, and those whose end could not be stored. procrastinate itself would go on without
    heartbeats and notifications: it watches its side tasks only until the first of them ends, and the one for periodic
    jobs ends at once without such jobs.
    """

    _lost: ConnectorException | None = None

    def _start_side_tasks(self) -> list[asyncio.Task[Any]]:
        """Start Procrastinate's side tasks, with `_sweep` in place of the one for periodic jobs."""
        started = [task for task in super()._start_side_tasks() if task.get_name() != "deferrer"]
        return [*started, asyncio.create_task(self._sweep(), name="sweep")]

    async def _persist_job_status(self, *arguments: Any, **keywords: Any) -> None:
        """Store a job's status; when the database is lost, stop the worker and keep the error."""
        try:
            await super()._persist_job_status(*arguments, **keywords)
        except ConnectorException as error:
            self._lost = error
            self.stop()  # type: ignore[no-untyped-call]
            raise

    async def _shutdown(self, side_tasks: list[asyncio.Task[Any]]) -> None:
        """Shut the worker down, then raise the error that ended it, if any."""
        ended = [task.exception() for task in side_tasks if task.done() and not task.cancelled()]
        await super()._shutdown(side_tasks)
        for error in (*ended, self._lost):
            if error is not None:
                raise error

    async def _sweep(self) -> None:
        """Queue again, every SWEEP_S seconds, the jobs of workers without a heartbeat."""
        while True:
            await asyncio.sleep(SWEEP_S)
            for job in await self.app.job_manager.get_stalled_jobs(seconds_since_heartbeat=STALLED_S):
                with suppress(Exception):  # another worker was faster
                    await self.app.job_manager.retry_job(job)
                    _log.warning("job of a worker that is gone", job=job.id, cell=str(job.task_kwargs.get("cell")))
