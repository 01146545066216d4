"""Results keep the record of their run, from which leaderboards are made."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision, down_revision, branch_labels, depends_on = "0002", "0001", None, None


def upgrade() -> None:
    """Add the column results.record, the run as JSON; leaderboards read older runs from their folders."""
    op.add_column("results", sa.Column("record", sa.Text))
