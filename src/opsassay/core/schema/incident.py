"""Fault, Incident, Truth: one recorded failure; solvers may see the incident, only the grader sees the truth."""

from __future__ import annotations

from enum import StrEnum
from typing import Any, ClassVar, NamedTuple

from pydantic import Field, model_validator

from opsassay.core.schema.base import Artefact, Int64, Noun
from opsassay.core.schema.faults import NO_FAULT, FaultKind, fault_type
from opsassay.core.schema.plan import FaultPlan, PlannedFault, Target

__all__ = [
    "Alert",
    "EffectCheck",
    "Fault",
    "FaultPlan",
    "Incident",
    "Label",
    "PlannedFault",
    "RootLabel",
    "Target",
    "Truth",
    "Window",
]


class Fault(Noun):
    """A fault as it was injected, into a *service* or a *host*; times are nanoseconds of UTC wall clock."""

    type: str
    service: str | None
    host: str | None = None
    pod: str | None = None
    peer: str | None = None
    parameters: dict[str, Any] = Field(default_factory=dict)
    start_ns: Int64
    end_ns: Int64
    emulated: bool = False

    @property
    def kind(self) -> FaultKind | None:
        """The observable kind of this fault's type (OpenRCA 2.0, Table 6); None for NoFault."""
        return None if self.type == NO_FAULT else fault_type(self.type).kind

    @property
    def place(self) -> str:
        """The name of the service or host that the fault hit, '' when it has neither."""
        return self.service or self.host or ""


class Window(Noun):
    """A half-open period, in nanoseconds of UTC wall clock."""

    start_ns: Int64
    end_ns: Int64

    @property
    def seconds(self) -> float:
        """The length of the window in seconds."""
        return (self.end_ns - self.start_ns) / 1e9


class Alert(Noun):
    """An alert rule that fired; *value* and *threshold* have the unit of the signal.

    *signal* is a golden signal of a service or, in a trial, a signal of the system's state (`AlertSignal`); *severity* is
    known in trials only; *time_ns* is UTC.
    """

    time_ns: Int64
    service: str
    signal: str
    value: float
    threshold: float
    message: str
    severity: str | None = Field(default=None, exclude_if=lambda severity: severity is None)


class Incident(Artefact):
    """incident.json: all that a solver gets besides the tables. It must not name the fault."""

    id: str
    system: str
    normal: Window
    abnormal: Window
    alerts: tuple[Alert, ...] = ()
    description: str = ""
    provenance: dict[str, Any] = Field(default_factory=dict)
    content_hash: str = ""


class EffectCheck(Noun):
    """The check whether a fault's own signature was seen.

    *before* and *after* are the measured value of *signature* before and during the fault; it passes when *after* reaches
    *threshold*. *seconds* is the time from the start of the first fault to the end of the check.
    """

    signature: str
    before: float
    after: float
    threshold: float
    passed: bool
    seconds: float


class Label(StrEnum):
    """The outcome of an injection; only *attributed* cases are graded on their path."""

    ATTRIBUTED = "attributed"
    NO_EFFECT = "no_effect"
    ABSORBED = "absorbed"
    UNEXPLAINED = "unexplained"
    DRIFTED = "drifted"


class RootLabel(Noun):
    """A root cause in the truth, at every level that applies (OpenRCA 2.0, Table 4); () where a level does not."""

    service: tuple[str, ...] = ()
    pod: tuple[str, ...] = ()
    container: tuple[str, ...] = ()
    function: tuple[str, ...] = ()
    span: tuple[str, ...] = ()
    metric: tuple[str, ...] = ()


class AffectedByFault(NamedTuple):
    """A fault, the *services* that it hit (its own, or all of its host), and whether its effect was seen."""

    fault: Fault
    services: frozenset[str]
    acted: bool


class Truth(Artefact):
    """truth.json: the part of a recorded incident that only the grader may see.

    *effects* has the effect check of each of *faults*, in order; () when nothing was checked, as without a fault or for an
    imported incident. *roots* has one label per fault of a recorded incident. Version 1 had a single *effect*.
    """

    SCHEMA_VERSION: ClassVar[int] = 2
    schema_version: int = 2

    id: str
    system: str
    faults: tuple[Fault, ...] = ()
    roots: tuple[RootLabel, ...] = ()
    effects: tuple[EffectCheck, ...] = ()
    recovered: bool | None = None
    isolation: str = ""
    notes: tuple[str, ...] = ()
    stated: bool = Field(
        default=False,
        exclude_if=lambda stated: not stated,
        description="somebody says so; nothing was injected or verified",
    )
    secret: str = Field(default="", description="what names, load and windows were drawn from; '' when imported or old")
    public: dict[str, Any] = Field(default_factory=dict, description="injection.json as it was imported, word for word")

    @model_validator(mode="before")
    @classmethod
    def _migrate_single_effect(cls, data: Any) -> Any:
        """Return *data* of an older version with its one `effect` as the list `effects`."""
        if not isinstance(data, dict) or "effect" not in data:
            return data
        rest = {key: value for key, value in data.items() if key not in ("effect", "schema_version")}
        return {"effects": [data["effect"]] if data["effect"] else [], **rest}

    @property
    def is_fingerprinted(self) -> bool:
        """Whether the incident was recorded without a secret, so that its random draws follow from public plans."""
        return bool(self.isolation) and not self.secret

    @property
    def broken(self) -> bool | None:
        """Whether something was broken: True with a fault or a root service, False with NoFault alone, None if unknown."""
        if self.affected() or any(label.service for label in self.roots):
            return True
        return False if self.faults else None

    def root_services(self) -> tuple[frozenset[str], ...]:
        """Return for each root cause its services: that of each fault but NoFault, else those of the root labels."""
        hit = tuple(services for _, services, _ in self.affected())
        return hit or tuple(frozenset(label.service) for label in self.roots if label.service)

    def affected(self) -> tuple[AffectedByFault, ...]:
        """Return (fault, its services, whether its effect check passed or was not made) for every fault but NoFault."""
        labels = self.roots if len(self.roots) == len(self.faults) else (RootLabel(),) * len(self.faults)
        acted = [effect.passed for effect in self.effects] or [True] * len(self.faults)
        return tuple(
            AffectedByFault(fault, frozenset({fault.service} if fault.service else label.service), acts)
            for fault, label, acts in zip(self.faults, labels, acted, strict=True)
            if fault.type != NO_FAULT
        )
