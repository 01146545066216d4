"""Evidence runs in the real locked worker on a real datapack."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from opsassay.core.schema.diagnosis import Diagnosis, Evidence, PropagationClaim, RootCauseClaim
from opsassay.core.schema.run import Verdict
from opsassay.scoring.evidence import ROWS_KEPT
from opsassay.scoring.verdict import grade
from opsassay.telemetry.datapack import Datapack
from opsassay.telemetry.sql import LockedSql
from telemetry.packs import make_pack

from .cases import answer, finished_run, truth

OK = "SELECT service_name FROM abnormal_traces WHERE service_name = 'cart'"
EMPTY = "SELECT service_name FROM abnormal_traces WHERE service_name = 'nobody'"
BROKEN = "SELECT no_such_column FROM abnormal_traces"
OUTSIDE = "SELECT * FROM read_csv('/etc/passwd')"
NUMBERS = "SELECT 'nan'::DOUBLE AS a, 'inf'::DOUBLE AS b, NULL AS c, 1 AS d, TIMESTAMP '2026-01-02 03:04:05' AS e"


@pytest.fixture(scope="module")
def pack(tmp_path_factory: pytest.TempPathFactory) -> Datapack:
    return make_pack(tmp_path_factory.mktemp("pack") / "p")


@pytest.fixture(scope="module")
def sql(pack: Datapack) -> Iterator[LockedSql]:
    with LockedSql(pack) as locked:
        yield locked


def claims(*statements: str, edge: str = "") -> Diagnosis:
    def evidence(text: str) -> Evidence:
        return Evidence(kind="trace", sql=text, claim=f"claim of {text[:10]}")

    root = RootCauseClaim(service="cart", evidence=tuple(evidence(s) for s in statements))
    edges = (PropagationClaim(source="cart", target="frontend", evidence=(evidence(edge),)),) if edge else ()
    return Diagnosis(root_causes=(root,), propagation=edges)


def graded(diagnosis: Diagnosis, sql: LockedSql | None) -> Verdict:
    return grade(finished_run(), diagnosis, truth(("CPUStress", "cart")), None, sql)


def test_only_statements_that_give_rows_count_and_every_item_counts(sql: LockedSql) -> None:
    verdict = graded(claims(OK, EMPTY, BROKEN, OUTSIDE, edge=OK), sql)
    assert verdict.metrics["sql_exec"].value == pytest.approx(2 / 5)
    assert [e.status for e in verdict.evidence] == ["ok", "empty", "error", "refused", "ok"]
    assert verdict.evidence[2].message


def test_the_verdict_keeps_what_each_statement_gave_within_bounds(sql: LockedSql) -> None:
    kept = graded(claims(OK), sql).evidence[0]
    assert kept.columns == ("service_name",)
    assert kept.rows == (("cart",),) * ROWS_KEPT


def test_results_survive_being_written_and_read(sql: LockedSql) -> None:
    verdict = graded(claims(NUMBERS), sql)
    assert Verdict.model_validate_json(verdict.pretty_json()) == verdict


def test_no_evidence_is_not_a_zero(sql: LockedSql) -> None:
    metric = graded(answer(("cart", None)), sql).metrics["sql_exec"]
    assert (metric.value, metric.status.value, metric.reason) == (
        None, "not_applicable", "the answer gives no evidence",
    )  # fmt: skip


def test_evidence_without_tables_is_failed_to_grade() -> None:
    metric = graded(claims(OK), None).metrics["sql_exec"]
    assert (metric.value, metric.status.value) == (None, "failed")


def test_a_datapack_that_cannot_be_loaded_fails_the_metric_and_not_the_verdict(tmp_path: Path) -> None:
    pack = make_pack(tmp_path / "p")
    with LockedSql(pack) as sql:
        sql.query("SELECT 1")
        sql._stop_worker()
        (pack.path / "abnormal_traces.parquet").write_bytes(b"no parquet")
        verdict = graded(claims(OK), sql)
    assert verdict.metrics["sql_exec"].status == "failed"
    assert verdict.metrics["any_service"].value == 1
