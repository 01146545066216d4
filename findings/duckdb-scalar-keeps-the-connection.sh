#!/usr/bin/env bash
# Package: duckdb
# Version: 2.0.0
# Date: 2026-11-30
# Happens: After `con.execute("SELECT count(*) ...").fetchone()` the connection is in use, although that was the only row:
#   `con.sql()`, `con.query()` and `con.table()` raise ResourceInUseException, and `con.execute()`, `con.executemany()` and
#   `con.begin()` work. A second `fetchone()`, which returns None, or `fetchall()` sets it free. `duckdb.execute` and
#   `duckdb.sql` share one connection, so one module that reads a scalar breaks another that never saw it.
# Guessed: A result is over once its last row is fetched, and whatever may come after `execute` may come after it in every
#   form: with duckdb 1.5.6 both are so.
# Matters: Reading one value by `fetchone()` is the usual way, and tests of a project are where modules meet in one process:
#   there the error shows in a file that did nothing wrong, and only in some orders. Use a connection of your own.
set -euo pipefail

dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
trap 'exit 130' INT TERM
python3 -m venv "$dir/venv"
for version in 1.5.6 2.0.0; do
    timeout 300 "$dir/venv/bin/python" -m pip install -qq --disable-pip-version-check \
        --target "$dir/$version" "duckdb==$version" pytz==2026.6
done

cat >"$dir/see.py" <<'PY'
import sys

import duckdb

FIRST = {
    "fetchone()": lambda result: result.fetchone(),
    "fetchone() twice": lambda result: (result.fetchone(), result.fetchone()),
    "fetchall()": lambda result: result.fetchall(),
}
NEXT = {
    "execute": lambda con: con.execute("SELECT 1").fetchall(),
    "executemany": lambda con: con.executemany("INSERT INTO t VALUES (?)", [[1]]),
    "begin": lambda con: con.begin(),
    "sql": lambda con: con.sql("SELECT 1").fetchall(),
    "query": lambda con: con.query("SELECT 1").fetchall(),
    "table": lambda con: con.table("t").fetchall(),
    "cursor().sql": lambda con: con.cursor().sql("SELECT 1").fetchall(),
}


def refused(fetch):
    """Return which calls are refused after the only row of a result was fetched by *fetch*."""
    found = set()
    for name, call in NEXT.items():
        con = duckdb.connect()
        con.execute("CREATE TABLE t (a INTEGER)")
        fetch(con.execute("SELECT count(*) FROM t"))
        try:
            call(con)
        except duckdb.Error as error:
            found.add(name)
            assert "unfinished result" in str(error), error
    return found


seen = {name: refused(fetch) for name, fetch in FIRST.items()}
for name, calls in seen.items():
    print(f"duckdb {duckdb.__version__}  after execute(...).{name:17} refused: {', '.join(sorted(calls)) or 'nothing'}")
expected = {"sql", "query", "table"} if duckdb.__version__ == "2.0.0" else set()
assert seen == {"fetchone()": expected, "fetchone() twice": set(), "fetchall()": set()}, seen

duckdb.execute("SELECT 42").fetchone()  # one module
try:
    shared = duckdb.sql("SELECT 1").fetchall()  # another module
except duckdb.Error as error:
    shared = type(error).__name__
print(f"duckdb {duckdb.__version__}  the connection of the whole process: {shared}")
assert shared == ("ResourceInUseException" if expected else [(1,)]), shared
PY
for version in 1.5.6 2.0.0; do
    PYTHONPATH="$dir/$version" "$dir/venv/bin/python" "$dir/see.py"
done
