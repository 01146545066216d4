"""Every state has a timeout: what has lasted longer is expired, whoever was to change it."""

from __future__ import annotations

import time

from sqlalchemy import and_, select, update

from opsassay.server.benchmarks import Platform, end_if_whole, move_benchmark, move_cell
from opsassay.server.schema import BENCHMARKS, CELLS
from opsassay.server.states import AGENT, BENCHMARK, BUNDLE


def expire(platform: Platform, now_ns: int | None = None) -> int:
    """Expire benchmarks, bundles and agents whose state has lasted too long; return how many."""
    now, count = now_ns or time.time_ns(), 0
    with platform.writing() as connection:
        for state, longest_s in BENCHMARK.timeouts.items():
            if longest_s is None:
                continue
            late = and_(BENCHMARKS.c.state == state, BENCHMARKS.c.since_ns < now - int(longest_s * 1e9))
            for benchmark in connection.execute(select(BENCHMARKS.c.id).where(late)).scalars().all():
                why = f"it was {state} for more than {longest_s / 3600:g} hours"
                move_benchmark(platform, connection, benchmark, BENCHMARK.expired, why)
                count += 1
        for name, machine in (("bundle", BUNDLE), ("agent", AGENT)):
            for state, longest_s in machine.timeouts.items():
                if longest_s is None:
                    continue
                late = and_(CELLS.c[name] == state, CELLS.c.since_ns < now - int(longest_s * 1e9))
                late = and_(late, CELLS.c.bundle.not_in(BUNDLE.ends))
                rows = connection.execute(select(CELLS.c.id, CELLS.c.benchmark_id).where(late)).all()
                for cell, benchmark in rows:
                    why = f"the {name} was {state} for more than {longest_s / 3600:g} hours"
                    values = {"error": why, "worker": None, "heartbeat_ns": None}
                    connection.execute(update(CELLS).where(CELLS.c.id == cell).values(**values))
                    move_cell(platform, connection, cell, bundle="Error")
                    end_if_whole(platform, connection, benchmark)
                    count += 1
    return count
