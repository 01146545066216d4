"""Stages of a grade, each apart, and how worlds were judged."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from opsassay.core.schema.run import Metric, MetricStatus
from opsassay.core.untrusted import one_sentence

STAGES = ("artefact", "evidence", "asked", "kept", "posture")
"""IPA, CE, IEC and SAP of ITBench, and whether all that was not asked for is as it was."""
RATES = ("false_positive_rate", "false_negative_rate", "mutation_kill_rate")


@dataclass(frozen=True)
class JudgedWorlds:
    """Which worlds were judged rightly, as (label, right), or why they could not be judged."""

    rows: Sequence[tuple[bool, bool]] = ()
    error: str | None = None

    def wrong(self, *, compliant: bool | None = None) -> tuple[int, int]:
        """Return how many of the worlds with that label were judged wrongly, and how many there are."""
        rows = [right for label, right in self.rows if compliant is None or label == compliant]
        return rows.count(False), len(rows)


def mark(why: str | None) -> Metric:
    """Return a passed stage, or one that failed and *why*."""
    return Metric(value=0.0 if why else 1.0, status=MetricStatus.SCORED, reason=one_sentence(why or ""))


def not_asked(why: str) -> Metric:
    """Return a stage that the task does not have."""
    return Metric(status=MetricStatus.NOT_APPLICABLE, reason=why)


def unseen(why: str) -> Metric:
    """Return a stage that could not be looked at, for *why*."""
    return Metric(status=MetricStatus.FAILED, reason=one_sentence(why))


def without_artefact(why: str) -> dict[str, Metric]:
    """Return the metrics of an answer that is none."""
    return {"passed": mark(why), **dict.fromkeys((*STAGES, *RATES), unseen(why)), "artefact": mark(why)}


def all_of(stages: Mapping[str, Metric], rates: Mapping[str, Metric]) -> dict[str, Metric]:
    """Return every metric, whether it passed first: every stage that the task has did."""
    asked_for = [one for one in stages.values() if one.status is not MetricStatus.NOT_APPLICABLE]
    said = next((one.reason for one in asked_for if one.value == 0.0), None)
    said = said or next((one.reason for one in asked_for if one.value != 1.0), None)
    return {"passed": mark(said), **stages, **rates}


def rates_of(judged: JudgedWorlds, mutated: JudgedWorlds, error: str | None) -> dict[str, Metric]:
    """Return the rates over worlds and mutants; *error* is why they could not be judged.

    Of worlds and of mutants, by how many there are:

        false_positive_rate = compliant worlds judged wrongly / compliant worlds
        false_negative_rate = violating worlds judged wrongly / violating worlds
        mutation_kill_rate  = mutants judged rightly / mutants
    """
    if error is not None:
        return dict.fromkeys(RATES, unseen(error))
    noisy, missed, (alive, count) = judged.wrong(compliant=True), judged.wrong(compliant=False), mutated.wrong()
    values = (noisy[0] / noisy[1], missed[0] / missed[1], 1 - alive / count)
    return {name: Metric(value=value, status=MetricStatus.SCORED) for name, value in zip(RATES, values, strict=True)}


def posture(judged: JudgedWorlds, mutated: JudgedWorlds, words: tuple[str, str]) -> Metric:
    """Return whether every world was judged rightly; *words* say what happened to violating and to compliant ones."""
    noisy, compliant = judged.wrong(compliant=True)
    missed, violating = judged.wrong(compliant=False)
    if noisy or missed:
        return mark(
            f"{missed} of {violating} violating worlds {words[0]}, {noisy} of {compliant} compliant ones {words[1]}"
        )
    wrong, count = mutated.wrong()
    return mark(f"{wrong} of {count} mutants judged wrongly" if wrong else None)
