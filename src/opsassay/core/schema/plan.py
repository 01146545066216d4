"""FaultPlan: the faults to inject, as a person writes them in YAML, checked against the catalogue with its defaults."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from typing import Any, Self

from pydantic import Field, ValidationInfo, field_validator, model_validator

from opsassay.core.errors import NotFoundError, UserError, nearest
from opsassay.core.schema.base import Written
from opsassay.core.schema.faults import DISTURBANCES, NO_FAULT, FaultType, Parameter, fault_type

SURGE_FACTOR = 3.0
SURGE_FACTOR_LIMIT = 20.0
LEAST_SKEW_MS = 100.0


def complete(fault: str, parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Check the *parameters* of the fault type *fault* (or NoFault) and add defaults; raises UserError, NotFoundError."""
    if fault == NO_FAULT:
        return complete_disturbance(parameters)
    row = fault_type(fault)
    completed = complete_parameters(row, parameters)
    for name, objection in _SENSE.items():
        if name in completed and (reason := objection(completed)) is not None:
            raise UserError(f"{row.name}: {reason}")
    return completed


def complete_disturbance(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Check the parameters of an incident without a fault and return them: ``disturbance``, and ``factor`` of a load surge.

    Raises NotFoundError for an unknown disturbance, UserError for an unknown parameter or a wrong factor.
    """
    parameters: dict[str, Any] = {"disturbance": "quiet", **settings}
    kind = parameters["disturbance"]
    if kind not in DISTURBANCES:
        raise NotFoundError("disturbance", str(kind), DISTURBANCES)
    for name in parameters.keys() - {"disturbance"}:
        if (kind, name) != ("load_surge", "factor"):
            raise UserError(f"NoFault with disturbance {kind} has no parameter {name!r}; leave it out.")
    if kind != "load_surge":
        return parameters
    factor = parameters.setdefault("factor", SURGE_FACTOR)
    number = isinstance(factor, int | float) and not isinstance(factor, bool) and math.isfinite(factor)
    if not number or not 1 < factor <= SURGE_FACTOR_LIMIT:
        raise UserError(f"NoFault: factor must be a number above 1 and at most {SURGE_FACTOR_LIMIT:g}, not {factor!r}.")
    return parameters


def complete_parameters(fault: FaultType, parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Check *parameters* against those of *fault* and add its defaults; raises UserError that names the wrong one."""
    known = {p.name: p for p in fault.parameters}
    for name in parameters:
        if name not in known:
            near = nearest(name, known)
            way_out = f"did you mean {near!r}?" if near else f"it takes: {', '.join(known) or 'none'}."
            raise UserError(f"{fault.name} has no parameter {name!r}; {way_out}")
    return {
        p.name: _check_parameter(fault, p, parameters[p.name]) if p.name in parameters else p.default
        for p in fault.parameters
        if p.name in parameters or p.default is not None
    }


def _check_parameter(fault: FaultType, parameter: Parameter, value: Any) -> float | int | str:
    """Return *value* converted to the type of *parameter*; raises UserError for a wrong type or a value out of bounds."""
    where = f"{fault.name}: parameter {parameter.name!r}"
    if parameter.type == "str":
        if not isinstance(value, str):
            raise UserError(f"{where} must be text, not {value!r}.")
        if parameter.choices and value not in parameter.choices:
            raise UserError(f"{where} must be one of {', '.join(parameter.choices)}, not {value!r}.")
        return value
    if (
        isinstance(value, bool)
        or not isinstance(value, int | float)
        or (parameter.type == "int" and value != int(value))
    ):
        raise UserError(f"{where} must be a {'whole number' if parameter.type == 'int' else 'number'}, not {value!r}.")
    low, high = parameter.minimum, parameter.maximum
    if value != value or (low is not None and value < low) or (high is not None and value > high):  # noqa: PLR0124 - NaN
        bounds = f"at least {low:g}" if high is None else f"between {low:g} and {high:g}"
        raise UserError(f"{where} must be {bounds}, not {value!r}.")
    return int(value) if parameter.type == "int" else float(value)


def _complain_about_patch(parameters: Mapping[str, Any]) -> str | None:
    """Return what is wrong with ``patch`` of a response fault, which must be a JSON object in text; None if nothing is."""
    try:
        whole = isinstance(json.loads(parameters["patch"]), dict)
    except json.JSONDecodeError:
        whole = False
    return None if whole else f"patch must be a JSON object such as '{{\"ok\": false}}', not {parameters['patch']!r}."


def _complain_about_new_path(parameters: Mapping[str, Any]) -> str | None:
    """Return what is wrong with ``new_path`` of a path fault, which must begin with "/"; None if nothing is."""
    right = parameters["new_path"].startswith("/")
    return None if right else f"new_path must begin with '/', not {parameters['new_path']!r}."


def _complain_about_value(parameters: Mapping[str, Any]) -> str | None:
    """Return what is wrong with ``value``, the return value to inject, for its ``value_type``; None if nothing is."""
    if parameters["value_type"] != "int" or parameters["value"].removeprefix("-").isdecimal():
        return None
    return f"value must be a whole number for value_type int, not {parameters['value']!r}."


def _complain_about_offset(parameters: Mapping[str, Any]) -> str | None:
    """Return what is wrong with ``offset_ms`` of a clock fault, at least LEAST_SKEW_MS either way; None if nothing is."""
    offset = parameters["offset_ms"]
    if abs(offset) >= LEAST_SKEW_MS:
        return None
    return f"offset_ms must be {LEAST_SKEW_MS:g} or more either way, since less is lost in noise, not {offset:g}."


_SENSE: Mapping[str, Callable[[Mapping[str, Any]], str | None]] = {
    "patch": _complain_about_patch,
    "new_path": _complain_about_new_path,
    "value": _complain_about_value,
    "offset_ms": _complain_about_offset,
}
"""Parameter to a function that returns the objection to its value beyond type and bounds, None without one."""


class Target(Written):
    """The place of a fault: a service's *replica* (None: the first), or a whole host."""

    service: str | None = None
    host: str | None = None
    replica: int | None = Field(default=None, ge=0)

    @model_validator(mode="after")
    def _require_one_place(self) -> Self:
        """Raise ValueError unless it is one service or one host, the latter without a replica."""
        if (self.service is None) == (self.host is None):
            given = "both a service and a host" if self.service else "neither a service nor a host"
            raise ValueError(f"a target is one service or one host; this one names {given}")
        if self.host is not None and self.replica is not None:
            raise ValueError("a host has no replicas to choose from; leave `replica` out, or name a service")
        return self

    @property
    def name(self) -> str:
        """The name of the targeted service or host."""
        return self.service or self.host or ""


class _Broken(Written):
    """The common fields of a plan's short form and of each fault of its long form."""

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
        """Return the published name of the fault type *value*; raises ValueError for an unknown one."""
        try:
            return value if value in (None, NO_FAULT) else fault_type(value).name
        except UserError as error:
            raise ValueError(str(error)) from error

    @field_validator("parameters", mode="after")
    @classmethod
    def _complete_parameters(cls, value: dict[str, Any], info: ValidationInfo) -> dict[str, Any]:
        """Return the parameters of the fault checked and with defaults; raises ValueError."""
        if (fault := info.data.get("fault")) is None:
            return value
        try:
            return complete(fault, value)
        except UserError as error:
            raise ValueError(str(error)) from error


class PlannedFault(_Broken):
    """One fault: its type, target and parameters."""

    fault: str = Field(description="chaos type, or NoFault")

    @model_validator(mode="after")
    def _require_target(self) -> Self:
        """Raise ValueError when a fault other than NoFault has no target."""
        if self.fault != NO_FAULT and self.target is None:
            raise ValueError(f"{self.fault} needs a target: add `target: {{service: NAME}}`")
        return self

    @property
    def name(self) -> str:
        """The fault type and its target as text: "TYPE on TARGET", or the type alone."""
        return self.fault if self.target is None else f"{self.fault} on {self.target.name}"


class FaultPlan(_Broken):
    """The faults to inject and for how long: one fault at the top level, or several at once under ``faults``."""

    faults: tuple[PlannedFault, ...] = Field(default=(), description="faults that act at the same time")
    duration_s: float = Field(default=60.0, gt=0, le=24 * 3600)

    @model_validator(mode="after")
    def _require_one_form(self) -> Self:
        """Raise ValueError unless the plan has one `fault`, or several under `faults` and nothing of them at the top."""
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
        """The planned faults, whether the plan is written in the short form (one) or under ``faults``."""
        if self.fault is None:
            return self.faults
        one = PlannedFault(
            fault=self.fault, target=self.target, parameters=self.parameters, ends_with_pod=self.ends_with_pod
        )
        return (one,)

    def ending_with_pods(self) -> Self:
        """Return a copy of this plan in which every fault has ``ends_with_pod``: a new pod is free of the fault."""
        ends = {"ends_with_pod": True}
        if self.fault is not None:
            return self.model_copy(update=ends)
        return self.model_copy(update={"faults": tuple(part.model_copy(update=ends) for part in self.faults)})

    @property
    def name(self) -> str:
        """The types of all planned faults, joined by `` + ``."""
        return " + ".join(part.fault for part in self.parts)
