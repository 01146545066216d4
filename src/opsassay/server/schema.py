"""The tables of the platform's database. Times are nanoseconds of UTC; what has no columns of its own is JSON."""

from __future__ import annotations

from sqlalchemy import (
    JSON,
    BigInteger,
    Boolean,
    Column,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    String,
    Table,
    Text,
    UniqueConstraint,
)

METADATA = MetaData()


def _id() -> Column[str]:
    return Column("id", String(40), primary_key=True)


USERS = Table(
    "users", METADATA, _id(),
    Column("name", String(100), nullable=False, unique=True),
    Column("role", String(20), nullable=False),
    Column("token_hash", String(64), nullable=False, unique=True),
    Column("expires_ns", BigInteger),
    Column("created_ns", BigInteger, nullable=False),
)  # fmt: skip

AGENTS = Table(
    "agents", METADATA, _id(),
    Column("owner_id", ForeignKey("users.id"), nullable=False),
    Column("name", String(100), nullable=False, unique=True),
    Column("kind", String(20), nullable=False),
    Column("level", String(20), nullable=False),
    Column("domains", JSON, nullable=False),
    Column("source", Text, nullable=False),
    Column("created_ns", BigInteger, nullable=False),
    Column("polled_ns", BigInteger),
)  # fmt: skip

BENCHMARKS = Table(
    "benchmarks", METADATA, _id(),
    Column("agent_id", ForeignKey("agents.id"), nullable=False),
    Column("task_set", String(100), nullable=False),
    Column("digest", String(64), nullable=False),
    Column("plan", JSON, nullable=False),
    Column("state", String(30), nullable=False),
    Column("since_ns", BigInteger, nullable=False),
    Column("error", Text),
    Column("created_ns", BigInteger, nullable=False),
)  # fmt: skip

CELLS = Table(
    "cells", METADATA,
    Column("id", String(80), primary_key=True),
    Column("benchmark_id", ForeignKey("benchmarks.id"), nullable=False),
    Column("hash", String(16), nullable=False),
    Column("domain", String(40), nullable=False),
    Column("task", String(200), nullable=False),
    Column("task_digest", String(64), nullable=False),
    Column("arm", String(200), nullable=False),
    Column("seed", Integer, nullable=False),
    Column("bundle", String(30), nullable=False),
    Column("agent", String(30), nullable=False),
    Column("since_ns", BigInteger, nullable=False),
    Column("worker", String(100)),
    Column("heartbeat_ns", BigInteger),
    Column("tries", Integer, nullable=False),
    Column("access", JSON),
    Column("error", Text),
    UniqueConstraint("benchmark_id", "hash"),
    Index("cells_by_benchmark", "benchmark_id", "bundle"),
)  # fmt: skip

RESULTS = Table(
    "results", METADATA,
    Column("cell_id", ForeignKey("cells.id"), primary_key=True),
    Column("passed", Boolean),
    Column("errored", Boolean, nullable=False),
    Column("metrics", JSON, nullable=False),
    Column("evidence", String(64), nullable=False),
    Column("run", Text, nullable=False),
    Column("not_ranked", JSON, nullable=False),
    Column("ended_ns", BigInteger, nullable=False),
    Column("record", Text),
)  # fmt: skip
"""One row per cell and never two: the key is what keeps a cell from being scored twice.

*record* is the run.json that boards are made from, so that they need not open every run's folder; rows from before the
column have none.
"""

REPORTS = Table(
    "reports", METADATA, _id(),
    Column("agent_id", ForeignKey("agents.id"), nullable=False),
    Column("task_set", String(100), nullable=False),
    Column("said", JSON, nullable=False),
    Column("artefact", String(64)),
    Column("created_ns", BigInteger, nullable=False),
)  # fmt: skip
"""What agents' owners say of themselves: shown, marked, never ranked."""

EVENTS = Table(
    "events", METADATA,
    Column("seq", BigInteger, primary_key=True, autoincrement=False),
    Column("time_ns", BigInteger, nullable=False),
    Column("kind", String(60), nullable=False),
    Column("subject", String(100), nullable=False),
    Column("body", Text, nullable=False),
    Column("previous", String(64), nullable=False),
    Column("hash", String(64), nullable=False),
    Column("signature", String(128), nullable=False),
)  # fmt: skip
