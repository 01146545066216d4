"""Nothing that an answer can put into its evidence scores without saying something about the claimed service."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from opsassay.core.schema.diagnosis import Diagnosis, Evidence, Expectation, RootCauseClaim
from opsassay.core.schema.run import EvidenceResult, Verdict
from opsassay.scoring.verdict import grade
from opsassay.telemetry.datapack import Datapack
from opsassay.telemetry.sql import LockedSql
from telemetry.packs import make_pack

from .cases import finished_run, truth

CART = "service_name = 'cart'"


@pytest.fixture(scope="module")
def pack(tmp_path_factory: pytest.TempPathFactory) -> Datapack:
    made = make_pack(tmp_path_factory.mktemp("pack") / "p", slow_in="cart")
    (made.path / "injection.json").write_text(json.dumps({"fault_type": "JVMLatency", "app": "cart"}))
    (made.path / "causal_graph.json").write_text("{}")
    return made


@pytest.fixture(scope="module")
def sql(pack: Datapack) -> Iterator[LockedSql]:
    with LockedSql(pack, timeout_s=5, max_rows=20) as locked:
        yield locked


def verdict_of(statement: str, sql: LockedSql, expectation: Expectation | None = None, claim: str = "cart") -> Verdict:
    evidence = Evidence(kind="trace", sql=statement, claim="c", expectation=expectation)
    answer = Diagnosis(root_causes=(RootCauseClaim(service=claim, evidence=(evidence,)),))
    return grade(finished_run(), answer, truth(("CPUStress", "cart")), None, sql)


def result_of(
    statement: str, sql: LockedSql, expectation: Expectation | None = None, claim: str = "cart"
) -> EvidenceResult:
    return verdict_of(statement, sql, expectation, claim).evidence[0]


HOSTILE = {
    "a constant": "SELECT 1",
    "a constant in words": "SELECT 'cart is slow' AS finding",
    "a count that counts zero": f"SELECT count(*) FROM abnormal_traces WHERE {CART} AND duration < 0",
    "zeros beside names of periods": f"SELECT 'abnormal', sum(duration) FROM abnormal_traces WHERE {CART} AND false",
    "a table of its own": "SELECT * FROM (VALUES ('cart', 99)) AS t(service_name, slow) WHERE service_name = 'cart'",
    "a table of its own by a known name": "WITH abnormal_traces AS (SELECT 'cart' AS service_name, 9 AS ms) "
    "SELECT * FROM abnormal_traces WHERE service_name = 'cart'",
    "telemetry that is read and dropped": f"WITH t AS (SELECT * FROM abnormal_traces WHERE {CART}) SELECT 'slow', 9",
    "telemetry under a constant": f"SELECT 7 FROM abnormal_traces WHERE {CART}",
    "a constant beside a count of zero": f"SELECT 1 UNION ALL SELECT count(*) FROM abnormal_traces WHERE {CART} AND false",
    "read_text": "SELECT content FROM read_text('{path}/injection.json')",
    "read_blob": "SELECT * FROM read_blob('{path}/injection.json')",
    "read_json of the truth": "SELECT * FROM read_json('{path}/injection.json')",
    "injection.json by its name": "SELECT * FROM 'injection.json'",
    "causal_graph.json by its path": "SELECT * FROM '{path}/causal_graph.json'",
    "any file": "SELECT * FROM read_csv('/etc/passwd')",
    "a parquet file by its path": "SELECT * FROM read_parquet('{path}/abnormal_traces.parquet')",
    "a glob": "SELECT * FROM glob('/**')",
    "paths from views": "SELECT sql FROM duckdb_views()",
    "settings": "SELECT * FROM duckdb_settings()",
    "secrets": "SELECT * FROM duckdb_secrets()",
    "a setting": "SELECT current_setting('temp_directory')",
    "environment": "SELECT getenv('HOME')",
    "copy": "COPY abnormal_traces TO '/tmp/opsassay-stolen.csv'",
    "attach": "ATTACH '/tmp/opsassay-stolen.db'",
    "install": "INSTALL httpfs",
    "load": "LOAD httpfs",
    "pragma": "PRAGMA database_list",
    "pragma as a function": "SELECT * FROM pragma_database_list()",
    "set": "SET enable_external_access = true",
    "a statement in a comment": "-- SELECT duration FROM abnormal_traces WHERE service_name = 'cart'",
    "telemetry in a comment": "SELECT 1 /* FROM abnormal_traces WHERE service_name = 'cart' */",
    "two statements": f"SELECT 1; SELECT duration FROM abnormal_traces WHERE {CART}",
    "a query in a query": "SELECT * FROM query('SELECT 1')",
    "a table by query": "SELECT * FROM query_table('abnormal_traces')",
    "a prepared statement": "EXECUTE x",
    "export": "EXPORT DATABASE '/tmp/opsassay-stolen'",
    "an update": "UPDATE abnormal_traces SET duration = 1",
    "memory by repeat": "SELECT length(repeat('x', 1000000000)) || repeat('x', 2000000000)",
    "memory by range": "SELECT list_sum(range(4000000000))",
    "a hundred gigabytes by cross join": "SELECT count(*), max(a.trace_id || b.trace_id || c.trace_id) "
    "FROM abnormal_traces a, abnormal_traces b, abnormal_traces c, abnormal_traces d, abnormal_traces e",
    "an hour": "WITH RECURSIVE t(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM t WHERE n < 10000000000) SELECT max(n) FROM t",
    "nothing": "",
    "prose": "the cart service was slow",
}


@pytest.mark.sampled
@pytest.mark.parametrize("what", HOSTILE)
def test_no_trick_scores(pack: Datapack, sql: LockedSql, what: str) -> None:
    begun = time.monotonic()
    verdict = verdict_of(HOSTILE[what].replace("{path}", str(pack.path)), sql)
    values = {name: verdict.metrics[name].value for name in ("sql_exec", "evidence_relevant")}
    assert values == {"sql_exec": 0.0, "evidence_relevant": 0.0}, verdict.evidence[0]
    assert time.monotonic() - begun < 60
    assert not list(Path("/tmp").glob("opsassay-stolen*"))
    assert sql.query("SELECT count(*) FROM abnormal_traces").status == "ok"  # and the next statement runs


def test_a_reply_never_names_a_path_of_the_grader(pack: Datapack, sql: LockedSql) -> None:
    for function in ("duckdb_tables()", "duckdb_views()", "duckdb_columns()"):
        answer = sql.query(f"SELECT * FROM {function}")
        assert str(pack.path) not in json.dumps(answer.rows, default=str)


RELEVANT = {
    "a filter": f"SELECT avg(duration) FROM abnormal_traces WHERE {CART}",
    "a filter among others": f"SELECT avg(duration) FROM abnormal_traces WHERE duration > 0 AND {CART}",
    "the reader by its bare name": f"SELECT avg(duration) FROM read_parquet('abnormal_traces.parquet') WHERE {CART}",
    "a list of one": "SELECT avg(duration) FROM abnormal_traces WHERE service_name IN ('cart')",
    "another spelling": "SELECT count(*) FROM abnormal_traces WHERE 'cart' = service_name",
    "a pattern": "SELECT count(*) FROM abnormal_traces WHERE service_name LIKE '%cart%'",
    "a common table": f"WITH t AS (SELECT * FROM abnormal_traces WHERE {CART}) SELECT avg(duration) FROM t",
    "a subquery": f"SELECT (SELECT count(*) FROM normal_traces WHERE {CART}) AS n",
    "a join": "SELECT count(*) FROM abnormal_traces a JOIN normal_traces b ON a.service_name = 'cart'",
    "an aggregate's filter": f"SELECT count(*) FILTER (WHERE {CART}) FROM abnormal_traces",
    "a union": f"SELECT avg(duration) FROM normal_traces WHERE {CART} UNION ALL SELECT avg(duration) FROM abnormal_traces",
    "every branch of an or": f"SELECT count(*) FROM abnormal_traces WHERE {CART} OR ({CART} AND duration > 5)",
}
IRRELEVANT = {
    "no filter": "SELECT count(*) FROM abnormal_traces",
    "another service": "SELECT avg(duration) FROM abnormal_traces WHERE service_name = 'store'",
    "a way out of the filter": f"SELECT avg(duration) FROM abnormal_traces WHERE {CART} OR true",
    "everything but": f"SELECT avg(duration) FROM abnormal_traces WHERE NOT ({CART})",
    "unequal": "SELECT avg(duration) FROM abnormal_traces WHERE service_name <> 'cart'",
    "a list of many": "SELECT avg(duration) FROM abnormal_traces WHERE service_name IN ('cart', 'store', 'frontend')",
    "the name in the output": "SELECT 'cart', avg(duration) FROM abnormal_traces",
    "the name against a literal": "SELECT avg(duration) FROM abnormal_traces WHERE 'cart' = 'cart'",
    "the name against another column": "SELECT count(*) FROM abnormal_traces WHERE span_name <> 'cart'",
}


@pytest.mark.parametrize("what", RELEVANT)
def test_a_statement_about_the_claimed_service_is_relevant(sql: LockedSql, what: str) -> None:
    found = result_of(RELEVANT[what], sql)
    assert (found.status, found.relevant, found.vacuous) == ("ok", True, False), found


@pytest.mark.parametrize("what", IRRELEVANT)
def test_a_statement_about_something_else_is_not(sql: LockedSql, what: str) -> None:
    verdict = verdict_of(IRRELEVANT[what], sql)
    assert verdict.evidence[0].status == "ok"
    assert verdict.metrics["evidence_relevant"].value == 0.0


def test_names_are_compared_as_answers_are(sql: LockedSql) -> None:
    assert result_of(f"SELECT avg(duration) FROM abnormal_traces WHERE {CART}", sql, claim="ts-Cart").relevant


BOTH = "(SELECT 'normal' AS period, * FROM normal_traces UNION ALL SELECT 'abnormal' AS period, * FROM abnormal_traces)"
LATENCY = f"SELECT avg(duration) FROM {BOTH} WHERE service_name = $service AND period = $period"
UP = Expectation(change="up", ratio=2)


def test_bound_evidence_is_tried_on_every_service(sql: LockedSql) -> None:
    # cart takes 400 ms more and so does its caller frontend; store does not: it holds for 1 of 2 others
    found = result_of(LATENCY, sql, UP)
    assert found.bound == pytest.approx(0.5)
    assert "holds for 1 of 2 other services" in found.finding
    assert verdict_of(LATENCY, sql, UP).metrics["evidence_bound"].value == pytest.approx(0.5)
    assert result_of(LATENCY, sql, UP, claim="store").bound == 0.0  # store did not get slower
    assert result_of(LATENCY, sql, Expectation(change="down", ratio=2)).bound == 0.0


def test_what_holds_for_any_service_earns_nothing(sql: LockedSql) -> None:
    any_service = f"SELECT sum(duration) FROM {BOTH} WHERE period = $period AND (service_name = $service OR true)"
    assert result_of(any_service, sql, UP).bound == 0.0


def test_bound_evidence_knows_what_is_gone(tmp_path: Path) -> None:
    pack = make_pack(tmp_path / "p", silent="store")
    count = f"SELECT count(*) FROM {BOTH} WHERE service_name = $service AND period = $period"
    with LockedSql(pack) as sql:
        gone = result_of(count, sql, Expectation(change="gone"), claim="store")
        assert (gone.bound, gone.vacuous) == (1.0, False)  # zero rows of it are what was predicted, and there were some
        assert result_of(count, sql, Expectation(change="gone"), claim="cart").bound == 0.0


UNBOUND = {
    "no parameters": "SELECT avg(duration) FROM abnormal_traces WHERE service_name = 'cart'",
    "a hidden name": f"SELECT CASE WHEN service_name = $service AND period = $period THEN 1 END FROM {BOTH}",
    "the claimed name beside the parameter": f"{LATENCY} AND service_name = 'cart'",
    "a pod that gives the service away": f"{LATENCY} AND \"attr.k8s.pod.name\" LIKE 'cart%'",
    "a length that gives it away": f"{LATENCY} AND length(service_name) = 4",
    "a constant for the parameter": "SELECT 9 WHERE $service = 'cart' AND $period = 'abnormal'",
    "the parameter as a number": f"SELECT length($service) FROM {BOTH} WHERE period = $period",
    "more than one number": LATENCY.replace("avg(duration)", "duration"),
    "text": LATENCY.replace("avg(duration)", "min(span_id)"),
}


@pytest.mark.parametrize("what", UNBOUND)
def test_a_query_that_cannot_be_held_against_others_is_not_bound(sql: LockedSql, what: str) -> None:
    found = result_of(UNBOUND[what], sql, UP)
    assert found.bound == 0.0
    assert found.finding


def test_without_an_expectation_there_is_nothing_to_bind(sql: LockedSql) -> None:
    metric = verdict_of(f"SELECT avg(duration) FROM abnormal_traces WHERE {CART}", sql).metrics["evidence_bound"]
    assert (metric.value, metric.status.value) == (None, "not_applicable")
