"""Score tables: graded runs of any domain as the long table that `opsassay audit` reads."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import polars as pl

from opsassay.core.errors import NotFoundError, UserError
from opsassay.core.schema.run import SCORE_TABLE_COLUMNS, Metric, MetricStatus, Run, Verdict
from opsassay.scoring.profiles import PROFILES
from opsassay.telemetry.content import whole_file

NATIVE = "opsassay"
"""The family of tasks made with OpsAssay; imported incidents have the family of their format."""

CORRECT = "correct"
"""The metric for any case with known truth: a true root was named, or "nothing is wrong" where nothing was."""

NOTHING, NO_ANSWER = "nothing is wrong", "no answer"
"""Labels of an answer without a root cause, and of a run without an answer."""

_KEYS = ["family", "system", "case", "method", "protocol"]


@dataclass(frozen=True)
class CaseLabels:
    """The facts on a case in a score table: its *family*, the names of each root service, and covariates.

    *roots* None where the truth is not at hand; empty where nothing was broken.
    """

    family: str = NATIVE
    roots: tuple[frozenset[str], ...] | None = None
    covariates: Mapping[str, float] = field(default_factory=dict)

    @property
    def expected(self) -> str | None:
        """The label of a right answer: the first true root by name, NOTHING if none; None if the truth is unknown."""
        if self.roots is None:
            return None
        return min(map(min, self.roots)) if self.roots else NOTHING

    def label(self, answer: str) -> str:
        """Return the expected label if *answer* is any true root (as profile ``default`` compares), else *answer*."""
        name = PROFILES["default"].service
        right = {name(service) for root in self.roots or () for service in root}
        return self.expected or answer if name(answer) in right else answer


@dataclass(frozen=True)
class ScoredAnswer:
    """A verdict and its keys in an audit; *protocol*: the solver's configuration, *said*: the label of its answer."""

    method: str
    verdict: Verdict
    protocol: str = ""
    said: str | None = None

    @classmethod
    def from_run(cls, method: str, run: Run, verdict: Verdict, answer: str | None) -> ScoredAnswer:
        """Return a run's scored answer with label *answer*; parameters go from the name *method* into `protocol`."""
        configuration = json.dumps(run.solver.configuration, sort_keys=True) if run.solver.configuration else ""
        name = method.replace(run.solver.label, run.solver.name, 1)
        return cls(name, verdict, configuration, answer)


def score_of(verdict: Verdict, metric: str) -> Metric | None:
    """Return the metric *metric* of *verdict* (for CORRECT any_service, else exact_match); None if it has none."""
    if metric != CORRECT:
        return verdict.metrics.get(metric)
    parts = (verdict.metrics.get(name) for name in ("any_service", "exact_match"))
    return next((part for part in parts if part and part.status is not MetricStatus.NOT_APPLICABLE), None)


def score_table(answers: Iterable[ScoredAnswer], metric: str, labels_of: Mapping[str, CaseLabels]) -> pl.DataFrame:
    """Return one row per case, method and protocol: mean *metric* over repeats, and the first one's answer label.

    Columns: SCORE_TABLE_COLUMNS (text, score f64), then the covariates of *labels_of* (f64), which maps items to their
    labels. A grade that is not applicable is no row; one that failed to be graded is a row without a score, so that a
    method that crashes on hard cases is not scored on easy ones alone. Raises NotFoundError for an unknown metric,
    UserError for one that is not in [0, 1].
    """
    rows, names = [], {CORRECT}
    further = sorted({name for labels in labels_of.values() for name in labels.covariates})
    for answer in answers:
        verdict = answer.verdict
        names |= verdict.metrics.keys()
        grade, case = score_of(verdict, metric), labels_of.get(verdict.item, CaseLabels())
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


def write_scores(table: pl.DataFrame, path: Path) -> Path:
    """Write *table* as the CSV file *path*, atomically; return *path*."""
    with whole_file(path) as partial:
        table.write_csv(partial)
    return path
