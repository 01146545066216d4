"""Settings of an audit; defaults are the paper's values."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pydantic import Field

from opsassay.core.schema.base import Written
from opsassay.core.schema.files import load_yaml
from opsassay.core.schema.overrides import with_changes


class Columns(Written):
    """The names of the columns of the score table; *family* may be null: then all systems are one family.

    *seed* numbers repeats of a case, which are averaged; *conditions* are further columns that distinguish methods.
    """

    family: str | None = "family"
    system: str = "system"
    case: str = "case"
    method: str = "method"
    score: str = "score"
    protocol: str = "protocol"
    predicted: str = "predicted"
    expected: str = "expected"
    seed: str = "seed"
    conditions: tuple[str, ...] = ()


class AuditSettings(Written):
    """Settings of one audit; every one is printed in its report.

    Fractions are *confidence* (of all intervals), *trim* (share of systems cut off at each end of a trimmed pool) and
    *near_tie* (an effect below it is drawn as none); *ddof* is that of variances. *exclude* names methods, *without*
    systems that a scenario leaves aside; *canonical* maps labels to the names that they stand for.
    """

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
    file = load_yaml(path, AuditSettings).model_dump(mode="json", exclude_unset=True) if path else {}
    return with_changes(AuditSettings, file, overrides, example="columns.score=accuracy")
