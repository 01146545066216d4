"""Runs a rule or technique on a trace; returns its attribution and cost, also when a model fails."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from opsassay.analysis.blame.asking import BlameAsker, Cost
from opsassay.analysis.blame.long_traces import ask_within
from opsassay.analysis.blame.rerun import Rerun
from opsassay.analysis.blame.rules import RULES
from opsassay.analysis.blame.settings import BlameSettings, observed
from opsassay.analysis.blame.techniques import AT_ONCE, TECHNIQUES
from opsassay.core.errors import NotFoundError, OperationError, UserError
from opsassay.core.schema.trajectory import Attribution, Trace
from opsassay.solvers.agents.models.base import Model

if TYPE_CHECKING:
    from opsassay.analysis.blame.inevitability import Continuing, PrefixRuns
    from opsassay.analysis.blame.operations import Joined

Technique = Callable[[Trace, BlameAsker, BlameSettings, Rerun | None], Attribution]
"""A technique that asks a model."""
JOINED = "joined"
"""The technique for operations agents, without a model: blames a step by the run's time axis."""
CONTINUATION = "continuation"
"""The technique that continues the trace from its steps and blames the first after which runs fail."""


@dataclass(frozen=True)
class Blamed:
    """A technique's attribution of a trace, and its cost."""

    technique: str
    attribution: Attribution
    cost: Cost
    failed: str | None = None
    """Why the model gave no answer; the attribution then counts neither as right nor as wrong."""
    notes: tuple[str, ...] = ()
    """Remarks to show with the answer, such as how a re-run's requests differed from the recorded ones."""
    prefixes: tuple[PrefixRuns, ...] = ()
    """For `continuation`: the runs from each prefix of the trace."""


def names() -> list[str]:
    """Return the names of all rules and model-based techniques."""
    return [*RULES, "combined", JOINED, CONTINUATION, *TECHNIQUES.names()]


def attribute(
    trace: Trace,
    technique: str,
    *,
    model: Model | None = None,
    settings: BlameSettings | None = None,
    rerun: Rerun | None = None,
    joined: Joined | None = None,
    continuing: Continuing | None = None,
) -> Blamed:
    """Return the agent and step of *trace* that *technique* blames, with the cost; *failed* is set if a model failed.

    Raises NotFoundError for an unknown technique, UserError for one that lacks its model, its re-run or its run folder,
    and for `continuation` where neither the trace has a reference answer nor *continuing* a judge.
    A technique uses some of *model*, *rerun* (runs the system again), *joined* (the run's time axis with findings) and
    *continuing* (how to continue a trace); the others are ignored.
    """
    chosen = settings or BlameSettings()
    chosen.require_context()
    shown = observed(trace, chosen)
    if technique in RULES:
        return Blamed(technique, RULES[technique](shown), Cost())
    if technique == "combined":
        from opsassay.analysis.blame.combined import shipped

        return Blamed(technique, shipped().attribute(shown), Cost())
    if technique == JOINED:
        if joined is None:
            raise UserError("The technique 'joined' reads what the system went through; give the folder of a run.")
        from opsassay.analysis.blame.operations import blame_run

        return Blamed(technique, blame_run(trace, joined), Cost())
    if technique == CONTINUATION:
        return _blame_by_continuation(trace, rerun, continuing)
    if technique not in TECHNIQUES.names():
        raise NotFoundError("attribution technique", technique, names())
    if model is None:
        raise UserError(
            f"The technique {technique!r} asks a model; name one with --model, or use a rule such as `combined`."
        )
    return ask_model(
        technique, TECHNIQUES.load(technique), shown, model, chosen, rerun, in_conversation=technique not in AT_ONCE
    )


def ask_model(
    name: str,
    technique: Technique,
    trace: Trace,
    model: Model,
    settings: BlameSettings,
    rerun: Rerun | None,
    *,
    in_conversation: bool,
) -> Blamed:
    """Return the step of *trace* that the model-based *technique*, called *name*, blames, with its cost.

    *rerun* runs the system again. *in_conversation*: it uses tools in a conversation, which halves the room for the
    trace.
    """
    asker = BlameAsker(model, settings.temperature)
    try:
        answer = ask_within(
            lambda part: technique(part, asker, settings, rerun),
            trace,
            asker,
            settings,
            in_conversation=in_conversation,
        )
    except OperationError as error:
        reason = str(error).split("\n", 1)[0][:500]
        failure = Attribution(reason=f"the model gave no answer: {reason}")
        return Blamed(name, failure, asker.cost, reason, tuple(asker.notes))
    return Blamed(name, answer, asker.cost, notes=tuple(asker.notes))


def _blame_by_continuation(trace: Trace, rerun: Rerun | None, continuing: Continuing | None) -> Blamed:
    """Blame the first step after which continued runs fail (*continuing*: how); raises UserError without *rerun*."""
    from opsassay.analysis.blame.inevitability import Continuing, continue_and_measure

    if rerun is None:
        raise UserError("The technique 'continuation' runs the system again; give --rerun and --upstream.")
    try:
        found = continue_and_measure(trace, rerun, continuing or Continuing())
    except OperationError as error:
        return Blamed(CONTINUATION, Attribution(reason=str(error)), Cost(), str(error))
    return Blamed(CONTINUATION, found.attribution(trace), Cost(found.spent), prefixes=found.prefixes)
