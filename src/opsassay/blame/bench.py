"""Techniques over labelled traces: accuracy with intervals, by subset, agent type and third, beside what it cost."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from opsassay.agents.models.base import Model
from opsassay.blame.asking import Cost
from opsassay.blame.attribute import Blamed, attribute
from opsassay.blame.rerun import Rerun
from opsassay.blame.rules import RULES
from opsassay.blame.scores import Scored, TechniqueSummary, breakdown, score, summarise
from opsassay.blame.settings import BlameSettings
from opsassay.errors import UserError
from opsassay.model.progress import SILENT, Progress, piece
from opsassay.model.trajectory import LabelledTrace

POOLED = "all"
RE_RUN = "dynamic"
"""The technique that runs systems again; traces of systems that cannot be run again are not in its rows."""
RerunOf = Callable[[LabelledTrace], Rerun | None]


_NONE_AGAIN = (
    "The dynamic technique runs systems again, and none of the {} traces can be: say how with --reruns FILE (see "
    "docs/blame.md), or compare static techniques."
)


@dataclass(frozen=True)
class BenchRow:
    """One technique on one subset, or on all of them; *cost* is the mean per trace and run."""

    subset: str
    technique: str
    runs: int
    summary: TechniqueSummary
    by_agent_type: dict[str, TechniqueSummary]
    by_third: dict[str, TechniqueSummary]
    calls: float
    tokens: float


def bench(
    cases: Sequence[LabelledTrace],
    techniques: Sequence[str],
    *,
    model: Model | None = None,
    settings: BlameSettings | None = None,
    runs: int = 3,
    compat: bool = False,
    rerun_of: RerunOf = lambda _: None,
    progress: Progress = SILENT,
) -> list[BenchRow]:
    """Return a row for every technique and subset, and for all subsets together.

    The rules are always among the techniques. Techniques that ask a model run *runs* times and their accuracies are
    means; "combined" is fitted by leave-one-out within each subset, so that no label is used on its own trace. "dynamic"
    runs on the traces that *rerun_of* can run again: its n says how many; raises UserError when there are none.
    """
    chosen = settings or BlameSettings()
    rows = []
    for technique in dict.fromkeys((*RULES, *techniques)):
        among = [case for case in cases if technique != RE_RUN or rerun_of(case) is not None]
        left_out = f", {len(cases) - len(among)} of {len(cases)} cannot be run again and are left out"
        with piece(progress, technique + (left_out if len(among) < len(cases) else "")):
            if not among:
                raise UserError(_NONE_AGAIN.format(len(cases)))
            repeats = 1 if technique in RULES or technique == "combined" else runs
            answers = [_answers(among, technique, model, chosen, rerun_of) for _ in range(repeats)]
            rows += _rows(among, technique, answers, chosen, compat=compat)
    return rows


def _answers(
    cases: Sequence[LabelledTrace], technique: str, model: Model | None, settings: BlameSettings, rerun_of: RerunOf
) -> list[Blamed]:
    if technique != "combined":
        return [
            attribute(case.trace, technique, model=model, settings=settings, rerun=rerun_of(case)) for case in cases
        ]
    from opsassay.blame.combined import leave_one_out

    found: dict[str, Blamed] = {}
    for subset in dict.fromkeys(case.subset for case in cases):
        own = [case for case in cases if case.subset == subset]
        if len(own) < 2:
            continue
        for case, answer in zip(own, leave_one_out(own), strict=True):
            found[case.id] = Blamed(technique, answer, Cost())
    return [found.get(case.id) or attribute(case.trace, technique, settings=settings) for case in cases]


def _rows(
    cases: Sequence[LabelledTrace],
    technique: str,
    runs: Sequence[Sequence[Blamed]],
    settings: BlameSettings,
    *,
    compat: bool,
) -> list[BenchRow]:
    subsets = list(dict.fromkeys(case.subset for case in cases))
    rows = []
    for subset in subsets if len(subsets) == 1 else [*subsets, POOLED]:
        at = [i for i, case in enumerate(cases) if subset in {case.subset, POOLED}]
        scored = [
            [score(cases[i], run[i].attribution, tolerance=settings.tolerance, compat=compat) for i in at]
            for run in runs
        ]
        costs = [run[i].cost for run in runs for i in at]
        rows.append(_row(subset, technique, scored, costs))
    return rows


def _row(subset: str, technique: str, scored: list[list[Scored]], costs: list[Cost]) -> BenchRow:
    return BenchRow(
        subset=subset,
        technique=technique,
        runs=len(scored),
        summary=summarise(scored),
        by_agent_type=breakdown(scored, "agent_type"),
        by_third=breakdown(scored, "third"),
        calls=sum(cost.calls for cost in costs) / len(costs),
        tokens=sum(cost.tokens for cost in costs) / len(costs),
    )
