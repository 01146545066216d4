"""Evidence: every SQL of an answer is run again in the locked worker (OpenRCA 2.0, G.2.2).

Running is not supporting: `sql_exec` says that the statement gives rows on this incident, not that they back the claim.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from assay.errors import AssayError
from assay.grading import metrics
from assay.grading.metrics import Metrics, scored
from assay.model.diagnosis import Diagnosis, Evidence
from assay.model.run import EvidenceResult
from assay.telemetry.sql import LockedSql

ROWS_KEPT = 20
"""Rows of a result that a verdict keeps."""

TEXT_KEPT = 500
"""Characters of a text cell or of a message that a verdict keeps."""


def evidence_of(diagnosis: Diagnosis) -> tuple[Evidence, ...]:
    """Return every evidence item of the answer: of its root causes, then of its edges."""
    of_roots = (item for claim in diagnosis.root_causes for item in claim.evidence)
    of_edges = (item for edge in diagnosis.propagation for item in edge.evidence)
    return (*of_roots, *of_edges)


def evidence_metrics(diagnosis: Diagnosis, sql: LockedSql | None) -> tuple[Metrics, tuple[EvidenceResult, ...]]:
    """Return sql_exec = ok / all (Equation 9; a statement that gives no rows fails) and what each statement gave.

    Not applicable without evidence; failed when there are no tables to run it on or the worker cannot be kept alive.
    Equal statements are run once and counted as often as they are given.
    """
    items = evidence_of(diagnosis)
    if not items:
        return metrics.not_applicable(metrics.EVIDENCE, "the answer gives no evidence"), ()
    if sql is None:
        return metrics.failed(metrics.EVIDENCE, "the tables of the incident were not at hand"), ()
    try:
        results = tuple(_run(items, sql))
    except AssayError as error:
        return metrics.failed(metrics.EVIDENCE, f"the SQL worker failed: {error}"), ()
    return {"sql_exec": scored(sum(r.status == "ok" for r in results) / len(results))}, results


def _run(items: Iterable[Evidence], sql: LockedSql) -> Iterable[EvidenceResult]:
    known: dict[str, EvidenceResult] = {}
    for item in items:
        if item.sql not in known:
            known[item.sql] = _result(item, sql)
        yield known[item.sql].model_copy(update={"claim": item.claim})


def _result(item: Evidence, sql: LockedSql) -> EvidenceResult:
    answer = sql.query(item.sql)
    rows = tuple(tuple(_cell(value) for value in row) for row in answer.rows[:ROWS_KEPT])
    return EvidenceResult(
        sql=item.sql,
        claim=item.claim,
        status=answer.status,
        columns=tuple(answer.columns),
        rows=rows,
        message=answer.message[:TEXT_KEPT],
    )


def _cell(value: Any) -> str | int | float | bool | None:
    """Return *value* as JSON can hold it, the same when it is read back."""
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    return str(value)[:TEXT_KEPT]
