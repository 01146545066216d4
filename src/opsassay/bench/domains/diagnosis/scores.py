"""What a score table needs of incidents, and whether a solver always says the same."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from opsassay.model.diagnosis import Diagnosis
from opsassay.telemetry.tree import Case

COLLAPSED = 0.95
"""From this share of equal answers on, a solver has collapsed to one of them (leaderboard audit, appendix F)."""


def families_of(cases: Iterable[Case]) -> dict[str, str]:
    """Return the families of the items among *cases* that were imported: the format that they came in."""
    incidents = (case.datapack.incident for case in cases)
    return {i.id: str(i.provenance["format"]) for i in incidents if "format" in i.provenance}


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
