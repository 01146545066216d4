"""Scores of attributions: exact, within a tolerance, and the substring scoring of the public code for comparison.

An answer that was not given counts as wrong and is counted apart; a question that failed, because the model could not be
reached, counts as nothing and is counted apart too. Intervals are Wilson's at 95%. Rates stand for the
mean over repeated runs of a sampled model; the interval then takes the number of traces, not of runs, as n.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from opsassay.analysis.blame.combined import agent_type
from opsassay.core.schema.trajectory import Attribution, LabelledTrace
from opsassay.scoring.figures import MeanFigure
from opsassay.scoring.rates import wilson

from ..running import part_of
from .settings import Scorer


@dataclass(frozen=True)
class Scored:
    """One answer beside its label; *answered* is False where a technique gave none, *failed* True where it could not."""

    trace: str
    subset: str
    system: str
    agent_type: str
    third: str
    answered: bool
    agent: bool
    step: bool
    step_within: bool
    failed: bool = False


@dataclass(frozen=True)
class TechniqueSummary:
    """Accuracies of one technique over *n* traces that it was asked about; *macro* are means over systems.

    *failed* counts the answers that could not be had, which are in no mean; a trace without any other is not in *n*.
    *unanswered*: the share of answers that were not given.
    """

    n: int
    failed: int
    unanswered: float
    agent: MeanFigure
    step: MeanFigure
    step_within: MeanFigure
    macro_agent: float
    macro_step: float

    def as_json(self) -> dict[str, Any]:
        """Return plain data for ``--json``."""
        return asdict(self)


def score(case: LabelledTrace, answer: Attribution, *, tolerance: int = 1, scorer: Scorer = "exact") -> Scored:
    """Return how *answer* compares with the label of *case*; a step within *tolerance* steps counts as near.

    The other scorers are the rules of public code: the label's text is looked for inside the answer's, so that step 1
    is found in 12; "whoandwhen" counts steps from 0, "traceelephant" from 1.
    """
    label, n = case.label, len(case.trace.steps)
    answered = answer.agent_name is not None and answer.step_id is not None
    near = answer.step_id is not None and label.step_id is not None and abs(answer.step_id - label.step_id) <= tolerance
    return Scored(
        trace=case.id,
        subset=case.subset,
        system=case.trace.system_name,
        agent_type=agent_type(label.agent_name or ""),
        third=third((label.step_id or 1), n),
        answered=answered,
        agent=_agent_matches(label, answer, scorer),
        step=_step_matches(label, answer, scorer),
        step_within=near,
    )


def summarise(rows: Iterable[Scored]) -> TechniqueSummary:
    """Return the accuracies over *rows*, of which a trace has one for each run: means over traces of means over runs."""
    by_trace: dict[str, list[Scored]] = defaultdict(list)
    failed = 0
    for row in rows:
        failed += row.failed
        if not row.failed:
            by_trace[row.trace].append(row)
    traces = list(by_trace.values())
    return TechniqueSummary(
        n=len(traces),
        failed=failed,
        unanswered=_mean(_share(runs, lambda row: not row.answered) for runs in traces),
        agent=_rate(traces, lambda row: row.agent),
        step=_rate(traces, lambda row: row.step),
        step_within=_rate(traces, lambda row: row.step_within),
        macro_agent=_macro(traces, lambda row: row.agent),
        macro_step=_macro(traces, lambda row: row.step),
    )


def breakdown(rows: Sequence[Scored], by: str) -> dict[str, TechniqueSummary]:
    """Return the summary of every value of the field *by*: subset, system, agent_type or third."""
    values = dict.fromkeys(getattr(row, by) for row in rows)
    return {value: summarise(row for row in rows if getattr(row, by) == value) for value in values}


def third(step_id: int, steps: int) -> str:
    """Return in which third of a trace of *steps* steps the step lies: early, middle or late."""
    return ("early", "middle", "late")[min(2, (step_id - 1) * 3 // max(1, steps))]


def _agent_matches(label: Attribution, answer: Attribution, scorer: Scorer) -> bool:
    if answer.agent_name is None or label.agent_name is None:
        return False
    return label.agent_name == answer.agent_name if scorer == "exact" else label.agent_name in answer.agent_name


def _step_matches(label: Attribution, answer: Attribution, scorer: Scorer) -> bool:
    if answer.step_id is None or label.step_id is None:
        return False
    first = 0 if scorer == "whoandwhen" else 1
    said = [str(one - 1 + first) for one in (label.step_id, answer.step_id)]
    return said[0] == said[1] if scorer == "exact" else said[0] in said[1]


def _mean(values: Iterable[float]) -> float:
    listed = list(values)
    return sum(listed) / len(listed) if listed else 0.0


def _share(runs: Sequence[Scored], hit: Callable[[Scored], bool]) -> float:
    return _mean(hit(row) for row in runs)


def _rate(traces: Sequence[Sequence[Scored]], hit: Callable[[Scored], bool]) -> MeanFigure:
    n, value = len(traces), _mean(_share(runs, hit) for runs in traces)
    return MeanFigure(value, *wilson(value * n, n), n)


def _macro(traces: Sequence[Sequence[Scored]], hit: Callable[[Scored], bool]) -> float:
    by_system: dict[str, list[float]] = defaultdict(list)
    for runs in traces:
        by_system[runs[0].system].append(_share(runs, hit))
    return _mean(map(_mean, by_system.values()))


if __name__ == "__main__":
    part_of("blame")
