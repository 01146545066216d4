"""What is judged is what runs: the text that is executed was written from the tree that was looked at."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from opsassay.telemetry.sql import LockedSql
from telemetry.packs import make_pack

from .evidence import graded

CLASS = "2 judged and executed are one"

READ = "read_parquet('abnormal_traces.parquet'{})"
SPLICES = {
    "a bracket in a comment": "SELECT avg(duration) FROM " + READ.format(" /* ) AS t, (VALUES (1)) AS u(x) -- */")
    + " WHERE service_name = 'cart'",
    "a bracket in a line comment": "SELECT avg(duration) FROM " + READ.format(" -- )\n") + " WHERE service_name = 'cart'",
    "a filter in a comment": "SELECT avg(duration) FROM " + READ.format("/*) WHERE service_name = 'cart' --*/"),
    "a filter after a bracket in a comment": "SELECT avg(duration) FROM "
    + READ.format("/*) WHERE service_name = 'cart' /*") + "*/)",
    "a comment in a comment": "SELECT avg(duration) FROM " + READ.format("/* /* */ ) */") + " WHERE service_name = 'cart'",
    "a bracket in a literal": "SELECT avg(duration), ')' FROM " + READ.format("") + " WHERE service_name = 'cart' AND ')' <> '('",
    "a second statement in a comment": "SELECT avg(duration) FROM " + READ.format("/*); DROP TABLE abnormal_traces; --*/")
    + " WHERE service_name = 'cart'",
    "a read in a read": "SELECT avg(duration) FROM (FROM " + READ.format("/*)*/") + ") WHERE service_name = 'cart'",
    "a table by its own name": "WITH abnormal_traces AS (FROM " + READ.format("/*)*/") + ") "
    "SELECT avg(duration) FROM abnormal_traces WHERE service_name = 'cart'",
    "a name in capitals": "SELECT avg(duration) FROM READ_PARQUET('abnormal_traces.parquet'/*)*/) WHERE service_name = 'cart'",
    "the other reader": "SELECT avg(duration) FROM parquet_scan('abnormal_traces.parquet'/*)*/) WHERE service_name = 'cart'",
    "a quoted file": "SELECT avg(duration) FROM 'abnormal_traces.parquet' /*)*/ WHERE service_name = 'cart'",
    "letters that are many bytes": "SELECT avg(duration), 'é)' AS \"ü(\" FROM " + READ.format("/* ⁾) */")
    + " WHERE service_name = 'cart'",
    "an escape": "SELECT avg(duration), e'\\')' FROM " + READ.format("") + " WHERE service_name = 'cart'",
    "a dollar quote": "SELECT avg(duration), $$ ') $$ FROM " + READ.format("/* $$ ) $$ */") + " WHERE service_name = 'cart'",
}  # fmt: skip
CONTROL = "SELECT avg(duration) FROM abnormal_traces WHERE service_name = 'cart'"


@pytest.fixture(scope="module")
def sql(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LockedSql]:
    pack = make_pack(tmp_path_factory.mktemp("pack") / "p", slow_in="cart")
    with LockedSql(pack, timeout_s=20, max_rows=500) as locked:
        yield locked


@pytest.mark.sampled
@pytest.mark.parametrize("what", SPLICES)
def test_what_stands_in_comments_and_literals_changes_nothing(sql: LockedSql, what: str) -> None:
    result, _ = graded(sql, SPLICES[what], "cart")
    control, _ = graded(sql, CONTROL, "cart")
    if result.status == "ok":  # it was restricted where it runs, or it is not relevant: never one without the other
        is_cart = result.rows[0][0] == control.rows[0][0]
        assert result.relevant == is_cart, result
        again = sql.query(result.executed)
        assert [tuple(row) for row in again.rows] == [tuple(row) for row in result.rows]
        assert "/*" not in result.executed
        assert "parquet" not in result.executed
    assert control.relevant


VIEWS = ("view_none", "view_only", "view_without", "view_without_even", "view_without_odd", "view_changed")


@pytest.mark.sampled
@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("spelt", ["{}.abnormal_traces", '"{}"."abnormal_traces"', "memory.{}.abnormal_traces"])
def test_a_statement_cannot_ask_for_the_tables_that_judge_it(sql: LockedSql, view: str, spelt: str) -> None:
    graded(sql, CONTROL, "cart")
    refused = sql.query(f"SELECT count(*) FROM {spelt.format(view)}")
    assert refused.status in {"refused", "error"}, refused
    assert sql.query("SELECT count(*) FROM main.abnormal_traces").status == "ok"
