"""A system's YAML, and what its services send, meets a PostgreSQL that runs no programs, reads no files and makes no roles.

The control is the same statement by the superuser, who is there only while no server runs.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import asyncpg
import pytest

from live import state_folder, strays
from opsassay.core.errors import StartError
from opsassay.core.schema.system import Store
from opsassay.testbed.core.networks import Site
from opsassay.testbed.core.state import SystemState
from opsassay.testbed.kernel.private_root import PRIVATE_UID, Confinement, confinement
from opsassay.testbed.workload import postgresql
from opsassay.testbed.workload.stores import start_store

CLASS = "6 superusers of stores"

pytestmark = pytest.mark.timeout(120)

STATEMENTS = {
    "a program by COPY TO": "COPY (SELECT 1) TO PROGRAM 'cat > /dev/null'",
    "a program by COPY FROM": "COPY notes FROM PROGRAM 'echo ran'",
    "a file by COPY FROM": "COPY notes FROM '{server_file}'",
    "a file by COPY TO": "COPY (SELECT 1) TO '{data}/left'",
    "a file by a function": "SELECT pg_read_file('{server_file}')",
    "a folder by a function": "SELECT pg_ls_dir('{data}')",
    "a file as a large object": "SELECT lo_import('{server_file}')",
    "a large object as a file": "SELECT lo_export(1, '{data}/exported')",
    "a role": "CREATE ROLE another",
    "a superuser": "ALTER ROLE opsassay SUPERUSER",
    "the right to run programs": "GRANT pg_execute_server_program TO opsassay",
    "the right to read files": "GRANT pg_read_server_files TO app",
    "becoming the superuser": "SET ROLE administrator",
    "becoming the superuser in a session": "SET SESSION AUTHORIZATION administrator",
    "a setting of the server": "ALTER SYSTEM SET archive_command = 'true'",
    "a library": "LOAD '{library}'",
    "a function in C": "CREATE FUNCTION f() RETURNS int AS '{library}', 'pg_stat_statements_reset' LANGUAGE c",
    "a language without limits": "CREATE LANGUAGE c2 HANDLER fmgr_c_validator",
    "users' passwords": "SELECT * FROM pg_authid",
    "a slot that keeps the log": "SELECT pg_create_physical_replication_slot('kept')",
    "an event trigger": "CREATE FUNCTION g() RETURNS event_trigger LANGUAGE plpgsql AS 'BEGIN END'; CREATE EVENT TRIGGER e ON ddl_command_end EXECUTE FUNCTION g()",
}  # fmt: skip


@pytest.fixture
def state():
    with state_folder():
        yield made_state()


def made_state():
    state = SystemState.for_system("one")
    (state.dir / "logs").mkdir(parents=True)
    return state


@contextlib.asynccontextmanager
async def running(state, store):
    started = await start_store(state, "db", store, Site("127.0.0.1", "127.0.0.1"))
    try:
        yield started
    finally:
        with contextlib.suppress(ProcessLookupError):
            started.process.send_signal(signal.SIGINT)
        await started.process.wait()


def written(statement, data):
    library = next(postgresql.postgresql_programs().parent.rglob("pg_stat_statements.so"), "pg_stat_statements")
    return statement.format(data=data, server_file=f"{data}/PG_VERSION", library=library)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """A prepared data folder that no server runs on, for the superuser."""
    folder = tmp_path_factory.mktemp("control")
    postgresql.prepared(folder, ["127.0.0.1"], 5432)
    postgresql._as_superuser(postgresql.postgresql_programs(), folder / "data", ["CREATE TABLE notes (line text)"])
    return folder / "data"


@pytest.fixture(scope="module")
def owner():
    """Run a statement over a connection as a system's setup and services have it."""
    with state_folder(), asyncio.Runner() as runner:
        state, stack = made_state(), contextlib.AsyncExitStack()
        store = Store(engine="postgresql", setup=("CREATE TABLE notes (line text)",))
        db = runner.run(stack.enter_async_context(running(state, store)))
        at = {"host": "127.0.0.1", "port": db.port, "database": "postgres", "ssl": False}
        connection = runner.run(asyncpg.connect(user=postgresql.OWNER, **at))
        yield lambda statement: runner.run(connection.execute(written(statement, state.dir / "stores/db/data")))
        runner.run(connection.close())
        runner.run(stack.aclose())


@pytest.mark.parametrize("name", STATEMENTS)
def test_the_owner_of_the_tables_may_not(owner, name):
    with pytest.raises(asyncpg.InsufficientPrivilegeError):
        owner(STATEMENTS[name])


def test_a_setup_runs_as_the_owner_of_its_tables(state):
    async def tried():
        async with running(state, Store(engine="postgresql", setup=(STATEMENTS["a program by COPY TO"],))):
            pass

    with pytest.raises(StartError, match=r"setup statement .* failed: .* to COPY to or from an external program"):
        asyncio.run(tried())


@pytest.mark.sampled
@pytest.mark.parametrize("name", STATEMENTS)
def test_the_superuser_may(data, name):
    if name == "a large object as a file":
        postgresql._as_superuser(postgresql.postgresql_programs(), data, ["SELECT lo_from_bytea(1, 'x')"])
    if name == "a language without limits":
        pytest.skip("no control: there is no handler to make one of")
    statement = "BEGIN; " + written(STATEMENTS[name], data) + "; ROLLBACK"
    if name in ("a setting of the server", "a slot that keeps the log"):
        statement = written(STATEMENTS[name], data)
    postgresql._as_superuser(postgresql.postgresql_programs(), data, [statement])


@pytest.mark.slow
@pytest.mark.parametrize("store", [Store(engine="postgresql"), Store(engine="postgresql", password="it's\\a\nsecret")])
def test_nobody_logs_in_as_the_superuser_and_services_do_as_themselves(state, store):
    async def logins():
        async with running(state, store) as db:
            at = {"host": "127.0.0.1", "port": db.port, "database": "postgres", "ssl": False, "timeout": 5}
            with pytest.raises(asyncpg.PostgresError, match=r"pg_hba\.conf rejects"):
                await asyncpg.connect(user=postgresql.SUPERUSER, **at)
            service = (
                {"user": postgresql.OWNER} if store.password is None else {"user": "app", "password": store.password}
            )
            connection = await asyncpg.connect(**service, **at)
            with pytest.raises(asyncpg.InsufficientPrivilegeError):
                await connection.execute("COPY (SELECT 1) TO PROGRAM 'cat > /dev/null'")
            assert (
                await connection.fetchval("SELECT rolsuper OR rolcreaterole FROM pg_roles WHERE rolname = current_user")
                is False
            )
            await connection.close()
            if store.password is not None:
                with pytest.raises(asyncpg.InvalidPasswordError):
                    await asyncpg.connect(user="app", password="its", **at)

    asyncio.run(logins())


def test_a_server_that_is_taken_over_is_in_a_root_of_its_own(state, outside):
    """What a hole in PostgreSQL would give: programs as a user who owns nothing and sees nothing of the machine."""
    if confinement() is not Confinement.PRIVATE_ROOT:
        pytest.skip("only root makes private roots, where it may")
    binaries = postgresql.postgresql_programs()
    command = postgresql.prepared(state.dir, ["127.0.0.1"], 5432)
    inside = command[: command.index(str(binaries / "postgres"))]
    seen = subprocess.run(
        [*inside, "sh", "-c", f"id -u; ls -a / /root /home /proc /etc; cat {outside}; echo x > {outside.parent}/left"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert seen.stdout.split()[0] == str(PRIVATE_UID)
    assert "of-the-machine" not in seen.stdout
    assert not (outside.parent / "left").exists()
    assert "shadow" not in seen.stdout
    assert outside.read_text() in subprocess.run(["cat", outside], capture_output=True, text=True, check=True).stdout


def process_and_root(pid):
    return Path(f"/proc/{pid}/status").read_text(), {path.name for path in Path(f"/proc/{pid}/root").iterdir()}


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["postgresql", "valkey", "nats"])
def test_no_server_runs_as_root_or_sees_the_machine(state, engine):
    if confinement() is not Confinement.PRIVATE_ROOT:
        pytest.skip("only root makes private roots, where it may")

    async def seen():
        async with running(state, Store(engine=engine)) as db:
            status, names = process_and_root(db.process.pid)
        assert f"Uid:\t{PRIVATE_UID}\t{PRIVATE_UID}\t{PRIVATE_UID}" in status
        assert "NoNewPrivs:\t1" in status
        assert "CapEff:\t0000000000000000" in status
        assert not names & {"proc", "sys", "var", "home"}
        assert names & {"usr"}

    asyncio.run(seen())


@pytest.mark.slow
def test_a_server_ends_with_whoever_started_it(state):
    """Without PR_SET_PDEATHSIG after the change of user a killed supervisor would leave it behind."""
    program = (
        "import asyncio, os, sys\n"
        "from opsassay.core.schema.system import Store\n"
        "from opsassay.testbed.core.networks import Site\n"
        "from opsassay.testbed.core.state import SystemState\n"
        "from opsassay.testbed.workload.stores import start_store\n"
        "async def main():\n"
        "    await start_store(SystemState.for_system('one'), 'db', Store(engine='postgresql'), Site('127.0.0.1', '127.0.0.1'))\n"
        "    os.kill(os.getpid(), 9)\n"
        "asyncio.run(main())\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False, env=dict(os.environ)
    )
    assert done.returncode == -9, done.stderr
    for _ in range(200):
        if not strays(state.dir.parents[1]):
            return
        time.sleep(0.02)
    raise AssertionError("the server is still there")
