"""The parameters of a method: the keyword arguments of its class, checked before a run starts."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, get_type_hints

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError

from opsassay.core.errors import NotFoundError, UserError
from opsassay.core.schema.validation_errors import reason

Positive = Annotated[float, Field(gt=0)]
NotNegative = Annotated[float, Field(ge=0)]
Share = Annotated[float, Field(ge=0, le=1)]
Count = Annotated[int, Field(ge=1)]

_STRICT = ConfigDict(strict=True, allow_inf_nan=False)


@dataclass(frozen=True)
class DeclaredParameter:
    """One keyword argument of a method's class; *annotation* is its type, which may be ``Annotated`` with bounds."""

    name: str
    annotation: Any
    default: Any

    def read(self, value: Any, method: str) -> Any:
        """Return *value*, from YAML, in the declared type; raises UserError, with the name *method*, for a wrong one."""
        try:
            return self._make_type_adapter().validate_json(json.dumps(value))
        except (ValidationError, TypeError, ValueError) as error:
            raise UserError(
                f"{method}: {self.name}={value}: {reason(error)} (the default is {self.default})."
            ) from error

    def plain(self, value: Any) -> Any:
        """Return *value*, of the declared type, as JSON-ready data."""
        return self._make_type_adapter().dump_python(value, mode="json")

    def _make_type_adapter(self) -> TypeAdapter[Any]:
        """Return the strict pydantic validator for the parameter's type."""
        return TypeAdapter(self.annotation, config=_STRICT)


def declared_parameters(factory: Callable[..., Any]) -> dict[str, DeclaredParameter]:
    """Return the parameters of the method class *factory* by name: its keyword arguments with defaults."""
    try:
        signature = inspect.signature(factory)
        hints = get_type_hints(factory.__init__, include_extras=True)
    except (TypeError, ValueError, NameError, AttributeError):
        return {}
    named = (p for p in signature.parameters.values() if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY))
    return {p.name: DeclaredParameter(p.name, hints.get(p.name, Any), p.default) for p in named}


def read_parameters(method: str, factory: Callable[..., Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the *values* for parameters of *method* in their declared types, without those at their default.

    Raises NotFoundError for one that is not declared, UserError for a value of another type or out of bounds.
    """
    declared = declared_parameters(factory)
    found = {}
    for name, value in values.items():
        if name not in declared:
            raise NotFoundError(f"parameter of {method}", name, declared)
        read = declared[name].read(value, method)
        if read != declared[name].default:
            found[name] = read
    return dict(sorted(found.items()))


def plain_parameters(factory: Callable[..., Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """Return *values*, from `read_parameters`, for the method class *factory* as JSON-ready data."""
    declared = declared_parameters(factory)
    return {name: declared[name].plain(value) for name, value in values.items()}
