"""FaultPlan: what to break, as a person writes it in YAML; everything that the file alone shows is checked."""

from __future__ import annotations

from typing import Any, Self

from pydantic import Field, ValidationInfo, field_validator, model_validator

from opsassay.core.errors import UserError
from opsassay.core.schema.base import Written
from opsassay.core.schema.faults import NO_FAULT, fault_type
from opsassay.core.schema.parameters import complete


class Target(Written):
    """Where a fault acts: a service, of which *replica* None is the first one, or a whole host."""

    service: str | None = None
    host: str | None = None
    replica: int | None = Field(default=None, ge=0)

    @model_validator(mode="after")
    def _one_place(self) -> Self:
        if (self.service is None) == (self.host is None):
            given = "both a service and a host" if self.service else "neither a service nor a host"
            raise ValueError(f"a target is one service or one host; this one names {given}")
        if self.host is not None and self.replica is not None:
            raise ValueError("a host has no replicas to choose from; leave `replica` out, or name a service")
        return self

    @property
    def name(self) -> str:
        """The service or host."""
        return self.service or self.host or ""


class _Broken(Written):
    """What the short form of a plan and each fault of the long form have in common."""

    fault: str | None = Field(default=None, description="chaos type, or NoFault")
    target: Target | None = None
    parameters: dict[str, Any] = Field(default_factory=dict, validate_default=True)
    ends_with_pod: bool = Field(
        default=False,
        exclude_if=lambda ends: not ends,
        description="what acts in a process is gone with its pod; otherwise a successor has it too",
    )

    @field_validator("fault", mode="after")
    @classmethod
    def _require_known_fault(cls, value: str | None) -> str | None:
        try:
            return value if value in (None, NO_FAULT) else fault_type(value).name
        except UserError as error:
            raise ValueError(str(error)) from error

    @field_validator("parameters", mode="after")
    @classmethod
    def _completed(cls, value: dict[str, Any], info: ValidationInfo) -> dict[str, Any]:
        if (fault := info.data.get("fault")) is None:
            return value
        try:
            return complete(fault, value)
        except UserError as error:
            raise ValueError(str(error)) from error


class PlannedFault(_Broken):
    """One fault: what to break, where, how much."""

    fault: str = Field(description="chaos type, or NoFault")

    @model_validator(mode="after")
    def _aimed(self) -> Self:
        if self.fault != NO_FAULT and self.target is None:
            raise ValueError(f"{self.fault} needs a target: add `target: {{service: NAME}}`")
        return self

    @property
    def name(self) -> str:
        """The type and where it acts."""
        return self.fault if self.target is None else f"{self.fault} on {self.target.name}"


class FaultPlan(_Broken):
    """What to break and for how long: one fault, written at the top, or several at once under ``faults``."""

    faults: tuple[PlannedFault, ...] = Field(default=(), description="faults that act at the same time")
    duration_s: float = Field(default=60.0, gt=0, le=24 * 3600)

    @model_validator(mode="after")
    def _one_form(self) -> Self:
        if (self.fault is None) == (not self.faults):
            raise ValueError("give one `fault` with its `target`, or several under `faults`")
        if self.faults and (self.target is not None or self.parameters or self.ends_with_pod):
            raise ValueError("each of `faults` says for itself what and how; at the top there is `duration_s` alone")
        if self.fault is not None:
            PlannedFault(fault=self.fault, target=self.target, parameters=self.parameters)
        if len(self.faults) > 1 and any(fault.fault == NO_FAULT for fault in self.faults):
            raise ValueError("NoFault stands alone; nothing else may be broken at the same time")
        return self

    @property
    def parts(self) -> tuple[PlannedFault, ...]:
        """The faults, one or several."""
        if self.fault is None:
            return self.faults
        one = PlannedFault(
            fault=self.fault, target=self.target, parameters=self.parameters, ends_with_pod=self.ends_with_pod
        )
        return (one,)

    def ending_with_pods(self) -> Self:
        """Return the plan with faults all of which are gone with the pod that they act in."""
        ends = {"ends_with_pod": True}
        if self.fault is not None:
            return self.model_copy(update=ends)
        return self.model_copy(update={"faults": tuple(part.model_copy(update=ends) for part in self.faults)})

    @property
    def name(self) -> str:
        """The types, joined by `` + `` where there are several."""
        return " + ".join(part.fault for part in self.parts)
