"""Evidence: every SQL of an answer is run again in the locked worker (OpenRCA 2.0, G.2.2) and judged.

A statement that runs need not support its claim. So besides `sql_exec` it is judged, without an LLM, whether it is about
the claimed service (relevant), whether its result depends on telemetry at all (vacuous), and, if it has an expectation,
whether that holds for the claimed service and not for any other (bound).
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from opsassay.core.errors import OpsAssayError
from opsassay.core.schema.diagnosis import Diagnosis, Evidence
from opsassay.core.schema.run import EvidenceResult
from opsassay.scoring import metrics
from opsassay.scoring.bound import Bound, BoundResult
from opsassay.scoring.budget import TimeBudget
from opsassay.scoring.metrics import Metrics, scored
from opsassay.scoring.profiles import Profile
from opsassay.scoring.relevance import Executions, is_nothing, names_in
from opsassay.scoring.statements import NAME_COLUMNS, Statement
from opsassay.telemetry.sql import LockedSql, QueryResult, Subject

ROWS_KEPT = 20
"""Most rows of a result in a verdict."""

TEXT_KEPT = 500
"""Most characters of a text cell or message in a verdict."""


@dataclass(frozen=True)
class EvidenceItem:
    """One evidence item with the *services* of its claim: the root cause, or cause and effect of an edge."""

    evidence: Evidence
    services: tuple[str, ...]

    @property
    def about(self) -> str:
        """The names of the services that the evidence is about, joined by " -> "."""
        return " -> ".join(self.services)


def evidence_of(diagnosis: Diagnosis) -> tuple[EvidenceItem, ...]:
    """Return every evidence item of *diagnosis*: first those of root causes, then those of edges."""
    of_roots = (EvidenceItem(item, (claim.service,)) for claim in diagnosis.root_causes for item in claim.evidence)
    of_edges = (
        EvidenceItem(item, (edge.source, edge.target)) for edge in diagnosis.propagation for item in edge.evidence
    )
    return (*of_roots, *of_edges)


def evidence_metrics(
    diagnosis: Diagnosis, sql: LockedSql | None, profile: Profile, budget: TimeBudget | None = None
) -> tuple[Metrics, tuple[EvidenceResult, ...]]:
    """Return sql_exec, evidence_relevant, evidence_vacuous and evidence_bound, and what each statement gave.

    - sql_exec = ok / all (Equation 9; a statement that gives no rows fails). A vacuous statement is not ok, unless the
      profile counts it as the public scorer does.
    - evidence_relevant: the share of items that are ok, not vacuous, and follow from a service that they are about.
    - evidence_vacuous: the share of items whose result does not depend on telemetry, or is all zeros.
    - evidence_bound: the mean score of items with an expectation; not applicable when there are none.

    All not applicable without evidence; failed when there are no tables to run it on or the worker cannot be kept
    alive. Equal statements about the same service are run once and counted as often as they are given. What is left when
    *budget* is used up has the status timeout. Raises GradingEndedError when it was cancelled.
    """
    items = evidence_of(diagnosis)
    if not items:
        return metrics.not_applicable(metrics.EVIDENCE, "the answer gives no evidence"), ()
    if sql is None:
        return metrics.failed(metrics.EVIDENCE, "the tables of the incident were not at hand"), ()
    budget = budget or TimeBudget()
    try:
        results = tuple(_EvidenceGrader(sql, profile, budget).grade_items(items))
    except OpsAssayError as error:
        budget.require()  # a worker that was ended with the grading did not fail
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


class _EvidenceGrader:
    """Grades the evidence of one answer, over the tables of *sql* and within *budget*."""

    def __init__(self, sql: LockedSql, profile: Profile, budget: TimeBudget) -> None:
        self._sql, self._profile, self._budget = sql, profile, budget
        self._services = sql.datapack.services()
        self._schema = {table: tuple(sql.schema(table)) for table in sql.tables()}
        self._names: tuple[str, ...] | None = None

    def grade_items(self, items: Sequence[EvidenceItem]) -> Iterator[EvidenceResult]:
        """Yield the result of each item in order; equal statements on equal services run once."""
        known: dict[tuple[str, tuple[str, ...], str], EvidenceResult] = {}
        for item in items:
            expected = item.evidence.expectation
            key = (item.evidence.sql, item.services, "" if expected is None else expected.canonical_json())
            if key not in known:
                known[key] = self._grade_item(item)
            yield known[key].model_copy(update={"claim": item.evidence.claim})

    def _grade_item(self, item: EvidenceItem) -> EvidenceResult:
        """Run the statement of *item* and return its result: status, relevance, vacuity, bound score."""
        evidence, profile = item.evidence, self._profile
        of_name = {profile.service(name): name for name in self._services}
        claimed = of_name.get(profile.service(item.services[0]), item.services[0])
        parameters = {"service": claimed, "period": "abnormal"}
        answer = self._budget.query(self._sql, evidence.sql, parameters, with_tree=True)
        statement = None if answer.tree is None else Statement(answer.tree, self._schema)
        judged = _NOT_RUN if statement is None else self._judge_statement(item, statement, answer, parameters)
        if evidence.expectation is not None:
            held = BoundResult(0.0, "the statement cannot be run")
            if statement is not None and judged["vacuous"]:
                held = BoundResult(0.0, str(judged["finding"]))
            elif statement is not None:
                self._sql.about(self._subject_of(item))
                run = Bound(self._sql, statement, answer.executed, self._budget)
                held = run.score(evidence.expectation, claimed, self._services)
            judged = {**judged, "bound": held.score, "finding": held.finding}
        return EvidenceResult(
            sql=evidence.sql,
            executed=answer.executed,
            claim=evidence.claim,
            status=answer.status,
            columns=tuple(answer.columns),
            rows=tuple(tuple(_cell_as_json(value) for value in row) for row in answer.rows[:ROWS_KEPT]),
            message=answer.message[:TEXT_KEPT],
            about=item.about,
            **judged,
        )

    def _judge_statement(
        self, item: EvidenceItem, statement: Statement, answer: QueryResult, parameters: dict[str, str]
    ) -> dict[str, Any]:
        """Return "relevant", "vacuous", "finding" of *item*'s statement, which gave *answer* with *parameters*."""
        if item.evidence.expectation is not None and is_nothing(answer.rows):  # what is gone now was there before
            parameters = {**parameters, "period": "normal"}
            answer = self._budget.query(self._sql, answer.executed, parameters)
        runs = Executions(self._sql, answer, parameters, statement.reads, self._budget)
        if why := _why_vacuous(statement, answer, runs):
            return {**_NOT_RUN, "vacuous": True, "finding": why}
        restricted = statement.restricted(lambda text: self._is_about(item, text.strip("%-")))
        if not restricted:
            return {**_NOT_RUN, "vacuous": False, "finding": f"it is not restricted to {item.about}"}
        self._sql.about(self._subject_of(item))
        if not runs.is_about(restricted, statement.feeding):
            return {**_NOT_RUN, "vacuous": False, "finding": f"its result does not follow from {item.about}"}
        return {"relevant": True, "vacuous": False, "finding": ""}

    def _is_about(self, item: EvidenceItem, name: str) -> bool:
        """Return whether *name* is a claimed service of *item* or one of its pods ("cart-...")."""
        profile, lowered = self._profile, name.lower()
        return any(
            profile.service(lowered) == profile.service(service) or lowered.startswith(f"{service.lower()}-")
            for service in item.services
            if service
        )

    def _subject_of(self, item: EvidenceItem) -> Subject:
        """Return the names in telemetry that belong to the item's services; of nested names the longest wins.

        With them comes the factor (1.005 to 1.025) that changes numbers in their rows, drawn by a hash of the SQL.
        """
        if self._names is None:
            self._names = names_in(self._sql)
        named = [name for name in self._names if self._is_about(item, self._find_service(name) or name)]
        drawn = int.from_bytes(hashlib.sha256(item.evidence.sql.encode()).digest()[:4])
        return Subject(tuple(named), tuple(sorted(NAME_COLUMNS)), 1.005 + drawn / 2**32 / 50)

    def _find_service(self, name: str) -> str | None:
        """Return the longest service that equals *name* or its part before a hyphen; None without one."""
        lowered = name.lower()
        owners = [s for s in self._services if lowered == s.lower() or lowered.startswith(f"{s.lower()}-")]
        return max(owners, key=len, default=None)


def _why_vacuous(statement: Statement, answer: QueryResult, runs: Executions) -> str:
    """Return why *answer* to *statement* does not depend on telemetry, '' when it does; *runs* repeats the query."""
    if not statement.reads:
        return "no telemetry table is read"
    if statement.is_constant:
        return "the result does not depend on any row"
    if answer.rows and is_nothing(answer.rows):  # a count of zero gives a row
        return "it found nothing but zeros"
    if not runs.is_steady:
        return "it gives other rows each time it is run"
    return "it gives the same without any telemetry" if answer.rows and runs.says_nothing else ""


_NOT_RUN: Mapping[str, Any] = MappingProxyType({"relevant": False, "vacuous": None, "finding": ""})


def _cell_as_json(value: Any) -> str | int | float | bool | None:
    """Return a result cell as a value that JSON keeps unchanged; other types as text."""
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    return str(value)[:TEXT_KEPT]
