"""The process that runs SQL of unknown origin, with tables in memory and access to nothing else.

It is a script that imports only the standard library and duckdb, so it starts in a fraction of a second. It speaks JSON
lines: the first line on standard input is the setup, each further one a query; each gets one line in reply. It exits
when its input ends, also during a query, so it never outlives its parent.
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
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO

MAX_SQL_CHARACTERS = 100_000
MAX_CELL_CHARACTERS = 20_000
MAX_REPLY_CHARACTERS = 4_000_000
MAX_TREE_DEPTH = 1500
"""Most levels of a parse tree; an operator takes three or four."""

MAIN = "main"
SHAKEN = "view_shaken"
VIEWS = ("view_none", "view_only", "view_without", "view_without_even", "view_without_odd", "view_changed", SHAKEN)
"""Schemas with variants of the tables, for a subject (`sql.Subject`) whose rows are compared with the others.

In this order: no rows, only the subject's rows, all without them, without every second of them (even, odd), with other
numbers in them, and all numbers scaled by a factor and times shifted a little.
"""

SCHEMAS = frozenset({"", MAIN, "information_schema", "pg_catalog"})
"""Schemas that a query may read from."""

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
"""Table functions that a query may call; others read files, settings or secrets, or run unchecked SQL."""

READERS = frozenset({"read_parquet", "parquet_scan"})


class RefusedStatementError(Exception):
    """The statement is not one SELECT over the loaded tables."""


class _Utc(dt.tzinfo):
    """UTC with the method of pytz that duckdb calls for each timestamp with a zone; pytz itself is not needed."""

    def utcoffset(self, _moment: dt.datetime | None) -> dt.timedelta:
        """Return zero: UTC has no offset from itself."""
        return dt.timedelta(0)

    def dst(self, _moment: dt.datetime | None) -> dt.timedelta:
        """Return zero: UTC has no daylight saving time."""
        return dt.timedelta(0)

    def tzname(self, _moment: dt.datetime | None) -> str:
        """Return the name of this zone, "UTC"."""
        return "UTC"

    def localize(self, moment: dt.datetime) -> dt.datetime:
        """Return *moment*, a time without a zone, as a time in UTC."""
        return moment.replace(tzinfo=self)


def main() -> None:
    """Load the tables that the first line of standard input names, then answer a query a line until it ends."""
    sys.setrecursionlimit(4 * MAX_TREE_DEPTH)
    replies = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever a library prints must not get between the replies
    requests: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
    threading.Thread(target=_listen_for_requests, args=(requests,), daemon=True).start()
    setup = requests.get()
    try:
        connection = load(setup["tables"], setup["memory_mb"])
    except Exception as error:  # noqa: BLE001 - whatever it is, the parent reports it
        _send_reply(replies, {"status": "error", "message": f"the tables cannot be loaded: {error}"})
        return
    schemas = {name: _describe_table(connection, name) for name in setup["tables"]}
    _send_reply(replies, {"status": "ready", "schemas": schemas})
    while True:
        request = requests.get()
        _send_reply(replies, run_query(connection, frozenset(schemas), request, setup["max_rows"]))


def _listen_for_requests(requests: queue.SimpleQueue[dict[str, Any]]) -> None:
    """Put each JSON line of standard input into *requests*; end this process when the input ends."""
    for line in sys.stdin.buffer:
        requests.put(json.loads(line))
    os._exit(0)


def _send_reply(replies: BinaryIO, reply: Mapping[str, Any]) -> None:
    """Write *reply* to the stream *replies* as one JSON line."""
    replies.write(json.dumps(reply, separators=(",", ":")).encode() + b"\n")
    replies.flush()


def load(tables: Mapping[str, str], memory_mb: int) -> Any:
    """Return a DuckDB connection with *tables* (name to parquet file) in memory, and no access to anything else."""
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


def _describe_table(connection: Any, table: str) -> list[tuple[str, str]]:
    """Return (column, SQL type) of each column of *table* in the database of *connection*."""
    return [(row[0], row[1]) for row in connection.execute(f'DESCRIBE main."{table}"').fetchall()]


def run_query(connection: Any, tables: frozenset[str], request: Mapping[str, Any], max_rows: int) -> dict[str, Any]:
    """Run one query; return status, columns, rows, message, truncated, and spent if the worker must be replaced.

    *executed* is the text that ran, *tree* (if requested) its parse tree. The request's *schemas* are those from which each
    read of a telemetry table takes its rows, in the order of `reads`; ``main`` by default.
    """
    import duckdb

    try:
        if "subject" in request:
            _name_subject(connection, tables, request["subject"])
            return {"status": "empty"}
        statement = check_statement(connection, request["sql"], tables)
        if request.get("schemas"):
            statement = statement.in_schemas(connection, request["schemas"])
        about = {"executed": statement.text} | ({"tree": statement.tree} if request.get("tree") else {})
        given = {name: value for name, value in (request.get("parameters") or {}).items() if name in statement.names}
        cursor = connection.execute(statement.text, given) if given else connection.execute(statement.text)
        columns = [column[0] for column in cursor.description]
        rows, truncated = _fetch_rows(cursor, min(max_rows, request.get("max_rows") or max_rows))
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
    return {"status": "ok" if rows else "empty", "columns": columns, "rows": rows, "truncated": truncated, **about}


@dataclass(frozen=True)
class CheckedStatement:
    """One SELECT: its *text* was written from a parse tree, and *tree* is parsed from that text, so they agree."""

    text: str
    tree: dict[str, Any]
    names: frozenset[str]
    """The names of its parameters."""

    def in_schemas(self, connection: Any, schemas: Sequence[str]) -> CheckedStatement:
        """Return a copy in which the n-th read of a telemetry table is from the n-th of *schemas*."""
        tree = json.loads(json.dumps(self.tree))
        for node, schema in zip(reads(tree), schemas, strict=True):
            _point_at_table(node, schema, node["table_name"])
        return CheckedStatement(_format_statement(connection, tree), tree, self.names)


def check_statement(connection: Any, sql: str, tables: frozenset[str]) -> CheckedStatement:
    """Return *sql* rewritten so that every read of a table, or of its file 'TABLE.parquet', names the table itself.

    The text is written from the rewritten parse tree, so comments and the like are gone and the checked statement is the
    one that runs. Raises RefusedStatementError unless it is exactly one SELECT that calls known table functions.
    """
    import duckdb

    if len(sql) > MAX_SQL_CHARACTERS:
        raise RefusedStatementError(f"the statement is longer than {MAX_SQL_CHARACTERS} characters; shorten it")
    statements = connection.extract_statements(sql)
    if len(statements) != 1:
        raise RefusedStatementError(f"exactly one SELECT statement is run at a time, not {len(statements)}")
    if statements[0].type != duckdb.StatementType.SELECT:
        raise RefusedStatementError(f"only SELECT is run here, not {statements[0].type.name}")
    tree = _parse_select(connection, sql)
    _require_depth(tree)
    _point_reads(tree["statements"][0], tables)
    text = _format_statement(connection, tree)
    tree = _parse_select(connection, text)
    _require_known(tree, tables)
    return CheckedStatement(text, tree, frozenset(e["key"] for e in tree["statements"][0].get("named_param_map") or ()))


def _parse_select(connection: Any, sql: str) -> dict[str, Any]:
    """Return the parse tree of *sql*; raises RefusedStatementError unless it is exactly one SELECT."""
    tree: dict[str, Any] = json.loads(connection.execute("SELECT json_serialize_sql(?)", [sql]).fetchone()[0])
    if tree.get("error"):
        raise RefusedStatementError(f"only plain SELECT is run here: {tree.get('error_message')}")
    if len(tree["statements"]) != 1:
        raise RefusedStatementError("exactly one SELECT statement is run at a time")
    return tree


def _format_statement(connection: Any, tree: Mapping[str, Any]) -> str:
    """Return the SQL text of the parse tree *tree*, by DuckDB; raises RefusedStatementError if it has none."""
    import duckdb

    try:
        return str(connection.execute("SELECT json_deserialize_sql(?)", [json.dumps(tree)]).fetchone()[0])
    except duckdb.Error as error:
        raise RefusedStatementError(f"the statement cannot be written from its tree: {error}") from error


def tree_nodes(tree: Any) -> Iterator[dict[str, Any]]:
    """Yield every object of the JSON value *tree*, a statement's parse tree, parents before children."""
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        if isinstance(node, dict):
            yield node
            waiting.extend(node.values())
        elif isinstance(node, list):
            waiting.extend(node)


def reads(tree: Any) -> list[dict[str, Any]]:
    """Return the nodes of a checked parse tree that read a telemetry table, in the order of the tree."""
    return [n for n in tree_nodes(tree) if n.get("type") == "BASE_TABLE" and n.get("schema_name") == MAIN]


def _point_reads(node: Any, tables: frozenset[str], local_names: frozenset[str] = frozenset()) -> None:
    """Rewrite each read below *node* to name its table in schema main; *local_names* are defined by WITH around it."""
    if not isinstance(node, dict):
        for part in node if isinstance(node, list) else ():
            _point_reads(part, tables, local_names)
        return
    for entry in (node.get("cte_map") or {}).get("map") or ():
        name = entry["key"].lower()
        body = entry["value"].get("query_node") or {}
        _point_reads(body, tables, local_names | ({name} if body.get("type") == "RECURSIVE_CTE_NODE" else set()))
        local_names |= {name}
    if node.get("type") == "TABLE_FUNCTION" and node["function"].get("function_name", "").lower() in READERS:
        table = _file_read(node["function"], tables)
        names = node.get("column_name_alias") or []
        alias = node.get("alias") or ""
        node.clear()
        node |= {"type": "BASE_TABLE", "alias": alias, "sample": None, "column_name_alias": names, "at_clause": None}
        _point_at_table(node, MAIN, table)
    elif node.get("type") == "BASE_TABLE":
        name, schema = str(node.get("table_name")), str(node.get("schema_name") or "").lower()
        table = _find_table(name, tables) or name.lower()
        is_free = schema == "" and (name.lower() not in local_names or table != name.lower())
        if table in tables and (schema == MAIN or is_free):
            _point_at_table(node, MAIN, table)
        elif schema == MAIN:
            _point_at_table(node, "", name)  # one of duckdb's own views; `reads` counts telemetry alone
    for key, part in node.items():
        if key != "cte_map":
            _point_reads(part, tables, local_names)


def _point_at_table(node: dict[str, Any], schema: str, table: str) -> None:
    """Rewrite *node*, a table read in the parse tree, to read *table* in *schema*."""
    path = [schema, table] if schema else [table]
    node |= {"schema_name": schema, "table_name": table, "catalog_name": "", "qualified_name": {"path": path}}


def _require_depth(tree: Any) -> None:
    """Raise RefusedStatementError when *tree* is nested deeper than MAX_TREE_DEPTH."""
    level = [tree]
    for _ in range(MAX_TREE_DEPTH):
        parts = [part for node in level for part in (node.values() if isinstance(node, dict) else node)]
        level = [part for part in parts if isinstance(part, dict | list)]
    if level:
        raise RefusedStatementError("the statement is nested too deeply; write it flatter")


def _require_known(tree: Any, tables: frozenset[str]) -> None:
    """Raise RefusedStatementError for a table function or schema in *tree* that is not allowed."""
    for node in tree_nodes(tree):
        name = (node.get("function") or {}).get("function_name", "") if node.get("type") == "TABLE_FUNCTION" else ""
        if name and name.lower() not in TABLE_FUNCTIONS:
            raise RefusedStatementError(f"the table function {name} is not available; tables: {_name_list(tables)}")
        if node.get("type") == "BASE_TABLE" and str(node.get("schema_name") or "").lower() not in SCHEMAS:
            raise RefusedStatementError(
                f"the schema {node['schema_name']} is not available; tables: {_name_list(tables)}"
            )


def _file_read(function: dict[str, Any], tables: frozenset[str]) -> str:
    """Return the table whose file the call *function* reads; raises RefusedStatementError for any other file."""
    arguments = function.get("arguments") or []
    literal = (arguments[0]["expression"].get("literal") if len(arguments) == 1 else None) or {}
    table = _find_table(literal.get("text"), tables) if literal.get("kind") == "STRING" else None
    if table is None:
        files = _name_list(frozenset(f"'{name}.parquet'" for name in tables))
        raise RefusedStatementError(f"a parquet reader takes exactly one of these names: {files}")
    return table


def _find_table(name: Any, tables: frozenset[str]) -> str | None:
    """Return the table whose file is *name*, "TABLE.parquet"; None for any other name."""
    table = name.removesuffix(".parquet") if isinstance(name, str) else ""
    return table if table != name and table in tables else None


def _name_subject(connection: Any, tables: frozenset[str], subject: Mapping[str, Any]) -> None:
    """Make the schemas VIEWS for *subject*: *names*, *columns* that may have one, *factor* that scales numbers."""
    names = "CREATE OR REPLACE TABLE view_only.subject AS SELECT unnest(?::VARCHAR[]) AS name"
    known = connection.execute("SELECT count(*) FROM duckdb_schemas() WHERE schema_name = ?", [VIEWS[0]]).fetchone()[0]
    for name in () if known else VIEWS:
        connection.execute(f"CREATE SCHEMA {name}")
    connection.execute(names, [subject["names"]])
    connection.execute("CREATE OR REPLACE TABLE view_only.shake AS SELECT ?::DOUBLE AS factor", [subject["factor"]])
    if not known:
        _make_views(connection, tables, subject["columns"])


def _make_views(connection: Any, tables: frozenset[str], columns: Sequence[str]) -> None:
    """Make views of all tables in the schemas VIEWS; a row is the subject's if one of *columns* has its name."""
    for table in tables:
        schema = _describe_table(connection, table)
        present = [column for column, _ in schema if column in columns]
        own = " OR ".join(f'coalesce("{column}" IN (FROM view_only.subject), false)' for column in present) or "false"
        other = ", ".join(
            f'CASE WHEN {own} THEN ("{column}" // 2 + 1)::{type_} ELSE "{column}" END AS "{column}"'
            for column, type_ in schema if type_ in {"UBIGINT", "DOUBLE"}
        )  # fmt: skip
        shaken = ", ".join(filter(None, (_scaled_column_sql(column, type_) for column, type_ in schema)))
        half = f"({own}) AND hash(rowid) % 2"
        of_view = ("false", own, f"NOT ({own})", f"NOT ({half} = 0)", f"NOT ({half} = 1)", "true", "true")
        replaced = {"view_changed": other, SHAKEN: shaken}
        for view, condition in zip(VIEWS, of_view, strict=True):
            shown = f"* REPLACE ({replaced[view]})" if replaced.get(view) else "*"
            source = f'SELECT {shown} FROM main."{table}" WHERE {condition}'  # noqa: S608 - names are ours
            connection.execute(f'CREATE OR REPLACE VIEW {view}."{table}" AS {source}')


def _scaled_column_sql(column: str, type_: str) -> str:
    """Return the SQL that scales *column* by the factor and shifts times; '' where it keeps its values."""
    factor = "(SELECT factor FROM view_only.shake)"
    if type_.startswith("TIMESTAMP"):
        return f'"{column}" + to_milliseconds((1e5 * ({factor} - 1))::INT) AS "{column}"'
    kept = f'"{column}" < 1000 AND "{column}" % 1 = 0'
    larger = f'CASE WHEN {kept} THEN "{column}" ELSE ("{column}" * {factor})::{type_} END AS "{column}"'
    return larger if type_ in {"UBIGINT", "DOUBLE"} else ""


def _name_list(names: frozenset[str]) -> str:
    """Return *names*, sorted, with commas between."""
    return ", ".join(sorted(names))


def _fetch_rows(cursor: Any, max_rows: int) -> tuple[list[list[Any]], bool]:
    """Return (rows as JSON values, truncated): at most *max_rows* rows, and no more text than a reply may hold."""
    rows: list[list[Any]] = []
    size = 0
    while len(rows) <= max_rows and (batch := cursor.fetchmany(min(100, max_rows + 1 - len(rows)))):
        for row in batch:
            plain = [_as_json_value(value) for value in row]
            size += len(json.dumps(plain))
            if size > MAX_REPLY_CHARACTERS:
                return rows, True
            rows.append(plain)
    return rows[:max_rows], len(rows) > max_rows


def _as_json_value(value: Any) -> Any:
    """Return *value* as a JSON value: times as ISO text, other types as text, long texts cut."""
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, dict):
        return {str(key): _as_json_value(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple | set):
        return [_as_json_value(inner) for inner in value]
    if isinstance(value, decimal.Decimal):
        return int(value) if value == value.to_integral_value() else float(value)
    text = _as_text(value)
    return text if len(text) <= MAX_CELL_CHARACTERS else f"{text[:MAX_CELL_CHARACTERS]}... ({len(text)} characters)"


def _as_text(value: Any) -> str:
    """Return *value* as text: times in ISO form, bytes in hexadecimal."""
    if isinstance(value, dt.datetime | dt.date | dt.time):
        return value.isoformat()
    return value.hex() if isinstance(value, bytes) else str(value)


if __name__ == "__main__":
    main()
