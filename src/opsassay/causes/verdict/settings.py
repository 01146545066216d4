"""Settings of annotate: everything that can be tuned, as a YAML file may hold it and as an annotation carries it."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field, field_validator

from opsassay.causes.evidence.slo import SurfaceSlo
from opsassay.causes.evidence.states import Thresholds
from opsassay.causes.search.paths import SearchLimits
from opsassay.causes.search.rules import RULES
from opsassay.errors import NotFoundError
from opsassay.model.base import Written
from opsassay.model.files import load_yaml


class AnnotateSettings(Written):
    """The thresholds of the screens, the bounds of the search, the SLO surface, and which rules are in force."""

    thresholds: Thresholds = Thresholds()
    limits: SearchLimits = SearchLimits()
    slo: SurfaceSlo = SurfaceSlo()
    extensions: bool = Field(default=True, description="whether rules beyond the paper's (ids A-...) are in force")
    rules_off: frozenset[str] = Field(default=frozenset(), description="ids of rules that are switched off")

    @field_validator("rules_off")
    @classmethod
    def _known(cls, value: frozenset[str]) -> frozenset[str]:
        for id_ in sorted(value - {rule.id for rule in RULES}):
            raise NotFoundError("rule", id_, [rule.id for rule in RULES])
        return value


def load_settings(path: Path | None) -> AnnotateSettings:
    """Return the settings in the YAML file at *path*, or the defaults; raises ConfigError naming file, line and field."""
    return AnnotateSettings() if path is None else load_yaml(path, AnnotateSettings)
