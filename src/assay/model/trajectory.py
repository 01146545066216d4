"""Scenario, Timeline and Trace: a task for an agent, what the system went through, and what the agent did."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from assay.model.base import Artefact, Noun, Written
from assay.model.incident import FaultPlan

Depth = Literal["D1", "D2", "D3", "D4"]
"""Observation depths of "side-effects": replicas ready, backends ready, end-to-end request, control plane."""


class Verification(Written):
    """What is committed before the run: thresholds, cadence, attribution window, protected services."""

    depth: Depth = "D3"
    final_availability: float = Field(default=0.95, ge=0, le=1)
    floor_availability: float = Field(default=0.85, ge=0, le=1)
    cadence_s: float = Field(default=5.0, gt=0)
    probe_every_s: float | None = Field(default=20.0, gt=0)
    probe_attribution_s: float = Field(default=10.0, ge=0)
    probe_latency_limit_s: float = Field(default=5.0, gt=0)
    protected_services: tuple[str, ...] = ()


class Scenario(Written):
    """A task: metadata, environment, trigger, desired outcome and how it will be verified (ITBench's tuple)."""

    name: str
    description: str = ""
    metadata: dict[str, Any] = Field(default_factory=dict)
    system: str
    trigger: tuple[FaultPlan, ...]
    desired_outcome: str
    verification: Verification = Verification()
    oracles: dict[str, tuple[str, ...]] = Field(default_factory=dict)


class Probe(Noun):
    """One end-to-end request to a protected service, with its own start and end."""

    id: str
    target: str
    started_ns: int
    ended_ns: int
    status: int | None = None
    latency_s: float
    reachable: bool


class Observation(Noun):
    """One reading at one depth with its own start and end; *value* is a share in [0, 1], None when it was missed."""

    depth: Depth
    started_ns: int
    ended_ns: int
    value: float | None
    failing: tuple[str, ...] = ()


class Tick(Noun):
    """One observation of all depths."""

    index: int
    observations: tuple[Observation, ...]
    probes: tuple[Probe, ...] = ()


class Timeline(Artefact):
    """The system trajectory."""

    boot_id: str
    cadence_s: float
    ticks: tuple[Tick, ...] = ()


class ToolCall(Noun):
    """One tool call of an agent, with what came back; *status* is unanswered when nothing did."""

    tool: str
    arguments: dict[str, Any]
    output: str
    status: Literal["ok", "error", "unanswered"] = "ok"


class TraceStep(Noun):
    """One step record with full inputs and outputs (names of the TraceElephant paper).

    *step_id* counts from 1; *started_at* and *ended_at* are ns of UTC; *kind* is tool when a tool was called or
    answered; *error* says why there is no whole output (an upstream error, a client that hung up).
    """

    step_id: int = Field(ge=1)
    agent_id: str
    agent_name: str
    input_context: str
    output_content: str
    tool_logs: tuple[ToolCall, ...] = ()
    started_at: int | None = None
    ended_at: int | None = None
    usage: dict[str, int] = Field(default_factory=dict)
    model: str | None = None
    request_id: str | None = None
    kind: Literal["plain", "tool"] = "plain"
    error: str | None = None


class Trace(Artefact):
    """The agent trajectory with its metadata."""

    task_id: str
    task_instruction: str
    system_name: str
    agent_configuration: dict[str, Any] = Field(default_factory=dict)
    system_architecture: str | None = None
    outcome: str | None = None
    reference_answer: str | None = None
    steps: tuple[TraceStep, ...] = ()

    def agents(self) -> tuple[str, ...]:
        """Return the names of the agents in the order in which they first act."""
        return tuple(dict.fromkeys(step.agent_name for step in self.steps))


class Attribution(Artefact):
    """Who is to blame for a failed trace and since which step; None where there is no answer."""

    agent_name: str | None = None
    step_id: int | None = None
    reason: str = ""
    uncertain: bool = False


class LabelledTrace(Noun):
    """A failed trace with what is known to be true about it, which is never shown to a technique.

    *subset* is the benchmark's own split; *notes* name what is odd about the label, which is kept as it is.
    """

    id: str
    subset: str
    trace: Trace
    label: Attribution
    notes: tuple[str, ...] = ()
