"""SQL in pages: a line for each clause, nothing added or lost, however odd."""

from __future__ import annotations

import json
import re

import duckdb
import pytest
from hypothesis import given
from hypothesis import strategies as st

from opsassay.ui.sql_text import arguments_text, sql_text

STATEMENTS = (
    "select a, count(*) as n from t where b in (select b from u where c = 'from  where') and a > 1 group by a limit 5",
    "WITH w AS (SELECT 1 AS a FROM t LEFT  JOIN u USING (a)) SELECT * FROM w CROSS JOIN t WHERE extract(hour FROM b) > 0",
    'SELECT "from" FROM (SELECT 1 AS "from") UNION SELECT 2',
)


def tree(sql):
    """Return how DuckDB reads *sql*, without where its parts stand."""
    with duckdb.connect() as connection:
        ((found,),) = connection.execute("SELECT json_serialize_sql(?)", [sql]).fetchall()
    assert not json.loads(found)["error"], found
    return re.sub(r'"[a-z_]*(?:location|length)":\d+', "", found)


@pytest.mark.parametrize("sql", STATEMENTS)
def test_it_means_the_same(sql):
    shown = sql_text(sql)
    assert tree(shown) == tree(sql)
    assert len(shown.splitlines()) > 4


def test_a_query_in_brackets_stands_further_in():
    assert sql_text(STATEMENTS[0]).splitlines() == [
        "select a, count(*) as n", "from t", "where b in (", "  select b", "  from u", "  where c = 'from  where'",
        ") and a > 1", "group by a", "limit 5",
    ]  # fmt: skip


@given(st.text(alphabet="SELECTFROM WHERE()'\"-\n,;=*JOINLEFT ", max_size=300))
def test_nothing_but_white_space_is_added_or_lost(text):
    assert "".join(sql_text(text).split()) == "".join(text.split())


def test_arguments_without_sql_are_left_alone():
    assert arguments_text({"service": "selection", "limit": 3}) is None
    assert arguments_text({"sql": "SELECT 1 FROM t", "limit": 3}) == [("sql", "SELECT 1\nFROM t"), ("limit", "3")]
