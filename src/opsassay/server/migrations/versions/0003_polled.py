"""Agents that run elsewhere are noted when they ask for work."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision, down_revision, branch_labels, depends_on = "0003", "0002", None, None


def upgrade() -> None:
    """Add the column agents.polled_ns: when the agent last requested work."""
    op.add_column("agents", sa.Column("polled_ns", sa.BigInteger))
