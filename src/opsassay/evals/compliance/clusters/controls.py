"""Controls of clusters: the goal, object fragments that comply or violate, and a policy that enforces it."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any, Literal

from pydantic import Field, model_validator

from opsassay.core.schema.base import Written
from opsassay.core.schema.files import parse_yaml
from opsassay.evals.compliance.kyverno.readings import EACH, Path

POD_KINDS, ROLE_KINDS = ("Pod",), ("Role", "ClusterRole")
GROUPS = ("containers", "initContainers", "ephemeralContainers")
TEMPLATES: tuple[Path, ...] = ((), ("spec", "template"), ("spec", "jobTemplate", "spec", "template"))
"""Paths of the pod template in an object: a pod itself, controllers of pods, scheduled jobs."""
WORKLOADS = ("pods", "deployments", "statefulsets", "daemonsets", "jobs", "cronjobs")


class ComplianceControl(Written):
    """One control of *controls.yaml*."""

    section: str = Field(description="of the CIS Kubernetes benchmark")
    goal: str
    scope: Literal["container", "pod", "role"]
    compliant: tuple[dict[str, Any], ...] = Field(min_length=1)
    violating: tuple[dict[str, Any], ...] = Field(min_length=1)
    pattern: dict[str, Any] | None = None
    validate_: dict[str, Any] | None = Field(default=None, alias="validate")
    turns_on: tuple[str, ...] = Field(min_length=1, description="the parts that decide, as paths in what scope names")
    rego: tuple[str, ...] = Field(min_length=1, description="what holds of something that violates")

    @model_validator(mode="after")
    def _require_one_check(self) -> ComplianceControl:
        """Raise ValueError unless either `pattern` or `validate_` is set."""
        if (self.pattern is None) == (self.validate_ is None):
            raise ValueError("a control has a pattern of containers, or a whole check")
        return self

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds of Kubernetes objects that the control restricts: roles, or pods and their controllers."""
        return ROLE_KINDS if self.scope == "role" else POD_KINDS

    @property
    def parts(self) -> list[Path]:
        """The key paths of the object fields that decide whether an object violates the control."""
        if self.scope == "role":
            return [("rules", EACH, part) for part in self.turns_on]
        groups = [(group, EACH) for group in GROUPS] if self.scope == "container" else [()]
        ends = [(*group, *part.replace(EACH, f".{EACH}").split(".")) for group in groups for part in self.turns_on]
        return [(*template, "spec", *end) for template in TEMPLATES for end in ends]

    def fetcher(self) -> str:
        """Return the text of a bash script that writes all objects of the control's kinds to collected_data.json."""
        kinds = ",".join(WORKLOADS if self.scope != "role" else ("roles", "clusterroles"))
        return f"#!/bin/bash\nset -e\nkubectl get {kinds} --all-namespaces --output json > collected_data.json\n"

    def judging_policy(self) -> str:
        """Return the text of the Rego policy that judges the JSON which the script of `fetcher` writes."""
        body = "\n".join(f"    {line}" for line in self.rego)
        shared = files(__package__).joinpath("containers.rego").read_text(encoding="utf-8")
        return f"{shared}\nviolates if {{\n{body}\n}}\n"

    def check(self) -> dict[str, Any]:
        """Return the ``validate`` block of the Kyverno policy that enforces the control, as a map."""
        if self.validate_ is not None:
            return self.validate_
        each = [self.pattern]
        spec = {"=(initContainers)": each, "=(ephemeralContainers)": each, "containers": each}
        return {"pattern": {"spec": spec}}

    def policy(self, name: str, **overrides: Any) -> dict[str, Any]:
        """Return a Kyverno policy called *name* that enforces the control; *overrides* replace fields of its rule."""
        rule = {
            "name": "check",
            "match": {"any": [{"resources": {"kinds": list(self.kinds)}}]},
            "validate": {"message": f"Asked for: {self.goal}.", "failureAction": "Enforce", **self.check()},
            **overrides,
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
    """Return every control that ships for clusters, by name, in the order of controls.yaml."""
    text = files(__package__).joinpath("controls.yaml").read_text(encoding="utf-8")
    indented = "controls:\n" + "".join(f"  {line}\n" for line in text.splitlines())
    return parse_yaml(indented, _ControlFile, "controls.yaml").controls
