"""Evidence as answers give it, graded in the real locked worker on a pack in which cart got slow."""

from __future__ import annotations

from grading.cases import finished_run, truth
from opsassay.grading.verdict import grade
from opsassay.model.diagnosis import Diagnosis, Evidence, Expectation, RootCauseClaim
from opsassay.model.run import EvidenceResult
from opsassay.telemetry.sql import LockedSql

UP = Expectation(change="up", ratio=2)
BOTH = "(SELECT 'normal' AS period, * FROM normal_traces UNION ALL SELECT 'abnormal' AS period, * FROM abnormal_traces)"


def graded(
    sql: LockedSql, statement: str, claim: str, expectation: Expectation | None = None
) -> tuple[EvidenceResult, dict]:
    """Return what became of one statement, and the metrics of the answer that it is all the evidence of."""
    evidence = Evidence(kind="trace", sql=statement, claim="c", expectation=expectation)
    answer = Diagnosis(root_causes=(RootCauseClaim(service=claim, evidence=(evidence,)),))
    verdict = grade(finished_run(), answer, truth(("CPUStress", "cart")), None, sql)
    return verdict.evidence[0], {name: metric.value for name, metric in verdict.metrics.items()}
