"""Score tables: graded runs as the long table that `opsassay audit` reads, and whether a solver always says the same."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import polars as pl

from opsassay.errors import NotFoundError, UserError
from opsassay.grading.profiles import PROFILES
from opsassay.methods.alert_count import AlertCount
from opsassay.methods.matrix import readings, z_scores
from opsassay.model.diagnosis import Diagnosis
from opsassay.model.run import SCORE_TABLE_COLUMNS, Metric, MetricStatus, Run, Verdict
from opsassay.telemetry.content import whole_file
from opsassay.telemetry.datapack import Datapack
from opsassay.telemetry.tree import Case

NATIVE = "opsassay"
"""The family of incidents that were recorded here; imported ones are of the family of their format."""

_KEYS = ["family", "system", "case", "method", "protocol"]

COLLAPSED = 0.95
"""From this share of equal answers on, a solver has collapsed to one of them (leaderboard audit, appendix F)."""


CORRECT = "correct"
"""The right service where something was broken, and "nothing is wrong" where nothing was: defined wherever truth is."""

NOTHING, NO_ANSWER = "nothing is wrong", "no answer"
"""Labels of an answer without a root cause, and of a run that gave none."""


def _anomalous_columns(pack: Datapack) -> int:
    """Return how many columns of the readings pass |z| 3 in the abnormal period, as alert-count has it."""
    table = readings(pack)
    return int((np.abs(z_scores(table.normal, table.abnormal)).max(axis=0, initial=0.0) > AlertCount.z).sum())


COVARIATES: Mapping[str, Callable[[Datapack], float]] = {
    "services": lambda pack: len(pack.services()),
    "alerts": lambda pack: len(pack.incident.alerts),
    "anomalous_columns": _anomalous_columns,
}
"""Structural numbers of a case that solvers see too; the last one is the structural proxy of the leaderboard audit, 9B."""


@dataclass(frozen=True)
class CaseLabels:
    """What a score table tells of a case: its *family*, the services that name each root, and covariates.

    *roots* None where the truth is not at hand; empty where nothing was broken.
    """

    family: str = NATIVE
    roots: tuple[frozenset[str], ...] | None = None
    covariates: Mapping[str, float] = field(default_factory=dict)

    @property
    def expected(self) -> str | None:
        """The one label of the case: the first root by name."""
        if self.roots is None:
            return None
        return min(map(min, self.roots)) if self.roots else NOTHING

    def label(self, said: str) -> str:
        """Return what was *said*, as the expected label where it names a true root in the default profile."""
        name = PROFILES["default"].service
        right = {name(service) for root in self.roots or () for service in root}
        return self.expected or said if name(said) in right else said


@dataclass(frozen=True)
class ScoredAnswer:
    """A verdict with what an audit compares it by; *protocol* is the configuration of the solver, *said* the answer."""

    method: str
    verdict: Verdict
    protocol: str = ""
    said: str | None = None

    @classmethod
    def of(cls, method: str, run: Run, verdict: Verdict, diagnosis: Diagnosis | None) -> ScoredAnswer:
        """Return the answer of *run*; the parameters of a method are its protocol and no part of its name."""
        configuration = json.dumps(run.solver.configuration, sort_keys=True) if run.solver.configuration else ""
        name = method.replace(run.solver.label, run.solver.name, 1)
        return cls(name, verdict, configuration, NO_ANSWER if diagnosis is None else first_claim(diagnosis))


def case_labels(cases: Iterable[Case], covariates: Iterable[str] = ()) -> dict[str, CaseLabels]:
    """Return the labels of each of *cases* by its id, with *covariates* of COVARIATES."""
    names, found = tuple(covariates), {}
    for case in cases:
        incident, truth = case.datapack.incident, case.truth
        roots = None if truth is None or truth.broken is None else truth.root_services()
        numbers = {name: float(COVARIATES[name](case.datapack)) for name in names}
        found[incident.id] = CaseLabels(str(incident.provenance.get("format", NATIVE)), roots, numbers)
    return found


def score_of(verdict: Verdict, metric: str) -> Metric | None:
    """Return the grade of *verdict* that *metric* means, None where it has none: also CORRECT."""
    if metric != CORRECT:
        return verdict.metrics.get(metric)
    parts = (verdict.metrics.get(name) for name in ("any_service", "exact_match"))
    return next((part for part in parts if part and part.status is not MetricStatus.NOT_APPLICABLE), None)


def defined_metric(verdicts: Iterable[Verdict]) -> tuple[str, str]:
    """Return the metric that scores all of *verdicts*, exact_match before CORRECT, and why; '' where there is no choice."""
    given = list(verdicts)
    lacking = sum(
        v.metrics["exact_match"].status is MetricStatus.NOT_APPLICABLE for v in given if "exact_match" in v.metrics
    )
    if not lacking:
        return "exact_match", ""
    return CORRECT, (
        f"scored by {CORRECT}: the right service, or that nothing is wrong where nothing was broken; exact_match is not "
        f"defined on {lacking} of {len(given)} graded runs"
    )


def score_table(answers: Iterable[ScoredAnswer], metric: str, about: Mapping[str, CaseLabels]) -> pl.DataFrame:
    """Return one row per case, method and protocol: repeats are averaged, and the answer is that of the first one.

    Columns: SCORE_TABLE_COLUMNS (text, score f64), then the covariates of *about* (f64), which maps items to
    their labels. A grade that is not applicable is no row; one that failed to be graded is a row without a score, so that a
    method that crashes on hard cases is not scored on easy ones alone. Raises NotFoundError for an unknown metric,
    UserError for one that is not in [0, 1].
    """
    rows, names = [], {CORRECT}
    further = sorted({name for labels in about.values() for name in labels.covariates})
    for answer in answers:
        verdict = answer.verdict
        names |= verdict.metrics.keys()
        grade, case = score_of(verdict, metric), about.get(verdict.item, CaseLabels())
        if grade is not None and grade.status is not MetricStatus.NOT_APPLICABLE:
            said = None if answer.said is None or case.expected is None else case.label(answer.said)
            labels = (case.family, verdict.system, verdict.item, answer.method, answer.protocol, said, case.expected)
            rows.append((*labels, grade.value, *(case.covariates.get(name) for name in further)))
    if metric not in names:
        raise NotFoundError("metric", metric, names)
    numbers = {"score", *further}
    schema = {name: pl.Float64 if name in numbers else pl.String for name in (*SCORE_TABLE_COLUMNS, *further)}
    table = pl.DataFrame(rows, schema=schema, orient="row")
    if table.select(((pl.col("score") < 0) | (pl.col("score") > 1)).any()).item():
        raise UserError(f"{metric} is no share between 0 and 1, so it is no score; choose another metric.")
    others = [name for name in table.columns if name not in (*_KEYS, "score")]
    found = table.group_by(_KEYS, maintain_order=True).agg(pl.col(others).first(), pl.col("score").mean())
    return found.select(table.columns).sort(_KEYS[:-1], maintain_order=True)


def first_claim(diagnosis: Diagnosis) -> str:
    """Return the first service that *diagnosis* claims, or NOTHING."""
    return diagnosis.root_causes[0].service if diagnosis.root_causes else NOTHING


def write_scores(table: pl.DataFrame, path: Path) -> Path:
    """Write *table* as CSV, whole."""
    with whole_file(path) as partial:
        table.write_csv(partial)
    return path


@dataclass(frozen=True)
class ModalAnswer:
    """The most frequent first place of a solver and its share of *cases*; collapsed from COLLAPSED on."""

    solver: str
    service: str
    share: float
    cases: int

    @property
    def collapsed(self) -> bool:
        """Whether the solver answers (nearly) every case of several services alike."""
        return self.cases > 1 and self.share >= COLLAPSED


def modal_answers(answers: Iterable[tuple[str, str, Diagnosis]]) -> list[ModalAnswer]:
    """Return the modal answer of every (solver, system); *answers* are (solver, system, diagnosis).

    The answer of a case is the first claimed service, or "" for "nothing is wrong". Sorted by solver and system, the
    system in the solver's name.
    """
    first: dict[tuple[str, str], list[str]] = {}
    for solver, system, diagnosis in answers:
        claimed = first_claim(diagnosis) if diagnosis.root_causes else ""
        first.setdefault((solver, system), []).append(claimed)
    return [_modal(solver, system, said) for (solver, system), said in sorted(first.items())]


def _modal(solver: str, system: str, said: Sequence[str]) -> ModalAnswer:
    service, count = min(Counter(said).items(), key=lambda item: (-item[1], item[0]))
    return ModalAnswer(f"{solver} on {system}", service, count / len(said), len(said))
