"""The entry to rules and techniques: a trace in, an attribution with its cost out; a failing model is an answer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from opsassay.agents.models.base import Model
from opsassay.blame.asking import BlameAsker, Cost
from opsassay.blame.rerun import Rerun
from opsassay.blame.rules import RULES
from opsassay.blame.settings import BlameSettings, observed
from opsassay.blame.techniques import TECHNIQUES
from opsassay.errors import NotFoundError, OperationError, UserError
from opsassay.model.trajectory import Attribution, Trace

if TYPE_CHECKING:
    from opsassay.blame.operations import Joined

JOINED = "joined"
"""No model: the step that the run on one clock points to, for operations agents."""


@dataclass(frozen=True)
class Blamed:
    """What a technique says of a trace, and what it cost."""

    technique: str
    attribution: Attribution
    cost: Cost


def names() -> list[str]:
    """Return every rule and technique."""
    return [*RULES, "combined", JOINED, *TECHNIQUES.names()]


def attribute(
    trace: Trace,
    technique: str,
    *,
    model: Model | None = None,
    settings: BlameSettings | None = None,
    rerun: Rerun | None = None,
    joined: Joined | None = None,
) -> Blamed:
    """Return what *technique* says of *trace*; a model that does not answer gives no answer, with the reason.

    Raises NotFoundError for an unknown technique, UserError for one that lacks its model, its re-run or its run folder.
    """
    chosen = settings or BlameSettings()
    shown = observed(trace, chosen)
    if technique in RULES:
        return Blamed(technique, RULES[technique](shown), Cost())
    if technique == "combined":
        from opsassay.blame.combined import shipped

        return Blamed(technique, shipped().attribute(shown), Cost())
    if technique == JOINED:
        if joined is None:
            raise UserError("The technique 'joined' reads what the system went through; give the folder of a run.")
        from opsassay.blame.operations import blame_run

        return Blamed(technique, blame_run(trace, joined), Cost())
    if technique not in TECHNIQUES.names():
        raise NotFoundError("attribution technique", technique, names())
    if model is None:
        raise UserError(
            f"The technique {technique!r} asks a model; name one with --model, or use a rule such as `combined`."
        )
    asker = BlameAsker(model, chosen.temperature)
    try:
        answer = TECHNIQUES.load(technique)(shown, asker, chosen, rerun)
    except OperationError as error:
        answer = Attribution(reason=f"the model gave no answer: {error}")
    return Blamed(technique, answer, asker.cost)
