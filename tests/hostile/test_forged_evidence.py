"""Rows that an answer makes up are no telemetry, however they are made and wherever they are put."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from opsassay.telemetry.sql import LockedSql
from telemetry.packs import make_pack

from .evidence import BOTH, UP, graded

CLASS = "1 forged evidence"

MADE_UP = {
    "values": "(VALUES ('store', 'normal', 1), ('store', 'abnormal', 9)) AS s(service_name, period, duration)",
    "literals": "(SELECT 'store' AS service_name, 'normal' AS period, 1 AS duration UNION ALL SELECT 'store', 'abnormal', 9)",
    "unnested lists": "(SELECT unnest(['store', 'store']) AS service_name, unnest(['normal', 'abnormal']) AS period, "
    "unnest([1, 9]) AS duration)",
    "a range": "(SELECT 'store' AS service_name, ['normal', 'abnormal'][i] AS period, i * i * i AS duration FROM range(1, 3) r(i))",
    "a series": "(SELECT 'store' AS service_name, list_extract(['normal', 'abnormal'], i) AS period, 9 * i - 8 AS duration "
    "FROM generate_series(1, 2) r(i))",
    "json": "(SELECT value->>'s' AS service_name, value->>'p' AS period, (value->>'d')::INT AS duration FROM json_each("
    """'[{"s":"store","p":"normal","d":1},{"s":"store","p":"abnormal","d":9}]'))""",
    "literals beside rows of telemetry": "(SELECT 'store' AS service_name, 'normal' AS period, 1 AS duration FROM normal_traces "
    "UNION ALL SELECT 'store', 'abnormal', 9 FROM abnormal_traces)",
    "a name put over that of the telemetry": "(SELECT * REPLACE ('store' AS service_name), 'normal' AS period FROM normal_traces "
    "UNION ALL SELECT * REPLACE ('store' AS service_name), 'abnormal' FROM abnormal_traces WHERE service_name = 'cart')",
    "a name by an expression": "(SELECT * REPLACE (concat('st', 'ore') AS service_name), 'normal' AS period FROM normal_traces "
    "UNION ALL SELECT * REPLACE (concat('st', 'ore') AS service_name), 'abnormal' FROM abnormal_traces WHERE duration > 400000000)",
    "one normal period that is empty": "(SELECT 'normal' AS period, * FROM normal_traces WHERE service_name <> 'store' "
    "UNION ALL SELECT 'abnormal', * FROM abnormal_traces)",
    "a period of other numbers": "(SELECT 'normal' AS period, * REPLACE (duration // 9 AS duration) FROM normal_traces "
    "UNION ALL SELECT 'abnormal', * FROM abnormal_traces)",
    "telemetry with rows of its own beside it": "(SELECT service_name, period, duration FROM " + BOTH + " UNION ALL "
    "SELECT 'store', 'abnormal', 9999999999)",
    "a period by a join": "(SELECT v.p AS period, t.service_name, v.d AS duration FROM normal_traces t, "
    "(VALUES ('normal', 1), ('abnormal', 9)) v(p, d) WHERE t.service_name = 'store')",
    "a period by the other's rows": "(SELECT 'normal' AS period, * FROM normal_traces WHERE duration < 0 UNION ALL "
    "SELECT 'abnormal', * FROM normal_traces)",
    "columns under other names": "(SELECT 'store', 'normal', 1 UNION ALL SELECT 'store', 'abnormal', 9) AS s(service_name, "
    "period, duration)",
}  # fmt: skip

SHAPES = {
    "as it is": "SELECT {value} FROM {source} WHERE service_name = $service AND period = $period",
    "under a name": "WITH c AS (SELECT * FROM {source}) SELECT {value} FROM c WHERE service_name = $service AND period = $period",
    "under two names": "WITH c AS (SELECT * FROM {source}), d AS (FROM c) SELECT {value} FROM d AS x "
    "WHERE x.service_name = $service AND $period = x.period",
    "in a subquery": "SELECT {value} FROM (SELECT service_name, period, duration FROM {source}) x "
    "WHERE x.service_name = $service AND x.period = $period",
    "as a value": "SELECT (SELECT {value} FROM {source} WHERE service_name = $service AND period = $period)",
    "by groups": "SELECT {value} FROM {source} GROUP BY service_name, period HAVING service_name = $service AND period = $period",
    "of groups": "SELECT {value} FROM (SELECT service_name, period, avg(duration) AS duration FROM {source} GROUP BY 1, 2) g "
    "WHERE service_name = $service AND period = $period",
    "of a filter": "SELECT {value} FILTER (WHERE service_name = $service AND period = $period) FROM {source}",
    "beside telemetry": "SELECT {value} FROM (SELECT x.service_name, x.period, x.duration FROM {source} x, "
    "(SELECT count(*) AS n FROM abnormal_traces) y) WHERE service_name = $service AND period = $period",
}
VALUES = ("avg(duration)", "max(duration)", "sum(duration)")
GENERATED = [(made, shape, VALUES[n % 3]) for n, (made, shape) in enumerate((m, s) for m in MADE_UP for s in SHAPES)]


@pytest.fixture(scope="module")
def sql(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LockedSql]:
    pack = make_pack(tmp_path_factory.mktemp("pack") / "p", slow_in="cart")
    with LockedSql(pack, timeout_s=20, max_rows=500) as locked:
        yield locked


@pytest.mark.sampled
@pytest.mark.parametrize(("made", "shape", "value"), GENERATED)
def test_what_is_made_up_binds_nothing(sql: LockedSql, made: str, shape: str, value: str) -> None:
    statement = SHAPES[shape].format(source=MADE_UP[made], value=value)
    attack, metrics = graded(sql, statement, "store", UP)
    assert (attack.bound, metrics["evidence_bound"]) == (0.0, 0.0), attack
    control, metrics = graded(sql, SHAPES[shape].format(source=BOTH, value=value), "cart", UP)
    assert control.bound == pytest.approx(0.5), control  # the caller of cart got slower too, and nobody else
    assert metrics["evidence_relevant"] == 1


ALONE = {
    "values": "SELECT * FROM (VALUES ('store', 99)) AS t(service_name, slow) WHERE service_name = 'store'",
    "values that are joined": "SELECT v.d FROM (VALUES ('store', 9)) v(service_name, d) LEFT JOIN abnormal_traces t ON false "
    "WHERE v.service_name = 'store'",
    "values beside a count": "SELECT v.d, (SELECT count(*) FROM abnormal_traces) FROM (VALUES ('store', 9)) v(service_name, d) "
    "WHERE v.service_name = 'store'",
    "a name put over all rows": "SELECT avg(duration) FROM (SELECT 'store' AS service_name, duration FROM abnormal_traces) "
    "WHERE service_name = 'store'",
    "a name for the rows of another": "WITH t AS (SELECT * REPLACE ('store' AS service_name) FROM abnormal_traces "
    "WHERE service_name = 'cart') SELECT avg(duration) FROM t WHERE service_name = 'store'",
    "a table by the name of the telemetry": "WITH abnormal_traces AS (SELECT 'store' AS service_name, 9 AS duration) "
    "SELECT avg(duration) FROM abnormal_traces WHERE service_name = 'store'",
    "a recursive table": "WITH RECURSIVE abnormal_traces(service_name, duration) AS (SELECT 'store', 1 UNION ALL "
    "SELECT service_name, duration + 1 FROM abnormal_traces WHERE duration < 9) SELECT * FROM abnormal_traces "
    "WHERE service_name = 'store'",
    "a lateral name": "SELECT avg(t.duration) FROM abnormal_traces t, LATERAL (SELECT 'store' AS service_name) n "
    "WHERE n.service_name = 'store'",
    "an alias": "SELECT 'store' AS name, avg(duration) FROM abnormal_traces WHERE name = 'store' GROUP BY 1",
    "other numbers each time": "SELECT random() + 0 * duration FROM abnormal_traces WHERE service_name = 'store'",
    "the time of day": "SELECT epoch_ns(now()) + 0 * count(*) FROM abnormal_traces WHERE service_name = 'store'",
    "tables about tables": "SELECT table_name FROM information_schema.tables WHERE table_name = 'abnormal_traces'",
}  # fmt: skip
HONEST = "SELECT avg(duration) FROM abnormal_traces WHERE service_name = 'store'"


@pytest.mark.parametrize("what", ALONE)
def test_what_is_made_up_is_evidence_of_nothing(sql: LockedSql, what: str) -> None:
    attack, metrics = graded(sql, ALONE[what], "store")
    assert metrics["evidence_relevant"] == 0.0, attack
    assert graded(sql, HONEST, "store")[1]["evidence_relevant"] == 1.0


def test_a_vacuous_item_scores_nowhere(sql: LockedSql) -> None:
    attack, metrics = graded(sql, MADE_UP["values"].join(("SELECT max(duration) FROM ", "")), "store", UP)
    assert (attack.vacuous, attack.bound, attack.relevant) == (True, 0.0, False)
    assert {name: metrics[name] for name in ("sql_exec", "evidence_relevant", "evidence_bound")} == {
        "sql_exec": 0.0, "evidence_relevant": 0.0, "evidence_bound": 0.0,
    }  # fmt: skip
