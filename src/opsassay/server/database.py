"""The platform's database: its tables, migration, and a lock for a single server.

Times are nanoseconds of UTC; data without columns of its own is JSON.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.resources import files

from alembic import command
from alembic.config import Config
from procrastinate import App, SyncPsycopgConnector
from sqlalchemy import (
    JSON,
    BigInteger,
    Boolean,
    Column,
    Engine,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    String,
    Table,
    Text,
    UniqueConstraint,
    create_engine,
    text,
)
from sqlalchemy.exc import OperationalError, SQLAlchemyError

from opsassay.core.errors import OperationError, UserError

_SERVER_LOCK, _MIGRATION_LOCK = 0x0A55A902, 0x0A55A903
OLDEST = 13
"""The oldest supported major version of PostgreSQL."""


def engine_of(url: str, connections: int = 8) -> Engine:
    """Return an engine for the PostgreSQL database at *url* with a pool of *connections*, three times as many at most.

    Raises UserError for another kind of address.
    """
    scheme, separator, rest = url.partition("://")
    if not separator or scheme not in ("postgresql", "postgres"):
        raise UserError(
            f"{_hide_password(url)} is no address of a PostgreSQL database; write postgresql://USER:PASSWORD@HOST/NAME."
        )
    return create_engine(
        f"postgresql+psycopg://{rest}", pool_pre_ping=True, pool_size=connections, max_overflow=2 * connections
    )


def migrate(engine: Engine, url: str) -> str:
    """Upgrade the tables, those of the queue too, to the newest schema; return the PostgreSQL version.

    Raises OperationError when the database cannot be reached, is too old or was made by a newer OpsAssay.
    """
    try:
        with engine.begin() as connection:
            version = connection.execute(text("SHOW server_version")).scalar_one()
            if int(str(version).split(".", maxsplit=1)[0]) < OLDEST:
                raise OperationError(f"PostgreSQL {version} is too old; the platform needs {OLDEST} or newer.")
            connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": _MIGRATION_LOCK})
            config = Config()
            config.set_main_option("script_location", str(files("opsassay.server") / "migrations"))
            config.attributes["connection"] = connection
            command.upgrade(config, "head")
            made = connection.execute(text("SELECT to_regclass('procrastinate_jobs')")).scalar_one()
    except OperationalError as error:
        raise unreachable(url, error) from error
    except SQLAlchemyError as error:
        raise OperationError(f"The database could not be prepared: {_first_line(error)}.") from error
    except Exception as error:
        if "Can't locate revision" in str(error):
            raise OperationError("The database was made by a newer OpsAssay; upgrade this one.") from error
        raise
    if made is None:
        with App(connector=SyncPsycopgConnector(conninfo=url)).open() as queue:
            queue.schema_manager.apply_schema()
    return str(version)


@contextmanager
def sole_server(engine: Engine) -> Iterator[None]:
    """Hold this database's lock for a single server during the block; raises OperationError if another has it."""
    with engine.connect() as connection:
        if not connection.execute(text("SELECT pg_try_advisory_lock(:lock)"), {"lock": _SERVER_LOCK}).scalar_one():
            raise OperationError("Another server uses this database; end it, or give this one a database of its own.")
        yield


def unreachable(url: str, error: Exception) -> OperationError:
    """Return an OperationError that the database at *url* cannot be reached because of *error*."""
    return OperationError(
        f"The database {_hide_password(url)} cannot be reached ({_first_line(error)}); is it running?"
    )


def _first_line(error: Exception) -> str:
    """Return the first line of the message of *error*, up to 300 characters, without a full stop."""
    return str(error).strip().splitlines()[0][:300].rstrip(".")


def _hide_password(url: str) -> str:
    """Return *url* without its password."""
    head, at, tail = url.rpartition("@")
    return f"{head.rpartition(':')[0]}:…{at}{tail}" if at else url


METADATA = MetaData()


def _id_column() -> Column[str]:
    """Return the primary key column ``id``."""
    return Column("id", String(40), primary_key=True)


USERS = Table(
    "users", METADATA, _id_column(),
    Column("name", String(100), nullable=False, unique=True),
    Column("role", String(20), nullable=False),
    Column("token_hash", String(64), nullable=False, unique=True),
    Column("expires_ns", BigInteger),
    Column("created_ns", BigInteger, nullable=False),
)  # fmt: skip

AGENTS = Table(
    "agents", METADATA, _id_column(),
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
    "benchmarks", METADATA, _id_column(),
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
"""One row per cell: the primary key prevents a second score.

*record* is the run.json from which leaderboards are made without opening the run's folder; NULL in rows from before the
column existed.
"""

REPORTS = Table(
    "reports", METADATA, _id_column(),
    Column("agent_id", ForeignKey("agents.id"), nullable=False),
    Column("task_set", String(100), nullable=False),
    Column("said", JSON, nullable=False),
    Column("artefact", String(64)),
    Column("created_ns", BigInteger, nullable=False),
)  # fmt: skip
"""Results that owners report of their agents: shown, marked, never ranked."""

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
