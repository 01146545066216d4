"""The first form of the platform's tables."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision, down_revision, branch_labels, depends_on = "0001", None, None, None


def _identity() -> sa.Column[str]:
    """Return the primary key column `id`."""
    return sa.Column("id", sa.String(40), primary_key=True)


def _moment(name: str, *, nullable: bool = False) -> sa.Column[int]:
    """Return the column *name* for a time in ns since the epoch, *nullable* or not."""
    return sa.Column(name, sa.BigInteger, nullable=nullable)


def upgrade() -> None:
    """Create all tables of the platform."""
    op.create_table(
        "users", _identity(), sa.Column("name", sa.String(100), nullable=False, unique=True),
        sa.Column("role", sa.String(20), nullable=False),
        sa.Column("token_hash", sa.String(64), nullable=False, unique=True), _moment("expires_ns", nullable=True),
        _moment("created_ns"),
    )  # fmt: skip
    op.create_table(
        "agents", _identity(), sa.Column("owner_id", sa.String(40), sa.ForeignKey("users.id"), nullable=False),
        sa.Column("name", sa.String(100), nullable=False, unique=True), sa.Column("kind", sa.String(20), nullable=False),
        sa.Column("level", sa.String(20), nullable=False), sa.Column("domains", sa.JSON, nullable=False),
        sa.Column("source", sa.Text, nullable=False), _moment("created_ns"),
    )  # fmt: skip
    op.create_table(
        "benchmarks", _identity(), sa.Column("agent_id", sa.String(40), sa.ForeignKey("agents.id"), nullable=False),
        sa.Column("task_set", sa.String(100), nullable=False), sa.Column("digest", sa.String(64), nullable=False),
        sa.Column("plan", sa.JSON, nullable=False), sa.Column("state", sa.String(30), nullable=False),
        _moment("since_ns"), sa.Column("error", sa.Text), _moment("created_ns"),
    )  # fmt: skip
    op.create_table(
        "cells", sa.Column("id", sa.String(80), primary_key=True),
        sa.Column("benchmark_id", sa.String(40), sa.ForeignKey("benchmarks.id"), nullable=False),
        sa.Column("hash", sa.String(16), nullable=False), sa.Column("domain", sa.String(40), nullable=False),
        sa.Column("task", sa.String(200), nullable=False), sa.Column("task_digest", sa.String(64), nullable=False),
        sa.Column("arm", sa.String(200), nullable=False), sa.Column("seed", sa.Integer, nullable=False),
        sa.Column("bundle", sa.String(30), nullable=False), sa.Column("agent", sa.String(30), nullable=False),
        _moment("since_ns"), sa.Column("worker", sa.String(100)), _moment("heartbeat_ns", nullable=True),
        sa.Column("tries", sa.Integer, nullable=False), sa.Column("access", sa.JSON), sa.Column("error", sa.Text),
        sa.UniqueConstraint("benchmark_id", "hash"),
    )  # fmt: skip
    op.create_index("cells_by_benchmark", "cells", ["benchmark_id", "bundle"])
    op.create_table(
        "results", sa.Column("cell_id", sa.String(80), sa.ForeignKey("cells.id"), primary_key=True),
        sa.Column("passed", sa.Boolean),
        sa.Column("errored", sa.Boolean, nullable=False), sa.Column("metrics", sa.JSON, nullable=False),
        sa.Column("evidence", sa.String(64), nullable=False), sa.Column("run", sa.Text, nullable=False),
        sa.Column("not_ranked", sa.JSON, nullable=False), _moment("ended_ns"),
    )  # fmt: skip
    op.create_table(
        "reports", _identity(), sa.Column("agent_id", sa.String(40), sa.ForeignKey("agents.id"), nullable=False),
        sa.Column("task_set", sa.String(100), nullable=False), sa.Column("said", sa.JSON, nullable=False),
        sa.Column("artefact", sa.String(64)), _moment("created_ns"),
    )  # fmt: skip
    op.create_table(
        "events", sa.Column("seq", sa.BigInteger, primary_key=True, autoincrement=False), _moment("time_ns"),
        sa.Column("kind", sa.String(60), nullable=False), sa.Column("subject", sa.String(100), nullable=False),
        sa.Column("body", sa.Text, nullable=False), sa.Column("previous", sa.String(64), nullable=False),
        sa.Column("hash", sa.String(64), nullable=False), sa.Column("signature", sa.String(128), nullable=False),
    )  # fmt: skip


def downgrade() -> None:
    """Drop all tables of the platform."""
    for name in ("events", "reports", "results", "cells", "benchmarks", "agents", "users"):
        op.drop_table(name)
