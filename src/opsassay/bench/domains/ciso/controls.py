"""Controls: what is asked of a cluster, fragments of objects that comply or violate, and a policy that enforces it."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any, Literal

from pydantic import Field, model_validator

from opsassay.model.base import Written
from opsassay.model.files import parse_yaml

POD_KINDS, ROLE_KINDS = ("Pod",), ("Role", "ClusterRole")


class ComplianceControl(Written):
    """One control of *controls.yaml*."""

    section: str = Field(description="of the CIS Kubernetes benchmark")
    goal: str
    scope: Literal["container", "pod", "role"]
    compliant: tuple[dict[str, Any], ...] = Field(min_length=1)
    violating: tuple[dict[str, Any], ...] = Field(min_length=1)
    pattern: dict[str, Any] | None = None
    validate_: dict[str, Any] | None = Field(default=None, alias="validate")

    @model_validator(mode="after")
    def _one_check(self) -> ComplianceControl:
        if (self.pattern is None) == (self.validate_ is None):
            raise ValueError("a control has a pattern of containers, or a whole check")
        return self

    @property
    def kinds(self) -> tuple[str, ...]:
        """What its policies are about."""
        return ROLE_KINDS if self.scope == "role" else POD_KINDS

    def check(self) -> dict[str, Any]:
        """Return the check of the policy that enforces it, everywhere."""
        if self.validate_ is not None:
            return self.validate_
        each = [self.pattern]
        spec = {"=(initContainers)": each, "=(ephemeralContainers)": each, "containers": each}
        return {"pattern": {"spec": spec}}

    def policy(self, name: str, **changed: Any) -> dict[str, Any]:
        """Return the policy called *name* that enforces it; *changed* replaces fields of its rule."""
        rule = {
            "name": "check",
            "match": {"any": [{"resources": {"kinds": list(self.kinds)}}]},
            "validate": {"message": f"Asked for: {self.goal}.", "failureAction": "Enforce", **self.check()},
            **changed,
        }
        return {
            "apiVersion": "kyverno.io/v1",
            "kind": "ClusterPolicy",
            "metadata": {"name": name, "labels": {"section": f"cis-{self.section}"}},
            "spec": {"background": True, "rules": [rule]},
        }


class _ControlFile(Written):
    controls: dict[str, ComplianceControl]


@cache
def controls() -> Mapping[str, ComplianceControl]:
    """Return every control by its name."""
    text = files(__package__).joinpath("controls.yaml").read_text(encoding="utf-8")
    indented = "controls:\n" + "".join(f"  {line}\n" for line in text.splitlines())
    return parse_yaml(indented, _ControlFile, "controls.yaml").controls
