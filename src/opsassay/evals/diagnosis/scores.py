"""What a score table needs of incidents, and whether a solver always says the same."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from opsassay.core.schema.diagnosis import Diagnosis
from opsassay.core.schema.run import MetricStatus, Verdict
from opsassay.core.text import counted
from opsassay.evals.runner.scores import CORRECT, NATIVE, NOTHING, CaseLabels
from opsassay.scoring.void import is_void
from opsassay.solvers.methods.alert_count import AlertCount
from opsassay.solvers.methods.matrix import readings, z_scores
from opsassay.telemetry.datapack import Datapack
from opsassay.telemetry.tree import Case

COLLAPSED = 0.95
"""From this share of equal answers on, a solver has collapsed to one of them (leaderboard audit, appendix F)."""


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


def case_labels(cases: Iterable[Case], covariates: Iterable[str] = ()) -> dict[str, CaseLabels]:
    """Return the labels of each of *cases* by its id, with *covariates* of COVARIATES."""
    names, found = tuple(covariates), {}
    for case in cases:
        incident, truth = case.datapack.incident, case.truth
        roots = None if truth is None or truth.broken is None else truth.root_services()
        numbers = {name: float(COVARIATES[name](case.datapack)) for name in names}
        found[incident.id] = CaseLabels(str(incident.provenance.get("format", NATIVE)), roots, numbers)
    return found


def defined_metric(verdicts: Iterable[Verdict]) -> tuple[str, str]:
    """Return the metric that scores all of *verdicts*, exact_match before CORRECT, and why; '' where there is no choice.

    Void cases have no say: no metric scores them.
    """
    given = [verdict for verdict in verdicts if not is_void(verdict.metrics)]
    lacking = sum(
        v.metrics["exact_match"].status is MetricStatus.NOT_APPLICABLE for v in given if "exact_match" in v.metrics
    )
    if not lacking:
        return "exact_match", ""
    return CORRECT, (
        f"scored by {CORRECT}: the right service, or that nothing is wrong where nothing was broken; exact_match is not "
        f"defined on {lacking} of {counted(len(given), 'graded run')}"
    )


def first_claim(diagnosis: Diagnosis) -> str:
    """Return the first service that *diagnosis* claims, or NOTHING."""
    return diagnosis.root_causes[0].service if diagnosis.root_causes else NOTHING


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
