"""Evidence: every SQL of an answer is run again in the locked worker (OpenRCA 2.0, G.2.2), and looked at.

Running is not supporting. So beside `sql_exec` there are, without an LLM: whether a statement is about the service that
it was given for (relevant), whether it can say anything at all (vacuous), and, for a statement that is stated as a
prediction, whether that prediction holds for the claimed service and not just for any (bound).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from opsassay.errors import OpsAssayError
from opsassay.grading import metrics
from opsassay.grading.bound import bound_score
from opsassay.grading.metrics import Metrics, scored
from opsassay.grading.profiles import Profile
from opsassay.grading.statements import Statement, parsed
from opsassay.model.diagnosis import Diagnosis, Evidence
from opsassay.model.run import EvidenceResult
from opsassay.telemetry.sql import LockedSql

ROWS_KEPT = 20
"""Rows of a result that a verdict keeps."""

TEXT_KEPT = 500
"""Characters of a text cell or of a message that a verdict keeps."""


@dataclass(frozen=True)
class EvidenceItem:
    """One evidence item with the *services* that it was given for: the claimed one, or cause and effect of an edge."""

    evidence: Evidence
    services: tuple[str, ...]

    @property
    def about(self) -> str:
        """The services in words."""
        return " -> ".join(self.services)


def evidence_of(diagnosis: Diagnosis) -> tuple[EvidenceItem, ...]:
    """Return every evidence item of the answer: of its root causes, then of its edges."""
    of_roots = (EvidenceItem(item, (claim.service,)) for claim in diagnosis.root_causes for item in claim.evidence)
    of_edges = (
        EvidenceItem(item, (edge.source, edge.target)) for edge in diagnosis.propagation for item in edge.evidence
    )
    return (*of_roots, *of_edges)


def evidence_metrics(
    diagnosis: Diagnosis, sql: LockedSql | None, profile: Profile
) -> tuple[Metrics, tuple[EvidenceResult, ...]]:
    """Return sql_exec, evidence_relevant, evidence_vacuous and evidence_bound, and what each statement gave.

    - sql_exec = ok / all (Equation 9; a statement that gives no rows fails). A vacuous statement is not ok, unless the
      profile counts it as the public scorer does.
    - evidence_relevant: the share of items that are ok, not vacuous, and restricted to a service that they are about.
    - evidence_vacuous: the share of items in which no telemetry has a say, or that found nothing but zeros.
    - evidence_bound: the mean score of items with an expectation; not applicable when there are none.

    All not applicable without evidence; failed when there are no tables to run it on or the worker cannot be kept
    alive. Equal statements about the same service are run once and counted as often as they are given.
    """
    items = evidence_of(diagnosis)
    if not items:
        return metrics.not_applicable(metrics.EVIDENCE, "the answer gives no evidence"), ()
    if sql is None:
        return metrics.failed(metrics.EVIDENCE, "the tables of the incident were not at hand"), ()
    try:
        results = tuple(_run(items, sql, profile))
    except OpsAssayError as error:
        return metrics.failed(metrics.EVIDENCE, f"the SQL worker failed: {error}"), ()
    ran = [r.status == "ok" and (profile.counts_vacuous or not r.vacuous) for r in results]
    relevant = [r.status == "ok" and bool(r.relevant) and not r.vacuous for r in results]
    bound = [r.bound for r in results if r.bound is not None]
    return {
        "sql_exec": scored(sum(ran) / len(results)),
        "evidence_relevant": scored(sum(relevant) / len(results)),
        "evidence_vacuous": scored(sum(bool(r.vacuous) for r in results) / len(results)),
        **(
            {"evidence_bound": scored(sum(bound) / len(bound))}
            if bound
            else metrics.not_applicable(("evidence_bound",), "no evidence states an expectation")
        ),
    }, results


def _run(items: Sequence[EvidenceItem], sql: LockedSql, profile: Profile) -> Iterator[EvidenceResult]:
    known: dict[tuple[str, tuple[str, ...], str], EvidenceResult] = {}
    services = sql.datapack.services()
    for item in items:
        expected = item.evidence.expectation
        key = (item.evidence.sql, item.services, "" if expected is None else expected.canonical_json())
        if key not in known:
            known[key] = _result(item, sql, services, profile)
        yield known[key].model_copy(update={"claim": item.evidence.claim})


def _result(item: EvidenceItem, sql: LockedSql, services: Sequence[str], profile: Profile) -> EvidenceResult:
    evidence, names = item.evidence, {profile.service(name): name for name in services}
    claimed = names.get(profile.service(item.services[0]), item.services[0])
    answer = sql.query(evidence.sql, {"service": claimed, "period": "abnormal"})
    rows = tuple(tuple(_cell(value) for value in row) for row in answer.rows[:ROWS_KEPT])
    statement = parsed(sql, evidence.sql) if answer.status in {"ok", "empty"} else None
    judged = _judged(item, statement, rows, profile)
    if evidence.expectation is not None:
        held = bound_score(statement, sql, evidence.sql, evidence.expectation, claimed, services)
        judged |= {"bound": held.score, "finding": held.finding}
    return EvidenceResult(
        sql=evidence.sql,
        claim=evidence.claim,
        status=answer.status,
        columns=tuple(answer.columns),
        rows=rows,
        message=answer.message[:TEXT_KEPT],
        about=item.about,
        **judged,
    )


def _judged(
    item: EvidenceItem, statement: Statement | None, rows: tuple[tuple[Any, ...], ...], profile: Profile
) -> dict[str, Any]:
    """Return relevant, vacuous and finding of a statement, all as nothing where it could not be run."""
    if statement is None:
        return {"relevant": False, "vacuous": None, "finding": ""}

    def matches(text: str) -> bool:
        constant = text.strip("%-").lower()
        return any(
            profile.service(constant) == profile.service(name) or constant.startswith(f"{name.lower()}-")
            for name in item.services
            if name
        )

    if not statement.reads_telemetry:
        vacuous, finding = True, "no telemetry table is read"
    elif statement.is_constant:
        vacuous, finding = True, "the result does not depend on any row"
    elif rows and all(_is_nothing(value) for row in rows for value in row):  # a count of zero gives a row
        vacuous, finding = True, "it found nothing but zeros"
    else:
        vacuous, finding = False, ""
    relevant = statement.reads_telemetry and statement.restricts_to(matches)
    if not vacuous and not relevant:
        finding = f"it is not restricted to {item.about}"
    return {"relevant": relevant, "vacuous": vacuous, "finding": finding}


def _is_nothing(value: Any) -> bool:
    """Return whether a cell is zero, empty or null; the name of a period beside it says no more."""
    return value is None or value == 0 or value in {"", "normal", "abnormal"}


def _cell(value: Any) -> str | int | float | bool | None:
    """Return *value* as JSON can hold it, the same when it is read back."""
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    return str(value)[:TEXT_KEPT]
