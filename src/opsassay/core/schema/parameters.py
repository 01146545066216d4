"""The parameters of a fault as a person gives them: checked against the catalogue, filled in with its defaults."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from typing import Any

from opsassay.core.errors import NotFoundError, UserError, nearest
from opsassay.core.schema.faults import DISTURBANCES, NO_FAULT, FaultType, Parameter, fault_type

SURGE_FACTOR = 3.0
SURGE_FACTOR_LIMIT = 20.0
LEAST_SKEW_MS = 100.0


def complete(fault: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters *given* for *fault* (a chaos type or NoFault), checked and completed; raises UserError."""
    if fault == NO_FAULT:
        return complete_disturbance(given)
    row = fault_type(fault)
    completed = complete_parameters(row, given)
    for name, objection in _SENSE.items():
        if name in completed and (reason := objection(completed)) is not None:
            raise UserError(f"{row.name}: {reason}")
    return completed


def complete_disturbance(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters of an incident without a fault: ``disturbance``, and ``factor`` of a load surge.

    Raises NotFoundError for another disturbance, UserError for another parameter or a factor that is none.
    """
    parameters: dict[str, Any] = {"disturbance": "quiet", **given}
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


def complete_parameters(row: FaultType, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return *given* checked against the row and filled with its defaults; raises UserError naming the parameter."""
    known = {p.name: p for p in row.parameters}
    for name in given:
        if name not in known:
            near = nearest(name, known)
            way_out = f"did you mean {near!r}?" if near else f"it takes: {', '.join(known) or 'none'}."
            raise UserError(f"{row.name} has no parameter {name!r}; {way_out}")
    return {
        p.name: _check_parameter(row, p, given[p.name]) if p.name in given else p.default
        for p in row.parameters
        if p.name in given or p.default is not None
    }


def _check_parameter(row: FaultType, parameter: Parameter, value: Any) -> float | int | str:
    where = f"{row.name}: parameter {parameter.name!r}"
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


def _patch(parameters: Mapping[str, Any]) -> str | None:
    try:
        whole = isinstance(json.loads(parameters["patch"]), dict)
    except json.JSONDecodeError:
        whole = False
    return None if whole else f"patch must be a JSON object such as '{{\"ok\": false}}', not {parameters['patch']!r}."


def _new_path(parameters: Mapping[str, Any]) -> str | None:
    right = parameters["new_path"].startswith("/")
    return None if right else f"new_path must begin with '/', not {parameters['new_path']!r}."


def _value(parameters: Mapping[str, Any]) -> str | None:
    if parameters["value_type"] != "int" or parameters["value"].removeprefix("-").isdecimal():
        return None
    return f"value must be a whole number for value_type int, not {parameters['value']!r}."


def _offset_ms(parameters: Mapping[str, Any]) -> str | None:
    offset = parameters["offset_ms"]
    if abs(offset) >= LEAST_SKEW_MS:
        return None
    return f"offset_ms must be {LEAST_SKEW_MS:g} or more either way, since less is lost in noise, not {offset:g}."


_SENSE: Mapping[str, Callable[[Mapping[str, Any]], str | None]] = {
    "patch": _patch,
    "new_path": _new_path,
    "value": _value,
    "offset_ms": _offset_ms,
}
"""What a parameter must be beyond its type and bounds: the objection to it, None when there is none."""
