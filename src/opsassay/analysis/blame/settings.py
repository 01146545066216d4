"""Settings of techniques: what they may see, and their limits."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from opsassay.core.errors import UserError
from opsassay.core.schema.base import Written
from opsassay.core.schema.trajectory import Trace, TraceStep
from opsassay.solvers.proxy.matching import SIMILAR, Volatile

LongPolicy = Literal["refuse", "middle-cut", "windows", "summary"]
TRUNCATE_MIDDLE_AT = 3_000
"""Inputs are cut to so many characters, half from each end, as in the public static runs."""


class BlameSettings(Written):
    """Observability, limits and tolerance. The paper's printed k, w and tolerance are lost; the defaults are ours."""

    reference: bool = Field(default=True, description="show the reference answer")
    metadata: bool = Field(default=True, description="show instruction, configuration, architecture and outcome")
    inputs: bool = Field(default=True, description="show what each step was given")
    truncate_middle: bool = Field(
        default=False, description="cut the middle of inputs above 3,000 characters, as the public static runs do"
    )
    context: int | None = Field(default=None, ge=2_000, description="tokens that the model takes at once")
    long: LongPolicy = Field(default="refuse", description="what becomes of a trace that is longer than the context")
    candidates: int = Field(default=3, ge=1, description="k: candidates that the dynamic technique tests")
    window: int = Field(default=3, ge=1, description="w: steps observed after an intervention")
    similar: float = Field(
        default=SIMILAR, ge=0, le=1, description="how alike a request of a re-run is to the recorded one at least"
    )
    volatile: Volatile = Field(default_factory=Volatile, description="what in requests changes by itself in every run")
    tolerance: int = Field(default=1, ge=0, description="steps by which a near answer may be off")
    temperature: float = Field(default=0.3, ge=0, description="decoding temperature, as in the paper")
    continuations: int = Field(default=200, ge=1, description="most runs of the technique `continuation`")
    max_turns: int = Field(default=30, ge=2, description="turns of an agentic technique before it counts as no answer")

    def require_context(self) -> None:
        """Raise UserError when long traces are to be shortened but the context size is unknown."""
        if self.long != "refuse" and self.context is None:
            raise UserError(f"long: {self.long} needs `context`, the tokens that the model takes at once; set it too.")


def observed(trace: Trace, settings: BlameSettings) -> Trace:
    """Return *trace* without the fields that *settings* hide from techniques, and with long inputs cut if set."""
    hidden: dict[str, object] = {}
    if not settings.reference:
        hidden["reference_answer"] = None
    if not settings.metadata:
        hidden |= {"task_instruction": "", "agent_configuration": {}, "system_architecture": None, "outcome": None}
        hidden |= {"system_name": "", "task_id": ""}
    if not settings.inputs:
        hidden["steps"] = tuple(step.model_copy(update={"input_context": ""}) for step in trace.steps)
    elif settings.truncate_middle:
        hidden["steps"] = tuple(with_inputs_cut(step, TRUNCATE_MIDDLE_AT) for step in trace.steps)
    return trace.model_copy(update=hidden)


def with_inputs_cut(step: TraceStep, limit: int) -> TraceStep:
    """Return *step* with the middle of its input cut out when it exceeds *limit* characters."""
    return step.model_copy(update={"input_context": cut_middle(step.input_context, limit)})


def cut_middle(text: str, limit: int) -> str:
    """Return *text* or, beyond *limit* characters, its two ends around a mark that says how many are missing."""
    if len(text) <= limit:
        return text
    first, last = limit - limit // 2, limit // 2
    mark = f"\n[... {len(text) - limit:,} characters cut ...]\n"
    return text[:first] + mark + (text[-last:] if last else "")
