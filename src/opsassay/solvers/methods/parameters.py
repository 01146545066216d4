"""The parameters of a method: what its class takes by keyword, checked before anything is run."""

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
    """One keyword of a method's class: its annotation is its type, with bounds if it is an ``Annotated`` one."""

    name: str
    annotation: Any
    default: Any

    def read(self, value: Any, method: str) -> Any:
        """Return *value*, as YAML has it, in the declared type; raises UserError that says what is expected."""
        try:
            return self._make_type_adapter().validate_json(json.dumps(value))
        except (ValidationError, TypeError, ValueError) as error:
            raise UserError(
                f"{method}: {self.name}={value}: {reason(error)} (the default is {self.default})."
            ) from error

    def plain(self, value: Any) -> Any:
        """Return *value* as JSON has it."""
        return self._make_type_adapter().dump_python(value, mode="json")

    def _make_type_adapter(self) -> TypeAdapter[Any]:
        return TypeAdapter(self.annotation, config=_STRICT)


def declared_parameters(made: Callable[..., Any]) -> dict[str, DeclaredParameter]:
    """Return the parameters of the class *made* by name: its keyword arguments, a default each."""
    try:
        signature = inspect.signature(made)
        hints = get_type_hints(made.__init__, include_extras=True)
    except (TypeError, ValueError, NameError, AttributeError):
        return {}
    named = (p for p in signature.parameters.values() if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY))
    return {p.name: DeclaredParameter(p.name, hints.get(p.name, Any), p.default) for p in named}


def read_parameters(method: str, made: Callable[..., Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the *given* parameters of *method*, made by the class *made*, in their types; those at their default left out.

    Raises NotFoundError for one that is not declared, UserError for a value of another type or out of bounds.
    """
    declared = declared_parameters(made)
    found = {}
    for name, value in given.items():
        if name not in declared:
            raise NotFoundError(f"parameter of {method}", name, declared)
        read = declared[name].read(value, method)
        if read != declared[name].default:
            found[name] = read
    return dict(sorted(found.items()))


def plain_parameters(made: Callable[..., Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Return *given*, as `read_parameters` gives it, as JSON has it."""
    declared = declared_parameters(made)
    return {name: declared[name].plain(value) for name, value in given.items()}
