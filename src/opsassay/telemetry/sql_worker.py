"""The process in which SQL of unknown origin runs: tables in memory, everything else locked.

It is started as a file of its own and imports the standard library and duckdb only: it is up in a fraction of a
second and little lies in its address space. It speaks JSON lines: the first line on standard input sets it up, each
further one is a query; every line is answered by one. At the end of its input, also in the middle of a query, it
exits, so it never outlives who started it.
"""

from __future__ import annotations

import datetime as dt
import decimal
import json
import os
import queue
import resource
import sys
import threading
import types
from collections.abc import Iterator, Mapping
from typing import Any, BinaryIO

MAX_SQL_CHARACTERS = 100_000
MAX_CELL_CHARACTERS = 20_000
MAX_REPLY_CHARACTERS = 4_000_000

TABLE_FUNCTIONS = frozenset(
    {
        *(
            "range",
            "generate_series",
            "unnest",
            "generate_subscripts",
            "repeat",
            "repeat_row",
            "json_each",
            "json_tree",
        ),
        *("duckdb_tables", "duckdb_columns", "duckdb_views", "duckdb_functions", "duckdb_types", "pragma_table_info"),
    }
)
"""Table functions that a query may call; others read files, settings, secrets or run SQL that was not looked at."""

READERS = frozenset({"read_parquet", "parquet_scan"})


class RefusedStatementError(Exception):
    """The statement is not one SELECT over the loaded tables."""


class _Utc(dt.tzinfo):
    """UTC with the method of pytz that duckdb calls for each timestamp with a zone; pytz itself is not needed."""

    def utcoffset(self, _moment: dt.datetime | None) -> dt.timedelta:
        return dt.timedelta(0)

    def dst(self, _moment: dt.datetime | None) -> dt.timedelta:
        return dt.timedelta(0)

    def tzname(self, _moment: dt.datetime | None) -> str:
        return "UTC"

    def localize(self, moment: dt.datetime) -> dt.datetime:
        return moment.replace(tzinfo=self)


def main() -> None:
    """Serve until the input ends."""
    replies = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever a library prints must not get between the replies
    requests: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(requests,), daemon=True).start()
    setup = requests.get()
    try:
        connection = load(setup["tables"], setup["memory_mb"])
    except Exception as error:  # noqa: BLE001 - whatever it is, the parent reports it
        _send(replies, {"status": "error", "message": f"the tables cannot be loaded: {error}"})
        return
    schemas = {name: _schema(connection, name) for name in setup["tables"]}
    _send(replies, {"status": "ready", "schemas": schemas})
    while True:
        request = requests.get()
        _send(replies, answer(connection, frozenset(schemas), request, setup["max_rows"]))


def _listen(requests: queue.SimpleQueue[dict[str, Any]]) -> None:
    for line in sys.stdin.buffer:
        requests.put(json.loads(line))
    os._exit(0)


def _send(replies: BinaryIO, reply: Mapping[str, Any]) -> None:
    replies.write(json.dumps(reply, separators=(",", ":")).encode() + b"\n")
    replies.flush()


def load(tables: Mapping[str, str], memory_mb: int) -> Any:
    """Return a connection with *tables* (name to parquet file) in memory and access to everything else closed."""
    pytz = types.ModuleType("pytz")
    pytz.timezone = lambda _name: _Utc()  # type: ignore[attr-defined]
    pytz.utc = _Utc()  # type: ignore[attr-defined]
    sys.modules["pytz"] = pytz
    import duckdb

    limit = memory_mb << 20
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    connection = duckdb.connect(":memory:", config={"threads": 1})  # one thread: the same bytes every time
    for name, value in (
        ("memory_limit", f"'{memory_mb * 6 // 10}MiB'"),
        ("temp_directory", "''"),
        ("secret_directory", "''"),
        ("TimeZone", "'UTC'"),
        ("python_enable_replacements", "false"),
        ("python_scan_all_frames", "false"),
        ("autoinstall_known_extensions", "false"),
        ("autoload_known_extensions", "false"),
        ("allow_community_extensions", "false"),
    ):
        connection.execute(f"SET {name} = {value}")
    for name, path in tables.items():
        quoted = path.replace("'", "''")
        # duckdb has few functions for zoned times in ns, so SQL sees microseconds (cut off; a cast would round)
        columns = {row[0] for row in connection.execute(f"DESCRIBE FROM read_parquet('{quoted}')").fetchall()}
        replaced = ["make_timestamp(epoch_ns(time) // 1000)::TIMESTAMPTZ AS time"] if "time" in columns else []
        if name.endswith("_traces"):
            replaced.append("coalesce(parent_span_id, '') AS parent_span_id")
        chosen = f"* REPLACE ({', '.join(replaced)})" if replaced else "*"
        source = f"SELECT {chosen} FROM read_parquet('{quoted}')"  # noqa: S608 - names are ours
        connection.execute(f'CREATE TABLE "{name}" AS {source}')
    connection.execute("SET enable_external_access = false")
    connection.execute("SET lock_configuration = true")
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    return connection


def _schema(connection: Any, table: str) -> list[tuple[str, str]]:
    return [(row[0], row[1]) for row in connection.execute(f'DESCRIBE "{table}"').fetchall()]


def answer(connection: Any, tables: frozenset[str], request: Mapping[str, Any], max_rows: int) -> dict[str, Any]:
    """Return what one query gives: status, columns, rows, message, truncated, and spent when this worker is used up."""
    import duckdb

    try:
        sql, names = checked(connection, request["sql"], tables)
        given = {name: value for name, value in (request.get("parameters") or {}).items() if name in names}
        cursor = connection.execute(sql, given) if given else connection.execute(sql)
        columns = [column[0] for column in cursor.description]
        rows, truncated = _rows(cursor, max_rows)
    except (RefusedStatementError, duckdb.PermissionException) as error:
        return {"status": "refused", "message": str(error)[:2000]}
    except (duckdb.OutOfMemoryException, duckdb.FatalException, MemoryError, RecursionError) as error:
        # what a failed allocation leaves behind would make later statements fail as well: "spent" asks for a new worker
        said = (str(error).splitlines() or [type(error).__name__])[0][:200]
        return {"status": "error", "message": f"the statement is too big for its worker: {said}", "spent": True}
    except duckdb.Error as error:
        return {"status": "error", "message": str(error)[:2000]}
    except Exception as error:  # noqa: BLE001 - a value that Python cannot hold, for instance; the query is to blame
        return {
            "status": "error",
            "message": f"the result cannot be handed over ({type(error).__name__}); cast to text",
        }
    return {"status": "ok" if rows else "empty", "columns": columns, "rows": rows, "truncated": truncated}


def checked(connection: Any, sql: str, tables: frozenset[str]) -> tuple[str, frozenset[str]]:
    """Return *sql* with reads of 'TABLE.parquet' replaced by TABLE, and the names of its parameters.

    Raises RefusedStatementError unless it is exactly one SELECT (by parsed type) that calls known table functions.
    """
    import duckdb

    if len(sql) > MAX_SQL_CHARACTERS:
        raise RefusedStatementError(f"the statement is longer than {MAX_SQL_CHARACTERS} characters; shorten it")
    statements = connection.extract_statements(sql)
    if len(statements) != 1:
        raise RefusedStatementError(f"exactly one SELECT statement is run at a time, not {len(statements)}")
    if statements[0].type != duckdb.StatementType.SELECT:
        raise RefusedStatementError(f"only SELECT is run here, not {statements[0].type.name}")
    tree = _parsed(connection, sql)
    spliced = _spliced(sql, tree, tables)
    if spliced != sql:
        tree = _parsed(connection, spliced)
        if spliced != _spliced(spliced, tree, tables):
            raise RefusedStatementError("reads of parquet files cannot be nested like this; use the table names")
    called = {n["function"].get("function_name", "") for n in tree_nodes(tree) if n.get("type") == "TABLE_FUNCTION"}
    for name in sorted(called):
        if name.lower() not in TABLE_FUNCTIONS:
            raise RefusedStatementError(f"the table function {name} is not available; tables: {_listed(tables)}")
    return spliced, frozenset(entry["key"] for entry in tree["statements"][0].get("named_param_map") or ())


def _parsed(connection: Any, sql: str) -> dict[str, Any]:
    tree: dict[str, Any] = json.loads(connection.execute("SELECT json_serialize_sql(?)", [sql]).fetchone()[0])
    if tree.get("error"):
        raise RefusedStatementError(f"only plain SELECT is run here: {tree.get('error_message')}")
    return tree


def tree_nodes(tree: Any) -> Iterator[dict[str, Any]]:
    """Yield every object of the JSON value *tree*, the parse tree of a statement."""
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        if isinstance(node, dict):
            yield node
            waiting.extend(node.values())
        elif isinstance(node, list):
            waiting.extend(node)


def _spliced(sql: str, tree: dict[str, Any], tables: frozenset[str]) -> str:
    """Return *sql* with each read of a known file replaced, at the very bytes that the parser names, by its table.

    Text that only looks like a read (in a literal, a comment or a name) has no such node and is left alone.
    """
    text, cuts = sql.encode(), []
    for node in tree_nodes(tree):
        if node.get("type") == "TABLE_FUNCTION" and node["function"].get("function_name", "").lower() in READERS:
            cuts.append(_cut_of_call(text, node, tables))
        elif node.get("type") == "BASE_TABLE" and (table := _table_of(node.get("table_name"), tables)):
            start = node["query_location"]
            end = start + len(table) + len(".parquet") + 2
            if text[start + 1 : end - 1].decode(errors="replace") != f"{table}.parquet":
                raise RefusedStatementError(f"write the table name {table} without .parquet here")
            cuts.append((start, end, table))
    for start, end, table in sorted(cuts, reverse=True):
        # qualified, because WITH abnormal_traces AS (FROM 'abnormal_traces.parquet') is what many write
        text = text[:start] + f'main."{table}"'.encode() + text[end:]
    return text.decode()


def _cut_of_call(text: bytes, node: dict[str, Any], tables: frozenset[str]) -> tuple[int, int, str]:
    arguments = node["function"].get("arguments") or []
    constant = arguments[0]["expression"] if len(arguments) == 1 else {}
    literal = constant.get("literal") or {}
    table = _table_of(literal.get("text"), tables) if literal.get("kind") == "STRING" else None
    if table is None:
        files = _listed(frozenset(f"'{name}.parquet'" for name in tables))
        raise RefusedStatementError(f"a parquet reader takes exactly one of these names: {files}")
    after = constant["query_location"] + constant["query_location_length"]
    return node["query_location"], text.index(b")", after) + 1, table


def _table_of(name: Any, tables: frozenset[str]) -> str | None:
    table = name.removesuffix(".parquet") if isinstance(name, str) else ""
    return table if table != name and table in tables else None


def _listed(names: frozenset[str]) -> str:
    return ", ".join(sorted(names))


def _rows(cursor: Any, max_rows: int) -> tuple[list[list[Any]], bool]:
    """Return at most *max_rows* rows of plain values and whether there were more, or more text than a reply holds."""
    rows: list[list[Any]] = []
    size = 0
    while len(rows) <= max_rows and (batch := cursor.fetchmany(min(100, max_rows + 1 - len(rows)))):
        for row in batch:
            plain = [_plain(value) for value in row]
            size += len(json.dumps(plain))
            if size > MAX_REPLY_CHARACTERS:
                return rows, True
            rows.append(plain)
    return rows[:max_rows], len(rows) > max_rows


def _plain(value: Any) -> Any:
    """Return *value* as JSON has it; times become ISO text, what has no other form its text, and long texts are cut."""
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, dict):
        return {str(key): _plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple | set):
        return [_plain(inner) for inner in value]
    if isinstance(value, decimal.Decimal):
        return int(value) if value == value.to_integral_value() else float(value)
    text = _text(value)
    return text if len(text) <= MAX_CELL_CHARACTERS else f"{text[:MAX_CELL_CHARACTERS]}... ({len(text)} characters)"


def _text(value: Any) -> str:
    if isinstance(value, dt.datetime | dt.date | dt.time):
        return value.isoformat()
    return value.hex() if isinstance(value, bytes) else str(value)


if __name__ == "__main__":
    main()
