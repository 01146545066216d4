"""Whether an agent that runs elsewhere is there: it asks for work again and again while it waits."""

from __future__ import annotations

from sqlalchemy import BigInteger, ColumnElement, Engine, and_, cast, extract, func, or_, select

from opsassay.server.schema import AGENTS, BENCHMARKS, CELLS

AWAY_S = 60.0
"""After how long without a question for work an agent that runs elsewhere is away: no worker waits for it."""
NOW_NS = cast(extract("epoch", func.clock_timestamp()) * 1_000_000_000, BigInteger)
"""Heartbeats are by the clock of the database: those of workers may disagree, or jump."""


def is_present() -> ColumnElement[bool]:
    """Return the condition that the agent of a cell can work: it runs here, or has asked for work of late."""
    here = or_(AGENTS.c.kind != "self_hosted", AGENTS.c.polled_ns > NOW_NS - int(AWAY_S * 1e9))
    of_present = select(BENCHMARKS.c.id).join_from(BENCHMARKS, AGENTS).where(here)
    return CELLS.c.benchmark_id.in_(of_present)


def is_left(engine: Engine, cell: str) -> bool:
    """Return whether the agent of a cell went away before it said that it has started."""
    waiting = and_(CELLS.c.id == cell, ~is_present(), CELLS.c.agent.in_(("Initializing", "Ready")))
    with engine.connect() as connection:
        return connection.execute(select(CELLS.c.id).where(waiting)).first() is not None
