"""Evidence as answers give it, graded in the real locked worker on a pack in which cart got slow."""

from __future__ import annotations

from opsassay.core.schema.diagnosis import Diagnosis, Evidence, Expectation, RootCauseClaim
from opsassay.core.schema.run import EvidenceResult
from opsassay.scoring.verdict import grade
from opsassay.telemetry.sql import LockedSql
from scoring.cases import finished_run, truth

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
