"""Parameters of methods from the command line, a file or a plan, and sweeps over them as variants of each method."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any

import yaml

from opsassay.core.errors import ConfigError, UserError
from opsassay.core.schema.overrides import read_change
from opsassay.evals.diagnosis.setups.agents import RunSettings, Setup, agent_setup
from opsassay.evals.diagnosis.setups.methods import COMMAND, MethodSetup, is_method, method_setup
from opsassay.evals.runner.ranking import ORACLE
from opsassay.solvers.methods.base import METHODS

EXAMPLE = "alert-count.z=2.5,3"
Values = dict[str, list[Any]]
"""Parameter to the values of its sweep."""


@dataclass(frozen=True)
class AskedMethod:
    """A requested method: its *name* and the *values* of each parameter.

    *variants* are explicit combinations of parameters; each is combined with *values*.
    """

    name: str
    values: Values = field(default_factory=dict)
    variants: tuple[Mapping[str, Any], ...] = ({},)

    @property
    def names(self) -> tuple[str, ...]:
        """The names that options may use for the method: the full one, and its class name alone."""
        return (self.name, self.name.rpartition(":")[2])

    def each(self) -> Iterable[dict[str, Any]]:
        """Yield the parameters of each run: all combinations of values, for each of *variants*."""
        for variant in self.variants:
            several = {**self.values, **{name: _as_list(value) for name, value in variant.items()}}
            for chosen in product(*several.values()):
                yield dict(zip(several, chosen, strict=True))


def asked_method(text: str) -> AskedMethod:
    """Return the method and parameter values of an option ``NAME`` or ``NAME:PARAMETER=VALUE,...``.

    Several values of a parameter are a sweep. Raises ConfigError for a value that is not YAML.
    """
    name, colon, given = text.rpartition(":")
    if text.startswith(COMMAND) or not colon or "=" not in given:
        return AskedMethod(text)
    values: Values = {}
    last = ""
    for part in given.split(","):
        key, sign, value = part.partition("=")
        if sign:
            last = key.strip()
            values[last] = []
        values.setdefault(last, []).append(_parse_value(value if sign else part, text))
    return AskedMethod(name, values)


def with_changes(
    chosen: Sequence[AskedMethod], changes: Iterable[str], sweeps: Iterable[str]
) -> tuple[list[AskedMethod], list[str]]:
    """Return (*chosen* with ``METHOD.PARAMETER=VALUE`` *changes* and *sweeps* applied, the *changes* of run settings).

    A sweep is such a change, or a YAML file of variants by method. Raises UserError for a method that is not *chosen*,
    ConfigError.
    """
    methods, others = list(chosen), []
    for change in changes:
        if _is_setting(change):
            others.append(change)
        else:
            methods = _apply_change(methods, change)
    for sweep in sweeps:
        methods = _apply_change(methods, sweep) if "=" in sweep else _apply_sweep(methods, Path(sweep))
    return methods, others


def _is_setting(change: str) -> bool:
    """Return whether *change*, "key=value", is of a setting of the run, not of a method's parameter."""
    key = change.partition("=")[0].strip()
    return key.partition(".")[0] in RunSettings.model_fields or "." not in key


def _apply_change(methods: Sequence[AskedMethod], change: str) -> list[AskedMethod]:
    """Return *methods* with the *change* "METHOD.PARAMETER=v1,v2" applied to the named one; raises UserError."""
    read_change(change, EXAMPLE)
    key, _, text = change.partition("=")
    name, _, parameter = key.strip().rpartition(".")
    _require_asked(f"-c {key}", name, methods)
    values = (
        _parse_value(text, change)
        if text.strip().startswith("[")
        else [_parse_value(v, change) for v in text.split(",")]
    )
    return [
        AskedMethod(one.name, {**one.values, parameter: _as_list(values)}, one.variants) if name in one.names else one
        for one in methods
    ]


def _apply_sweep(methods: Sequence[AskedMethod], file: Path) -> list[AskedMethod]:
    """Return *methods* with the variants in the YAML *file*, by method; ConfigError, UserError for another method."""
    try:
        given = yaml.safe_load(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is no YAML"
        raise ConfigError(f"--sweep {file}: {why}; write parameters by method, as in {EXAMPLE!r}.") from error
    found = list(methods)
    for name, variants in (given if isinstance(given, dict) else {None: None}).items():
        several: list[Any] = variants if isinstance(variants, list) else [variants]
        if not isinstance(name, str) or not several or not all(isinstance(variant, dict) for variant in several):
            raise ConfigError(f"--sweep {file}: expected a mapping of parameters, or a list of them, for each method.")
        _require_asked(f"--sweep {file}", name, found)
        found = [AskedMethod(one.name, one.values, tuple(several)) if name in one.names else one for one in found]
    return found


def _require_asked(location: str, name: str, methods: Sequence[AskedMethod]) -> None:
    """Raise UserError, prefixed with *location*, when *name* is none of *methods*."""
    if any(name in one.names for one in methods):
        return
    listed = ", ".join(one.name for one in methods) or "none"
    known = f"add -m {name}" if name in METHODS.names() else "it is neither a setting nor a method"
    raise UserError(f"{location}: {name} is not among the methods that are run ({listed}); {known}.")


def _as_list(value: Any) -> list[Any]:
    """Return *value* if it is a list, else [*value*]."""
    return list(value) if isinstance(value, list) else [value]


def _parse_value(text: str, location: str) -> Any:
    """Return *text* parsed as YAML; raises ConfigError with *location*."""
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ConfigError(f"{location}: {text!r} is not valid YAML; put it in quotes.") from error


def is_asked_method(text: str) -> bool:
    """Return whether the option value *text* names a method, not an agent."""
    return is_method(asked_method(text).name)


def methods_of(methods: Iterable[AskedMethod], folder: Path = Path()) -> list[MethodSetup]:
    """Return one setup per variant of each of *methods*, none twice; files in *folder*. Errors of `method_setup`."""
    made = [method_setup(one.name, parameters, folder) for one in methods for parameters in one.each()]
    return list({setup.solver_hash + setup.solver.label: setup for setup in made}.values())


def solvers_named(
    names: Sequence[str], model: str | None, settings: RunSettings, chosen: Sequence[AskedMethod]
) -> list[MethodSetup | Setup | str]:
    """Return the solvers of *names* in order: agents, methods by *chosen* (in their order), oracles as names.

    Raises UserError for a name that is neither agent nor method, for one that cannot run with these settings, and when
    the model's endpoint does not answer.
    """
    methods = iter(chosen)
    found: list[MethodSetup | Setup | str] = []
    for name in names:
        if name.startswith(ORACLE):
            found.append(name)
        else:
            method = next(methods, asked_method(name)) if is_asked_method(name) else None
            found += methods_of([method]) if method else [agent_setup(name, model, settings)]
    return found
