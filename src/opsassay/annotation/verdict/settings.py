"""Settings of annotate: all that can be tuned, as in a YAML file and in the annotation."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from pydantic import Field, field_serializer, field_validator, model_validator

from opsassay.annotation.evidence.slo import SurfaceSlo
from opsassay.annotation.evidence.thresholds import Thresholds
from opsassay.annotation.search.paths import SearchLimits
from opsassay.annotation.search.propagation_gate import PropagationLimits
from opsassay.annotation.search.rules import RULES, Rule, active_rules
from opsassay.core.errors import NotFoundError
from opsassay.core.schema.base import Written
from opsassay.core.schema.files import load_yaml

Gate = Literal["signature", "deviation", "temporal", "carried"]

PAPER: dict[str, Any] = {
    "gates_off": ["signature", "carried"],
    "extensions": False,
    "thresholds": {
        "minimum_ratio": 1.0,
        "minimum_added_ms": 0.0,
        "error_counts": "percentile",
        "resources": {"z_levels": [1.5, 1.5, 1.5]},
    },
    "limits": {"hops": 5, "visits": 2},
}
"""PAVE as published (OpenRCA 2.0, 2.3 and D.5 to D.8): three gates, Table 7 alone, a multiplier clamped at 1, and
any severity of a detector as a deviation."""


class AnnotateSettings(Written):
    """Every number, gate and rule of annotate; fields that are not set have the values of *profile*."""

    profile: Literal["opsassay", "paper"] = Field(
        default="opsassay", description="where unset fields have their values"
    )
    thresholds: Thresholds = Thresholds()
    limits: SearchLimits = SearchLimits()
    slo: SurfaceSlo = SurfaceSlo()
    carried: PropagationLimits = PropagationLimits()
    gates_off: frozenset[Gate] = Field(default=frozenset(), description="gates that are not asked")
    extensions: bool = Field(default=True, description="whether rules beyond the paper's (ids A-...) are in force")
    rules_off: frozenset[str] = Field(default=frozenset(), description="ids of rules that are switched off")
    confidence: dict[str, float] = Field(default={}, description="confidence of rules by id, 0 to 1; 0.8 when left out")
    minimum_confidence: float = Field(default=0.0, ge=0, le=1, description="rules with less are switched off")

    @model_validator(mode="before")
    @classmethod
    def _merge_over_profile(cls, value: Any) -> Any:
        """Return *value* merged, key by key, over the profile `paper` if that is chosen; else *value*."""
        if not isinstance(value, dict) or value.get("profile") != "paper":
            return value
        both = {
            k: {**v, **value[k]} for k, v in PAPER.items() if isinstance(v, dict) and isinstance(value.get(k), dict)
        }
        return {**PAPER, **value, **both}

    @field_validator("rules_off", "confidence")
    @classmethod
    def _require_known_rules(cls, value: Any) -> Any:
        """Raise NotFoundError for a rule id that does not exist."""
        for id_ in sorted(set(value) - {rule.id for rule in RULES}):
            raise NotFoundError("rule", id_, [rule.id for rule in RULES])
        return value

    @field_serializer("gates_off", "rules_off")
    def _sort_values(self, value: frozenset[str]) -> list[str]:
        """Write a set as a sorted list, so that the digest of equal settings is the same."""
        return sorted(value)  # the digest is of this

    def rule(self, id_: str) -> bool:
        """Return whether the rule *id_* is in use with these settings."""
        return any(rule.id == id_ for rule in self.rules())

    def rules(self) -> tuple[Rule, ...]:
        """Return the propagation rules that these settings use."""
        return active_rules(
            extensions=self.extensions,
            disabled=self.rules_off,
            confidence=self.confidence,
            min_confidence=self.minimum_confidence,
        )


def load_settings(path: Path | None) -> AnnotateSettings:
    """Return the settings in the YAML file at *path*, or the defaults; raises ConfigError naming file, line and field."""
    return AnnotateSettings() if path is None else load_yaml(path, AnnotateSettings)
