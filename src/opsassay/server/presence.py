"""The presence of self-hosted agents: a waiting agent requests work repeatedly."""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Connection,
    Engine,
    and_,
    cast,
    exists,
    extract,
    func,
    or_,
    select,
    update,
)

from opsassay.server.database import AGENTS, BENCHMARKS, CELLS

AWAY_S = 60.0
"""Seconds without a request for work until a self-hosted agent is absent, and until an unstarted ready entry is dropped."""
WAITED_FOR = ("Initializing", "Ready")
"""States of a cell's agent in which a worker waits for it to start."""
NOW_NS = cast(extract("epoch", func.clock_timestamp()) * 1_000_000_000, BigInteger)
"""The time of the database's clock in ns; clocks of workers may disagree or jump."""


def is_present() -> ColumnElement[bool]:
    """Return the SQL condition that a cell's agent is hosted here or has requested work lately."""
    here = or_(AGENTS.c.kind != "self_hosted", AGENTS.c.polled_ns > NOW_NS - int(AWAY_S * 1e9))
    of_present = select(BENCHMARKS.c.id).join_from(BENCHMARKS, AGENTS).where(here)
    return CELLS.c.benchmark_id.in_(of_present)


def note_presence(connection: Connection, agent: str) -> None:
    """Record that *agent* requests work now, at most once a second."""
    earlier = or_(AGENTS.c.polled_ns.is_(None), AGENTS.c.polled_ns < NOW_NS - 1_000_000_000)
    connection.execute(update(AGENTS).where(AGENTS.c.id == agent, earlier).values(polled_ns=NOW_NS))


def is_free(cell: str) -> ColumnElement[bool]:
    """Return the SQL condition that no worker waits for the self-hosted agent of *cell* with another cell."""
    of_agent = select(BENCHMARKS.c.agent_id).join_from(CELLS, BENCHMARKS).join(AGENTS)
    hosted = of_agent.where(CELLS.c.id == cell, AGENTS.c.kind == "self_hosted").scalar_subquery()
    other = CELLS.alias()
    waited_for = and_(other.c.id != cell, other.c.worker.is_not(None), other.c.agent.in_(WAITED_FOR))
    of_same = other.join(BENCHMARKS, BENCHMARKS.c.id == other.c.benchmark_id)
    return ~exists(select(other.c.id).select_from(of_same).where(waited_for, BENCHMARKS.c.agent_id == hosted))


def is_left(engine: Engine, cell: str) -> bool:
    """Return whether the agent of *cell* is absent, or has been able to start for AWAY_S seconds and has not."""
    idle = and_(CELLS.c.agent == "Ready", CELLS.c.since_ns < NOW_NS - int(AWAY_S * 1e9))
    left = and_(CELLS.c.id == cell, CELLS.c.agent.in_(WAITED_FOR), or_(~is_present(), idle))
    with engine.connect() as connection:
        return connection.execute(select(CELLS.c.id).where(left)).first() is not None
