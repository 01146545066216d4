"""The alembic environment: it runs the migrations on the connection of `database.migrate`."""

from __future__ import annotations

from alembic import context

from opsassay.server.database import METADATA

context.configure(connection=context.config.attributes["connection"], target_metadata=METADATA)
with context.begin_transaction():
    context.run_migrations()
