"""Ends benchmarks, bundles and agents whose state has outlasted its timeout."""

from __future__ import annotations

import time

from sqlalchemy import ColumnElement, Table, and_, select, update

from opsassay.server.benchmarks import Platform, end_if_whole, move_benchmark, move_cell
from opsassay.server.database import BENCHMARKS, CELLS
from opsassay.server.states import AGENT, BENCHMARK, BUNDLE


def expire(platform: Platform, now_ns: int | None = None) -> int:
    """End benchmarks, bundles and agents past the timeout of their state at *now_ns* (None: now); return how many."""
    now, count = now_ns or time.time_ns(), 0
    for state, longest_s in BENCHMARK.timeouts.items():
        if longest_s is not None:
            late = and_(BENCHMARKS.c.state == state, BENCHMARKS.c.since_ns < now - int(longest_s * 1e9))
            why = f"it was {state} for more than {longest_s / 3600:g} hours"
            count += sum(_expire_benchmark(platform, one, late, why) for one in _select_ids(platform, BENCHMARKS, late))
    for name, machine in (("bundle", BUNDLE), ("agent", AGENT)):
        for state, longest_s in machine.timeouts.items():
            if longest_s is not None:
                late = and_(CELLS.c[name] == state, CELLS.c.since_ns < now - int(longest_s * 1e9))
                late = and_(late, CELLS.c.bundle.not_in(BUNDLE.ends))
                why = f"the {name} was {state} for more than {longest_s / 3600:g} hours"
                count += sum(_expire_cell(platform, one, late, why) for one in _select_ids(platform, CELLS, late))
    return count


def _select_ids(platform: Platform, table: Table, late: ColumnElement[bool]) -> list[str]:
    """Return the ids of the rows of *table* that meet the SQL condition *late*."""
    with platform.engine.connect() as connection:
        return list(connection.execute(select(table.c.id).where(late)).scalars())


def _expire_benchmark(platform: Platform, benchmark: str, late: ColumnElement[bool], reason: str) -> bool:
    """End *benchmark* with *reason* if it still meets the SQL condition *late*; return whether it did."""
    with platform.writing() as connection:
        found = connection.execute(select(BENCHMARKS.c.id).where(BENCHMARKS.c.id == benchmark, late).with_for_update())
        if found.first() is None:
            return False
        move_benchmark(connection, benchmark, BENCHMARK.expired, reason)
    return True


def _expire_cell(platform: Platform, cell: str, late: ColumnElement[bool], reason: str) -> bool:
    """End *cell* with *reason* if it still meets *late*, its benchmark after the last cell; return whether it did."""
    with platform.writing() as connection:
        values = {"error": reason, "worker": None, "heartbeat_ns": None}
        changed = update(CELLS).where(CELLS.c.id == cell, late).values(**values).returning(CELLS.c.benchmark_id)
        benchmark = connection.execute(changed).scalar()
        if benchmark is None:
            return False
        move_cell(connection, cell, bundle="Error")
        end_if_whole(connection, benchmark)
    return True
