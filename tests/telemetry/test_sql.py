import math
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import duckdb
import polars as pl
import pytest

from opsassay.core.errors import NotFoundError, QueryError
from opsassay.telemetry import sql as sql_module
from opsassay.telemetry.datapack import Datapack
from opsassay.telemetry.sql import LockedSql
from opsassay.telemetry.sql_worker import MAX_CELL_CHARACTERS, MAX_SQL_CHARACTERS
from telemetry.packs import START_NS, copied, make_pack


@pytest.fixture(scope="module")
def pack(tmp_path_factory):
    return make_pack(tmp_path_factory.mktemp("packs") / "pack", error_in="store", traces=30)


@pytest.fixture(scope="module")
def sql(pack):
    with LockedSql(pack, timeout_s=20, memory_mb=1024) as locked:
        yield locked


def worker_of(locked):
    return locked._worker.pid


def test_all_ten_tables_with_their_types(sql):
    assert sorted(sql.tables()) == sorted(
        f"{period}_{modality}"
        for period in ("normal", "abnormal")
        for modality in ("traces", "logs", "metrics", "metrics_sum", "metrics_histogram")
    )
    assert sql.schema("abnormal_traces")["duration"] == "UBIGINT"
    assert sql.schema("abnormal_traces")["time"] == "TIMESTAMP WITH TIME ZONE"
    with pytest.raises(NotFoundError, match="did you mean 'normal_traces'"):
        sql.schema("normal_trace")


def test_an_answer(sql):
    got = sql.query(
        "SELECT service_name, count(*) AS n, max(duration) FROM abnormal_traces "
        "WHERE \"attr.status_code\" = 'Error' GROUP BY 1 ORDER BY 1"
    )
    assert (got.status, got.columns, got.message, got.truncated) == (
        "ok",
        ("service_name", "n", "max(duration)"),
        "",
        False,
    )
    assert got.rows == (
        ("cart", 30, 20_000_000),
        ("frontend", 30, 30_000_000),
        ("loadgenerator", 30, 40_000_000),
        ("store", 30, 10_000_000),
    )


def test_no_rows_is_empty_and_still_has_columns(sql):
    got = sql.query("SELECT span_id FROM normal_traces WHERE false")
    assert (got.status, got.columns, got.rows) == ("empty", ("span_id",), ())


def test_parameters_by_name_and_those_that_are_not_named_are_ignored(sql):
    got = sql.query("SELECT count(*) FROM normal_traces WHERE service_name = $service", {"service": "cart", "other": 1})
    assert got.rows == ((30,),)
    assert sql.query("SELECT 'x' = $service", {"service": "' OR 1=1 --"}).rows == ((False,),)
    missing = sql.query("SELECT $service")
    assert (missing.status, "service" in missing.message) == ("error", True)


def test_times_are_utc_to_the_microsecond_and_all_functions_work_on_them(sql):
    first_us = START_NS // 1000
    got = sql.query(
        "SELECT min(time), epoch_us(min(time)), date_trunc('minute', min(time)), max(time) - min(time), "
        "min(time) + INTERVAL 1 SECOND < now(), list(time ORDER BY time)[1] FROM normal_traces"
    )
    text = "2026-01-02T03:04:05.123456+00:00"
    assert got.rows == ((text, first_us, "2026-01-02T03:04:00+00:00", "0:00:58.003000", True, text),)


def test_values_of_every_kind_are_plain(sql):
    got = sql.query(
        "SELECT 'inf'::DOUBLE, 'nan'::DOUBLE, 1.50::DECIMAL(5,2), 2.00::DECIMAL(5,2), 170141183460469231731::HUGEINT, "
        "NULL, true, '\\xAA'::BLOB, {'a': [1, 2]}, MAP {'k': DATE '2020-01-02'}, TIME '10:00', INTERVAL 3 MINUTE"
    )
    (row,) = got.rows
    assert row[0] == math.inf
    assert math.isnan(row[1])
    assert row[2:] == (
        1.5, 2, 170141183460469231731, None, True, "aa", {"a": [1, 2]}, {"k": "2020-01-02"}, "10:00:00", "0:03:00"
    )  # fmt: skip


def test_at_most_max_rows(pack):
    with LockedSql(pack, max_rows=7) as locked:
        assert (len(locked.query("FROM range(7)").rows), locked.query("FROM range(7)").truncated) == (7, False)
        assert (len(locked.query("FROM range(8)").rows), locked.query("FROM range(8)").truncated) == (7, True)
        assert locked.query("FROM range(100000000000)").truncated


def test_long_texts_are_cut_and_big_replies_end_early(sql):
    (text,) = sql.query("SELECT repeat('x', 1000000)").rows[0]
    assert text.startswith("x" * MAX_CELL_CHARACTERS)
    assert text.endswith("... (1000000 characters)")
    got = sql.query("SELECT repeat('x', 15000) FROM range(1000)")
    assert got.truncated
    assert 200 < len(got.rows) < 300


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT count(*) FROM read_parquet('abnormal_traces.parquet')",
        "SELECT count(*) FROM READ_PARQUET ( 'abnormal_traces.parquet' ) AS t",
        "SELECT count(*) FROM parquet_scan('abnormal_traces.parquet') t(a, b)",
        "SELECT count(*) FROM 'abnormal_traces.parquet'",
        'SELECT count(*) FROM "abnormal_traces.parquet" AS t',
        "SELECT count(t.span_id) FROM /* 'ü' */ main.read_parquet('abnormal_traces.parquet') t -- done",
        "WITH abnormal_traces AS (FROM read_parquet('abnormal_traces.parquet')) SELECT count(*) FROM abnormal_traces",
        "WITH abnormal_traces AS (FROM 'abnormal_traces.parquet') SELECT count(*) FROM abnormal_traces",
        "SELECT (SELECT count(*) FROM read_parquet('abnormal_traces.parquet'));",
        """SELECT count(DISTINCT a.span_id) FROM read_parquet('abnormal_traces.parquet') a
           JOIN read_parquet('abnormal_traces.parquet') b USING (span_id)""",
        """SELECT sum(n)::BIGINT FROM (SELECT 'é' AS x, count(*) AS n FROM read_parquet('abnormal_traces.parquet')
           UNION ALL SELECT 'y', count(*) - 120 FROM 'abnormal_traces.parquet')""",
    ],
)
def test_reading_a_parquet_file_by_its_bare_name(sql, statement):
    got = sql.query(statement)
    assert (got.status, got.rows) == ("ok", ((120,),)), got.message


def test_text_that_only_looks_like_a_read_is_left_alone(sql):
    got = sql.query(
        "SELECT 'read_parquet(''abnormal_traces.parquet'')' AS \"FROM 'normal_traces.parquet'\" "
        "/* FROM read_parquet('x.parquet') */ FROM read_parquet('normal_traces.parquet') LIMIT 1"
    )
    assert got.columns == ("FROM 'normal_traces.parquet'",)
    assert got.rows == (("read_parquet('abnormal_traces.parquet')",),)


@pytest.mark.parametrize(
    "source",
    [
        "read_parquet('{path}/abnormal_traces.parquet')",
        "read_parquet('./abnormal_traces.parquet')",
        "read_parquet('../pack/abnormal_traces.parquet')",
        "read_parquet('incident.json')",
        "read_parquet('*_traces.parquet')",
        "read_parquet(['abnormal_traces.parquet', '{path}/abnormal_traces.parquet'])",
        "read_parquet('abnormal_traces' || '.parquet')",
        "read_parquet('abnormal_traces.parquet', '{path}/abnormal_traces.parquet')",
        "parquet_scan('/etc/passwd')",
        "parquet_metadata('{path}/abnormal_traces.parquet')",
        "read_csv('/etc/passwd')",
        "read_json('{path}/incident.json')",
        "read_text('{path}/incident.json')",
        "read_blob('/etc/passwd')",
        "glob('/*')",
        "sniff_csv('/etc/passwd')",
        "query('SELECT 1')",
        "query_table('normal_logs')",
        "duckdb_settings()",
        "duckdb_databases()",
        "duckdb_secrets()",
        "duckdb_extensions()",
        "pragma_database_size()",
        "pragma_storage_info('normal_logs')",
        "enable_logging('QueryLog', storage = 'file', storage_path = '/tmp/log')",
        "checkpoint()",
        "pandas_scan(1, 2, 3)",
        "arrow_scan(1, 2, 3)",
        "json_execute_serialized_sql('{{}}')",
    ],
)
def test_every_other_table_function_is_refused(sql, pack, source):
    got = sql.query(f"SELECT * FROM {source.format(path=pack.path)}")
    assert (got.status, got.rows) == ("refused", ()), got.message


@pytest.mark.parametrize(
    "statement",
    [
        "COPY normal_logs TO '/tmp/stolen.csv'",
        "COPY (SELECT 1) TO '/tmp/stolen.csv'",
        "ATTACH '/tmp/other.db'",
        "INSTALL httpfs",
        "LOAD httpfs",
        "PRAGMA version",
        "PRAGMA database_list",
        "SET threads = 4",
        "SET enable_external_access = true",
        "RESET lock_configuration",
        "EXPORT DATABASE '/tmp/stolen'",
        "IMPORT DATABASE '/tmp/stolen'",
        "CREATE TABLE mine AS SELECT 1",
        "CREATE MACRO f() AS 1",
        "INSERT INTO normal_logs SELECT * FROM normal_logs",
        "UPDATE normal_logs SET message = 'x'",
        "DELETE FROM normal_logs",
        "DROP TABLE normal_logs",
        "CALL pragma_version()",
        "EXPLAIN ANALYZE SELECT 1",
        "PREPARE p AS SELECT 1",
        "EXECUTE p",
        "VACUUM",
        "CHECKPOINT",
        "BEGIN",
        "USE memory",
        "/* SELECT */ DROP TABLE normal_logs",
        "-- SELECT 1\nSET threads = 4",
        "SELECT 1; SELECT 2",
        "SELECT 1; DROP TABLE normal_logs",
        "SELECT 1;; COPY normal_logs TO '/tmp/stolen.csv'",
        "",
        "  ; -- nothing",
    ],
)
def test_everything_but_one_select_is_refused(sql, statement):
    got = sql.query(statement)
    assert (got.status, got.columns, got.rows) == ("refused", (), ())
    assert got.message
    assert sql.query("SELECT count(*) FROM normal_logs").rows == ((90,),)


@pytest.mark.parametrize(
    "statement",
    ["-- a comment\nSELECT 1", "/* DROP TABLE x; */ SELECT 1;", "VALUES (1)", "FROM (SELECT 1)", "(SELECT 1)"],
)
def test_comments_and_other_spellings_of_select_are_fine(sql, statement):
    assert sql.query(statement).rows == ((1,),)


@pytest.mark.parametrize(
    "statement", ["SELEC 1", "SELECT nothing FROM normal_logs", "FROM nowhere", "SELECT getenv('HOME')"]
)
def test_a_mistake_is_an_error_with_a_message(sql, statement):
    got = sql.query(statement)
    assert got.status == "error"
    assert got.message


@pytest.mark.parametrize(
    "source", ["'/etc/passwd'", "'x.csv'", "'abnormal.json'", "'https://localhost/x.parquet'", "sys", "duckdb"]
)
def test_names_of_files_and_of_python_are_no_tables(sql, source):
    assert sql.query(f"SELECT * FROM {source}").status in {"refused", "error"}


@pytest.mark.slow
def test_no_view_and_no_setting_prints_a_path(sql, pack):
    statements = [
        "FROM duckdb_views()",
        "FROM duckdb_tables()",
        "FROM duckdb_columns()",
        "FROM duckdb_functions()",
        "SHOW ALL TABLES",
    ]
    views = sql.query("SELECT DISTINCT schema_name, view_name FROM duckdb_views()").rows
    assert len(views) > 20
    statements += [f'FROM "{schema}"."{view}"' for schema, view in views]
    with duckdb.connect() as connection:
        settings = [name for (name,) in connection.execute("SELECT name FROM duckdb_settings()").fetchall()]
    statements += [f"SELECT current_setting('{name}')" for name in settings]
    told = "\n".join(f"{got.rows} {got.message}" for got in map(sql.query, statements))
    folders = [pack.path, Path.home(), Path.cwd(), sys.prefix, "/tmp", "/nonexistent"]
    assert [folder for folder in folders if f"{folder}/" in told or f"{folder}'" in told] == []
    assert "abnormal_traces" in told


@pytest.mark.slow
@pytest.mark.parametrize(
    "statement",
    [
        "SELECT repeat('x', 3000000000)",
        "SELECT len(repeat('x', 900000000) || repeat('y', 900000000))",
        "SELECT list_sum(range(4000000000))",
        "SELECT string_agg(repeat('x', 100000), '') FROM range(100000)",
        "SELECT list(repeat('x', 1000000) || i) FROM range(5000) t(i)",
    ],
)
def test_memory_eaters_are_errors_and_the_next_statement_runs(sql, statement):
    got = sql.query(statement)
    assert (got.status, "too big" in got.message or "MiB" in got.message) == ("error", True), got
    assert sql.query("SELECT count(*) FROM normal_traces").rows == ((120,),)


def test_a_statement_that_takes_too_long_is_killed_and_the_next_one_runs(pack):
    with LockedSql(pack, timeout_s=0.5, memory_mb=1024) as locked:
        before = worker_of(locked)
        got = locked.query("SELECT count(*) FROM range(100000) a, range(1000000) b WHERE a.range + b.range = -1")
        assert (got.status, got.rows) == ("timeout", ())
        assert "0.5 s" in got.message
        with pytest.raises(ProcessLookupError):
            os.kill(before, 0)
        assert locked.query("SELECT count(*) FROM normal_traces").rows == ((120,),)
        assert worker_of(locked) != before


def test_a_worker_that_died_is_replaced(pack):
    with LockedSql(pack) as locked:
        os.kill(worker_of(locked), signal.SIGKILL)
        locked._worker.wait()
        assert locked.query("SELECT 1").rows == ((1,),)


def test_a_long_statement_is_refused(sql):
    assert sql.query(f"SELECT '{'x' * MAX_SQL_CHARACTERS}'").status == "refused"
    assert sql.query("SELECT " + "(" * 5000 + "1" + ")" * 5000).status == "error"
    assert sql.query("SELECT 1").rows == ((1,),)


def test_threads_may_share_it(sql):
    found = []
    ask = [threading.Thread(target=lambda n=n: found.append((n, sql.query(f"SELECT {n}").rows))) for n in range(20)]
    for thread in ask:
        thread.start()
    for thread in ask:
        thread.join()
    assert sorted(found) == [(n, ((n,),)) for n in range(20)]


def test_nothing_is_left_running_after_the_block(pack):
    with LockedSql(pack) as locked:
        pid = worker_of(locked)
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_the_worker_dies_with_its_parent_in_the_middle_of_a_query(pack):
    program = f"""
import sys, threading, time
from pathlib import Path
from opsassay.telemetry.datapack import Datapack
from opsassay.telemetry.sql import LockedSql
locked = LockedSql(Datapack.open(Path({str(pack.path)!r})), timeout_s=100)
locked.__enter__()
slow = "SELECT count(*) FROM range(100000) a, range(1000000) b WHERE a.range + b.range = -1"
threading.Thread(target=locked.query, args=(slow,), daemon=True).start()
time.sleep(0.3)
print(locked._worker.pid, flush=True)
time.sleep(100)
"""
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as parent:
        pid = int(parent.stdout.readline())
        assert Path(f"/proc/{pid}").exists()
        parent.kill()
    deadline = time.monotonic() + 20
    while running(pid) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not running(pid)


def running(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_tables_of_other_types_and_missing_ones_are_loaded_as_the_schema_has_them(pack, tmp_path):
    folder = copied(pack, tmp_path / "odd")
    (folder / "incident.json").unlink()
    (folder / "normal_logs.parquet").unlink()
    traces = pl.read_parquet(folder / "normal_traces.parquet").drop("attr.span_kind")
    traces = traces.with_columns(
        pl.col("time").dt.cast_time_unit("us").dt.replace_time_zone(None),
        pl.col("duration").cast(pl.Int64),
        parent_span_id=pl.when(pl.col("parent_span_id") != "").then("parent_span_id"),
    )
    traces.write_parquet(folder / "normal_traces.parquet")
    with LockedSql(Datapack.open(folder)) as locked:
        assert locked.query("FROM normal_logs").status == "empty"
        got = locked.query("SELECT count(*), count(\"attr.span_kind\") FROM normal_traces WHERE parent_span_id = ''")
        assert got.rows == ((30, 0),)
        assert locked.schema("normal_traces") == locked.schema("abnormal_traces")
    assert not (folder / "normal_logs.parquet").exists()


def test_too_little_memory_to_start_is_one_sentence(pack):
    with pytest.raises(QueryError, match="cannot be queried in 40 MiB"), LockedSql(pack, memory_mb=40):
        pass


def test_a_worker_that_is_not_ready_in_time_is_told_apart_from_one_without_memory(pack, monkeypatch):
    monkeypatch.setattr(sql_module, "_START_TIMEOUT_S", 0.0)
    locked = LockedSql(pack)
    with pytest.raises(QueryError, match="was not ready to be queried after 0 s; try again when"), locked:
        pass
    assert locked._worker is None


def test_the_same_statement_gives_the_same_rows_in_the_same_order(pack):
    statement = "SELECT service_name, avg(duration), count(*) FROM abnormal_traces GROUP BY ALL"
    found = []
    for _ in range(2):
        with LockedSql(pack) as locked:
            found += [locked.query(statement), locked.query(statement)]
    assert found == [found[0]] * 4


def test_a_file_name_means_the_file_also_where_a_query_uses_the_table_name_for_something_else(sql):
    got = sql.query(
        "WITH abnormal_traces AS (SELECT 1 AS one) SELECT (SELECT count(*) FROM abnormal_traces), "
        "(SELECT count(*) FROM read_parquet('abnormal_traces.parquet'))"
    )
    assert got.rows == ((1, 120),)


def test_every_lock_is_set_also_those_behind_another(sql):
    locks = {
        "enable_external_access": False,
        "lock_configuration": True,
        "python_enable_replacements": False,
        "autoload_known_extensions": False,
        "threads": 1,
        "temp_directory": "",
    }
    got = sql.query("SELECT " + ", ".join(f"current_setting('{name}')" for name in locks))
    assert got.rows == (tuple(locks.values()),)
