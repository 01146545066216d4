"""Blame by the spectrum of repeated runs: what failed runs of a task do, and runs of it that succeed do not.

An action is what an agent says and calls in a step. Its suspiciousness for one failed run is Kulczynski's second measure,
with repeats inside a run decaying, times factors::

    w_f = sum over failed runs with it of 0.9^(n - 1)    w_s alike over runs that succeed    n: how often it is in a run
    (w_f / (F - f + w_f) + w_f / (w_f + w_s)) / 2        F: failed runs, f: those with it
    * (1 + log(n of this run) / log(1 / 0.9))
    * (1 + runs with it / runs with its agent) * (1 + all of it / all steps of its agent)    with `factors` alone

Source: Famas (arXiv 2509.13782) and its published code, whose last two factors can be left out there too. With them an
action that every run has, once, outranks one that only the failed runs have, whatever their share p: 2 (1 + p) is never
less than (1 + p)^2. So they are left out unless the setting `factors` says otherwise. There a model clusters actions; here
two are one when they are the same words, times and random ids aside, or share as many of them as the setting `alike` says.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from difflib import SequenceMatcher

from opsassay.analysis.blame.asking import Cost
from opsassay.analysis.blame.attribute import Blamed
from opsassay.analysis.blame.inevitability import Judge, judge_by_reference
from opsassay.analysis.blame.rerun import Rerun
from opsassay.core.errors import OperationError, UserError
from opsassay.core.schema.trajectory import Attribution, Trace, TraceStep
from opsassay.solvers.proxy.matching import Volatile

SPECTRUM = "spectrum"
DECAY = 0.9
"""How much less each repeat of an action inside a run counts than the one before; the published default."""


@dataclass(frozen=True)
class Suspect:
    """An action of a failed run, first done at *step* by *agent*: in how many runs of either kind it is."""

    step: int
    agent: str
    action: str
    failed: int
    succeeded: int
    suspiciousness: float


@dataclass
class _Actions:
    """Actions by agent, each the words that stand for it; *alike* is the share of words from which two are one."""

    alike: float
    volatile: Volatile
    known: dict[str, list[list[str]]] = field(default_factory=dict)

    def of(self, step: TraceStep) -> tuple[str, int]:
        """Return what names the action of *step*."""
        words, own = self.volatile.text(action_text(step)).split(), self.known.setdefault(step.agent_name, [])
        for place, other in enumerate(own):
            if words == other or (
                self.alike < 1 and SequenceMatcher(None, words, other, autojunk=False).ratio() >= self.alike
            ):
                return step.agent_name, place
        own.append(words)
        return step.agent_name, len(own) - 1


def action_text(step: TraceStep) -> str:
    """Return what a step does as text: what it says, and what it calls with which arguments and outcome."""
    calls = (f"{one.tool} {json.dumps(one.arguments, sort_keys=True)} {one.status}" for one in step.tool_logs)
    return "\n".join([step.output_content, *calls])


def suspects(
    failed: Trace, others: Sequence[tuple[Trace, bool]], *, alike: float = 1.0, volatile: Volatile | None = None,
    factors: bool = False,
) -> list[Suspect]:  # fmt: skip
    """Return the actions of *failed*, most suspect first, equally suspect ones by step.

    *others* are further runs of its task, each with whether it succeeded; *factors* are those of the agent.
    """
    actions = _Actions(alike, volatile or Volatile())
    runs = [(failed, False), *others]
    counts = [Counter(actions.of(step) for step in trace.steps) for trace, _ in runs]
    lost = [not succeeded for _, succeeded in runs]
    agents = [Counter(step.agent_name for step in trace.steps) for trace, _ in runs]
    found: dict[tuple[str, int], Suspect] = {}
    for step in failed.steps:
        action = actions.of(step)
        if action in found:
            continue
        own = [count[action] for count in counts]
        agent = [count[step.agent_name] for count in agents]
        measure = _kulczynski(own, lost)
        measure *= 1 + math.log(own[0]) / math.log(1 / DECAY)
        if factors:
            measure *= (1 + _runs(own) / _runs(agent)) * (1 + sum(own) / sum(agent))
        in_failed = _runs([n for n, is_lost in zip(own, lost, strict=True) if is_lost])
        words = " ".join(action_text(step).split())
        found[action] = Suspect(step.step_id, step.agent_name, words, in_failed, _runs(own) - in_failed, measure)
    return sorted(found.values(), key=lambda one: (-one.suspiciousness, one.step))


def _kulczynski(own: Sequence[int], lost: Sequence[bool]) -> float:
    """Return the measure of an action that is *own* times in each run, of which *lost* says whether it failed."""
    weights = [DECAY ** (n - 1) if n else 0.0 for n in own]
    in_failed = sum(weight for weight, is_lost in zip(weights, lost, strict=True) if is_lost)
    without = sum(is_lost and not n for n, is_lost in zip(own, lost, strict=True))
    return (in_failed / (without + in_failed) + in_failed / sum(weights)) / 2


def _runs(counts: Sequence[int]) -> int:
    return sum(n > 0 for n in counts)


def attribution_of(ranked: Sequence[Suspect], runs: Sequence[bool]) -> Attribution:
    """Return the most suspect action of a failed run as an answer; *runs* say which of the others succeeded."""
    if not ranked:
        return Attribution(reason="there are no steps")
    first, won = ranked[0], sum(runs)
    told = f"in {first.failed} of {1 + len(runs) - won} failed runs and in {first.succeeded} of {won} that succeeded"
    return Attribution(agent_name=first.agent, step_id=first.step, reason=f"{first.suspiciousness:.2f}: {told}")


def blame_by_spectrum(
    trace: Trace, rerun: Rerun | None, *, repeats: int, alike: float, volatile: Volatile, factors: bool
) -> Blamed:
    """Return whom *repeats* runs of the system from its start point at; runs are judged by the reference answer.

    Raises UserError where the trace has no reference answer, or the system cannot be run again.
    """
    if rerun is None:
        raise UserError("The technique 'spectrum' runs the system again; say how with --reruns.")
    judge = judge_of(trace)
    try:
        others = [_once_more(trace, rerun, judge) for _ in range(repeats)]
    except OperationError as error:
        return Blamed(SPECTRUM, Attribution(reason=str(error)), Cost(), str(error))
    ranked = suspects(trace, others, alike=alike, volatile=volatile, factors=factors)
    return Blamed(SPECTRUM, attribution_of(ranked, [won for _, won in others]), Cost())


def judge_of(trace: Trace) -> Judge:
    """Return what tells the runs of *trace*'s task that succeed; raises UserError without a reference answer."""
    reference = (trace.reference_answer or "").strip()
    if not reference:
        raise UserError("Nothing says which runs succeed; the trace has no reference answer.")
    return judge_by_reference(reference)


def _once_more(trace: Trace, rerun: Rerun, judge: Judge) -> tuple[Trace, bool]:
    run = rerun.after(0)
    if run.outage is not None or not run.steps:
        raise OperationError(f"a further run of the system came to nothing: {run.outage or 'it took no step'}")
    further = trace.model_copy(update={"steps": run.steps, "outcome": None})
    return further, judge(further)
