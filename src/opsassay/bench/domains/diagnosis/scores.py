"""Score tables: graded runs as the long table that `opsassay audit` reads, and whether a solver always says the same."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from opsassay.errors import NotFoundError, UserError
from opsassay.model.diagnosis import Diagnosis
from opsassay.model.run import SCORE_TABLE_COLUMNS, MetricStatus, Verdict
from opsassay.telemetry.content import whole_file
from opsassay.telemetry.tree import Case

NATIVE = "opsassay"
"""The family of incidents that were recorded here; imported ones are of the family of their format."""

COLLAPSED = 0.95
"""From this share of equal answers on, a solver has collapsed to one of them (leaderboard audit, appendix F)."""


def score_table(verdicts: Iterable[Verdict], metric: str, families: dict[str, str]) -> pl.DataFrame:
    """Return family, system, case, method, score of *metric*, one row per case and method: repeats are averaged.

    *families* maps items to families. A grade that is not applicable is no row; one that failed to be graded is a row
    without a score, so that a method that crashes on hard cases is not scored on easy ones alone. Raises NotFoundError
    for an unknown metric, UserError for one that is not in [0, 1].
    """
    rows, names = [], set[str]()
    for verdict in verdicts:
        names |= verdict.metrics.keys()
        grade = verdict.metrics.get(metric)
        if grade is not None and grade.status is not MetricStatus.NOT_APPLICABLE:
            rows.append((families.get(verdict.item, NATIVE), verdict.system, verdict.item, verdict.solver, grade.value))
    if metric not in names:
        raise NotFoundError("metric", metric, names)
    schema = {name: pl.Float64 if name == "score" else pl.String for name in SCORE_TABLE_COLUMNS}
    table = pl.DataFrame(rows, schema=schema, orient="row")
    if table.select(((pl.col("score") < 0) | (pl.col("score") > 1)).any()).item():
        raise UserError(f"{metric} is no share between 0 and 1, so it is no score; choose another metric.")
    keys = list(SCORE_TABLE_COLUMNS[:-1])
    return table.group_by(keys).agg(pl.col("score").mean()).sort(keys)


def families_of(cases: Iterable[Case]) -> dict[str, str]:
    """Return the families of the items among *cases* that were imported: the format that they came in."""
    incidents = (case.datapack.incident for case in cases)
    return {i.id: str(i.provenance["format"]) for i in incidents if "format" in i.provenance}


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
        claimed = diagnosis.root_causes[0].service if diagnosis.root_causes else ""
        first.setdefault((solver, system), []).append(claimed)
    return [_modal(solver, system, said) for (solver, system), said in sorted(first.items())]


def _modal(solver: str, system: str, said: Sequence[str]) -> ModalAnswer:
    service, count = min(Counter(said).items(), key=lambda item: (-item[1], item[0]))
    return ModalAnswer(f"{solver} on {system}", service, count / len(said), len(said))
