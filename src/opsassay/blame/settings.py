"""What a technique may see and how hard it may try."""

from __future__ import annotations

from pydantic import Field

from opsassay.model.base import Written
from opsassay.model.trajectory import Trace


class BlameSettings(Written):
    """Observability, limits and tolerance. The paper's printed k, w and tolerance are lost; the defaults are ours."""

    reference: bool = Field(default=True, description="show the reference answer")
    metadata: bool = Field(default=True, description="show instruction, configuration, architecture and outcome")
    inputs: bool = Field(default=True, description="show what each step was given")
    candidates: int = Field(default=3, ge=1, description="k: candidates that the dynamic technique tests")
    window: int = Field(default=3, ge=1, description="w: steps observed after an intervention")
    tolerance: int = Field(default=1, ge=0, description="steps by which a near answer may be off")
    temperature: float = Field(default=0.3, ge=0, description="decoding temperature, as in the paper")
    max_turns: int = Field(default=30, ge=2, description="turns of an agentic technique before it counts as no answer")


def observed(trace: Trace, settings: BlameSettings) -> Trace:
    """Return *trace* with what the settings hide taken out, so that no technique can see it by accident."""
    hidden: dict[str, object] = {}
    if not settings.reference:
        hidden["reference_answer"] = None
    if not settings.metadata:
        hidden |= {"task_instruction": "", "agent_configuration": {}, "system_architecture": None, "outcome": None}
        hidden |= {"system_name": "", "task_id": ""}
    if not settings.inputs:
        hidden["steps"] = tuple(step.model_copy(update={"input_context": ""}) for step in trace.steps)
    return trace.model_copy(update=hidden)
