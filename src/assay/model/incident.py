"""Fault, Incident, Truth: one recorded failure, with what a solver may see and what only the grader may see apart."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from pydantic import Field, field_validator

from assay.errors import UserError
from assay.model.base import Artefact, Noun, Written
from assay.model.faults import NO_FAULT, FaultKind, complete_parameters, fault_type


class Target(Written):
    """Where a fault acts; *replica* None is the service's first one."""

    service: str
    replica: int | None = Field(default=None, ge=0)


class FaultPlan(Written):
    """A fault as a person writes it in YAML: what to break, how much, for how long."""

    fault: str = Field(description="chaos type, or NoFault")
    target: Target | None = None
    parameters: dict[str, Any] = Field(default_factory=dict)
    duration_s: float = Field(default=60.0, gt=0, le=24 * 3600)

    @field_validator("fault")
    @classmethod
    def _known(cls, value: str) -> str:
        return value if value == NO_FAULT else fault_type(value).name

    def completed(self) -> FaultPlan:
        """Return the plan with its parameters checked and filled in; raises UserError."""
        if self.fault == NO_FAULT:
            return self
        if self.target is None:
            raise UserError(f"{self.fault} needs a target: add `target: {{service: NAME}}`.")
        return self.model_copy(update={"parameters": complete_parameters(fault_type(self.fault), self.parameters)})


class Fault(Noun):
    """An intervention as it happened; times are nanoseconds of UTC wall clock."""

    type: str
    service: str | None
    pod: str | None = None
    peer: str | None = None
    parameters: dict[str, Any] = Field(default_factory=dict)
    start_ns: int
    end_ns: int
    emulated: bool = False

    @property
    def kind(self) -> FaultKind | None:
        """The observable kind of Table 6, None when nothing was broken."""
        return None if self.type == NO_FAULT else fault_type(self.type).kind


class Window(Noun):
    """A half-open span of time, nanoseconds of UTC wall clock."""

    start_ns: int
    end_ns: int

    @property
    def seconds(self) -> float:
        """Length in seconds."""
        return (self.end_ns - self.start_ns) / 1e9


class Alert(Noun):
    """A golden-signal rule that fired on the stream; *value* and *threshold* share the unit of the signal."""

    time_ns: int
    service: str
    signal: str  # "error_rate", "latency_p99_ms", "traffic_rps", "saturation"
    value: float
    threshold: float
    message: str


class Incident(Artefact):
    """incident.json: all that a solver is told beside the tables. Nothing in it may name the fault."""

    id: str
    system: str
    normal: Window
    abnormal: Window
    alerts: tuple[Alert, ...] = ()
    description: str = ""
    provenance: dict[str, Any] = Field(default_factory=dict)
    content_hash: str = ""


class EffectCheck(Noun):
    """Whether the fault's own signature was seen, measured against the moments before."""

    signature: str
    before: float
    after: float
    threshold: float
    passed: bool
    seconds: float


class Label(StrEnum):
    """What became of an injection; only *attributed* cases are graded on their path."""

    ATTRIBUTED = "attributed"
    NO_EFFECT = "no_effect"
    ABSORBED = "absorbed"
    UNEXPLAINED = "unexplained"
    DRIFTED = "drifted"


class RootLabel(Noun):
    """A ground-truth root cause at every level that applies (OpenRCA 2.0, Table 4); empty means not applicable."""

    service: tuple[str, ...] = ()
    pod: tuple[str, ...] = ()
    container: tuple[str, ...] = ()
    function: tuple[str, ...] = ()
    span: tuple[str, ...] = ()
    metric: tuple[str, ...] = ()


class Truth(Artefact):
    """truth.json: what only the grader may see. The causal graph and the ledger lie beside it."""

    id: str
    system: str
    faults: tuple[Fault, ...] = ()
    roots: tuple[RootLabel, ...] = ()
    effect: EffectCheck | None = None
    recovered: bool | None = None
    isolation: str = ""
    notes: tuple[str, ...] = ()
    public: dict[str, Any] = Field(default_factory=dict, description="injection.json as it was imported, word for word")
