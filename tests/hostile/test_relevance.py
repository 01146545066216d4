"""A statement is about a service when its result follows from rows of that service, however it is written."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from opsassay.telemetry.sql import LockedSql
from telemetry.packs import make_pack

from .evidence import graded

CLASS = "12 relevance by execution"
CART = "service_name = 'cart'"

NOT_ABOUT = {
    "a name that nobody reads": f"WITH t AS (SELECT * FROM abnormal_traces WHERE {CART}) SELECT avg(duration) FROM abnormal_traces",
    "a name that is read and dropped": f"WITH t AS (SELECT * FROM abnormal_traces WHERE {CART}) "
    "SELECT avg(a.duration) FROM abnormal_traces a LEFT JOIN t ON false",
    "an exists that stands alone": f"SELECT avg(duration) FROM abnormal_traces WHERE EXISTS (SELECT 1 FROM abnormal_traces WHERE {CART})",
    "an exists of a constant": f"SELECT avg(duration) FROM abnormal_traces WHERE EXISTS (SELECT 7 FROM normal_traces WHERE {CART})",
    "a constant in a list of rows": f"SELECT avg(duration) FROM abnormal_traces WHERE 1 IN (SELECT 1 FROM abnormal_traces WHERE {CART})",
    "a count that is a gate": f"SELECT avg(duration) FROM abnormal_traces WHERE (SELECT count(*) FROM abnormal_traces WHERE {CART}) > 0",
    "a count that is exact": f"SELECT avg(duration) FROM abnormal_traces WHERE (SELECT count(*) FROM abnormal_traces WHERE {CART}) = 60",
    "a threshold of a count": f"SELECT max(duration) FROM abnormal_traces WHERE duration > (SELECT count(*) FROM abnormal_traces WHERE {CART})",
    "a gate in FROM": f"SELECT avg(a.duration) FROM abnormal_traces a, (SELECT count(*) AS n FROM abnormal_traces WHERE {CART}) b WHERE b.n > 0",
    "an exact gate in FROM": f"SELECT count(*) FROM abnormal_traces a, (SELECT count(*) AS n FROM abnormal_traces WHERE {CART}) b WHERE b.n = 60",
    "a left join on false": f"SELECT avg(a.duration) FROM abnormal_traces a LEFT JOIN normal_traces b ON b.{CART} AND false",
    "a left join that adds nothing": f"SELECT avg(a.duration) FROM abnormal_traces a LEFT JOIN (SELECT 1 AS x FROM normal_traces WHERE {CART} LIMIT 1) b ON true",
    "a count of nothing": f"SELECT count(*) = 0 FROM abnormal_traces WHERE {CART} AND duration < 0",
    "a count of nothing in words": f"SELECT CASE WHEN count(*) = 0 THEN 'down' ELSE 'up' END FROM abnormal_traces WHERE {CART} AND duration < 0",
    "zero times a count": f"SELECT 1 + 0 * count(*) FROM abnormal_traces WHERE {CART}",
    "zero times a mean": f"SELECT 5 + 0 * coalesce(avg(duration), 1) FROM abnormal_traces WHERE {CART}",
    "at least none": f"SELECT count(*) >= 0 FROM abnormal_traces WHERE {CART}",
    "a filter that is not used": f"SELECT avg(duration), 0 * count(*) FILTER (WHERE {CART}) FROM abnormal_traces",
    "a sum in which it cancels": f"SELECT count(*) FILTER (WHERE {CART}) - count(*) FILTER (WHERE {CART}) + count(*) FROM abnormal_traces",
    "a union with nothing of it": f"SELECT avg(duration) FROM abnormal_traces UNION ALL SELECT duration FROM abnormal_traces WHERE {CART} AND false",
    "an or with another column": f"SELECT avg(duration) FROM abnormal_traces WHERE {CART} OR span_name IS NOT NULL",
    "a double negation": "SELECT avg(duration) FROM abnormal_traces WHERE NOT (service_name <> 'cart') OR true",
    "text about it": f"SELECT avg(duration), 'of cart' FROM abnormal_traces WHERE '{CART[-4:-1]}' = 'art'",
    "a having that always holds": "SELECT avg(duration) FROM abnormal_traces HAVING count(*) FILTER (WHERE service_name = 'cart') > 0",
    "an order": "SELECT avg(duration) FROM abnormal_traces ORDER BY count(*) FILTER (WHERE service_name = 'cart')",
    "an offset": f"SELECT duration FROM abnormal_traces LIMIT 5 OFFSET (SELECT 0 * count(*) FROM abnormal_traces WHERE {CART})",
}  # fmt: skip

ABOUT = {
    "a mean": f"SELECT avg(duration) FROM abnormal_traces WHERE {CART}",
    "a named table": f"WITH t AS (SELECT * FROM abnormal_traces) SELECT avg(duration) FROM t WHERE {CART}",
    "an exists for each row": "SELECT sum(p.duration) FROM abnormal_traces p WHERE EXISTS (SELECT 1 FROM abnormal_traces c "
    f"WHERE c.parent_span_id = p.span_id AND c.{CART})",
    "traces in which it is": f"SELECT count(*) FROM abnormal_traces WHERE trace_id IN (SELECT trace_id FROM abnormal_traces WHERE {CART} "
    "AND time > TIMESTAMP '2026-01-02 03:05:20')",
    "its callers": f"SELECT p.service_name, avg(c.duration) FROM abnormal_traces c JOIN abnormal_traces p ON c.parent_span_id = p.span_id "
    f"WHERE c.{CART} GROUP BY 1",
    "a left join": f"SELECT avg(b.duration) FROM abnormal_traces a LEFT JOIN abnormal_traces b ON a.span_id = b.span_id AND b.{CART}",
    "that there are some": f"SELECT count(*) > 0 FROM abnormal_traces WHERE {CART}",
    "a filter": f"SELECT avg(duration) FILTER (WHERE {CART}) FROM abnormal_traces",
    "both periods beside each other": f"SELECT (SELECT avg(duration) FROM normal_traces WHERE {CART}), "
    f"(SELECT avg(duration) FROM abnormal_traces WHERE {CART})",
    "a ratio": f"WITH n AS (SELECT avg(duration) AS m FROM normal_traces WHERE {CART}), a AS (SELECT avg(duration) AS m FROM "
    f"abnormal_traces WHERE {CART}) SELECT a.m / n.m FROM a, n",
    "the slowest": f"SELECT span_id, duration FROM abnormal_traces WHERE {CART} ORDER BY duration DESC LIMIT 5",
    "a window": f"SELECT span_id, row_number() OVER (ORDER BY duration) FROM abnormal_traces WHERE {CART}",
    "its logs": f"SELECT level, count(*) FROM normal_logs WHERE {CART} GROUP BY 1",
    "its metrics": f"SELECT metric, max(value) FROM abnormal_metrics WHERE {CART} GROUP BY metric",
    "against the whole": f"SELECT avg(duration) / (SELECT avg(duration) FROM abnormal_traces) FROM abnormal_traces WHERE {CART}",
    "a table by its file": f"SELECT quantile_cont(duration, 0.99) FROM read_parquet('abnormal_traces.parquet') WHERE {CART}",
}  # fmt: skip


@pytest.fixture(scope="module")
def sql(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LockedSql]:
    pack = make_pack(tmp_path_factory.mktemp("pack") / "p", slow_in="cart")
    with LockedSql(pack, timeout_s=20, max_rows=500) as locked:
        yield locked


@pytest.mark.sampled
@pytest.mark.parametrize("what", NOT_ABOUT)
def test_what_does_not_follow_from_the_service_earns_nothing(sql: LockedSql, what: str) -> None:
    attack, metrics = graded(sql, NOT_ABOUT[what], "cart")
    assert metrics["evidence_relevant"] == 0.0, attack


@pytest.mark.sampled
@pytest.mark.parametrize("what", ABOUT)
def test_what_follows_from_it_does(sql: LockedSql, what: str) -> None:
    control, metrics = graded(sql, ABOUT[what], "cart")
    assert metrics["evidence_relevant"] == 1.0, control
