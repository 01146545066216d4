"""The queue of cells: jobs in PostgreSQL (procrastinate), one per cell, in a queue per domain."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from procrastinate import App, PsycopgConnector, SyncPsycopgConnector
from procrastinate.types import JSONValue
from sqlalchemy import Connection, select, text

from opsassay.server.benchmarks import queued_cells
from opsassay.server.database import BENCHMARKS, CELLS
from opsassay.server.presence import is_present
from opsassay.server.states import BUNDLE

RUN_CELL = "opsassay.run_cell"
STALLED_S = 20.0
"""After how long without a heartbeat of its worker a job is given to another."""


_FAIR = text(Path(__file__).with_name("fair_queue.sql").read_text(encoding="utf-8"))
"""Start-time fair queueing (Goyal, Vin and Cheng 1997): the cells of an owner follow one another by one step of priority,
from the step that is served now, so that who asks for few cells does not wait for all of who asked for many."""


def queue_name(domain: str) -> str:
    """Return the name of the queue of a domain."""
    return f"cells-{domain}"


def defer_benchmark(url: str, cells: Sequence[tuple[str, str]]) -> None:
    """Put *cells*, of id and domain, into their queues; one that waits there already is not put twice."""
    with App(connector=SyncPsycopgConnector(conninfo=url)).open() as app:
        for domain in sorted({domain for _, domain in cells}):
            deferrer = app.configure_task(RUN_CELL, queue=queue_name(domain))
            given: list[dict[str, JSONValue]] = [{"cell": cell} for cell, of in cells if of == domain]
            deferrer.batch_defer(*given)


def defer_lost(url: str, connection: Connection) -> int:
    """Put cells into their queues that are to be run and wait in none, as after a crash in between; return how many."""
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


def app_of(url: str) -> App:
    """Return the queue's application for workers."""
    return App(connector=PsycopgConnector(conninfo=url, min_size=1, max_size=2))
