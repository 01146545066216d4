"""What may be set in an audit, with the values of the paper as defaults."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml
from pydantic import Field

from opsassay.errors import ConfigError
from opsassay.model.base import Written
from opsassay.model.files import load_yaml, parse_yaml


class Columns(Written):
    """What the columns of the score table are called; *family* may be null: then all systems are one family."""

    family: str | None = "family"
    system: str = "system"
    case: str = "case"
    method: str = "method"
    score: str = "score"
    protocol: str = "protocol"
    predicted: str = "predicted"
    expected: str = "expected"


class AuditSettings(Written):
    """Settings of one audit; every one is printed in its report."""

    columns: Columns = Columns()
    confidence: float = Field(default=0.95, gt=0.5, lt=1)
    ddof: int = Field(default=1, ge=0, le=1)
    resamples: int = Field(default=5000, ge=100, le=100_000)
    permutations: int = Field(default=2000, ge=100, le=100_000)
    simulations: int = Field(default=1000, ge=100, le=100_000)
    seed: int = Field(default=42, ge=0)
    trim: float = Field(default=0.1, ge=0, lt=0.5)
    near_tie: float = Field(default=0.05, ge=0, le=1)
    min_cases: int = Field(default=20, ge=2)
    exclude: tuple[str, ...] = ()
    without: tuple[str, ...] = ()
    covariates: tuple[str, ...] = ()
    canonical: dict[str, str] = Field(default_factory=dict)
    baselines: tuple[str, ...] = ("chance", "constant", "random", "loudest", "gap")


def read_settings(path: Path | None, overrides: Sequence[str] = ()) -> AuditSettings:
    """Return the settings of the YAML file *path* with *overrides* (``key.sub=value``, values as YAML) on top.

    Raises ConfigError that names the file or the override and the key.
    """
    merged = load_yaml(path, AuditSettings).model_dump(mode="json", exclude_unset=True) if path else {}
    for override in overrides:
        key, sign, text = override.partition("=")
        if not sign or not key.strip():
            raise ConfigError(f"-c {override}: expected KEY=VALUE, as in -c columns.score=accuracy.")
        try:
            value = yaml.safe_load(text)
        except yaml.YAMLError as error:
            raise ConfigError(f"-c {override}: the value is not valid YAML; put it in quotes.") from error
        _put(merged, key.strip().split("."), value)
        parse_yaml(yaml.safe_dump(merged), AuditSettings, f"-c {key}", lines=False)
    return AuditSettings.model_validate(merged)


def _put(target: dict[str, Any], keys: list[str], value: Any) -> None:
    for key in keys[:-1]:
        target = target.setdefault(key, {})
        if not isinstance(target, dict):
            raise ConfigError(f"-c {'.'.join(keys)}: {key} is a value, not a group of settings.")
    target[keys[-1]] = value
