"""The policy reports that Kyverno would write of objects, of the declared subset of policies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from opsassay.evals.compliance.kyverno.judge import judge_objects
from opsassay.evals.compliance.kyverno.policy import KyvernoPolicy

_COUNTED = ("error", "fail", "pass", "skip", "warn")


def reports_of(policies: Sequence[KyvernoPolicy], objects: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return a report about each of *objects* that some rule is about; raises UnsupportedError as rules are met."""
    found = []
    for one in objects:
        results = [
            {"policy": policy.name, "rule": _rule_name(policy, said.rule, one["kind"]), "result": said.result}
            for policy in policies
            for said in judge_objects([policy], [one])
        ]
        if results:
            found.append(report(one, results))
    return found


def report(about: Mapping[str, Any], results: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the report of *results* about an object, counted as Kyverno counts."""
    named = {key: value for key, value in about["metadata"].items() if key in ("name", "namespace")}
    return {
        "apiVersion": "wgpolicyk8s.io/v1alpha2",
        "kind": "PolicyReport",
        "scope": {"apiVersion": about["apiVersion"], "kind": about["kind"], **named},
        "results": list(results),
        "summary": {name: sum(one["result"] == name for one in results) for name in _COUNTED},
    }


def _rule_name(policy: KyvernoPolicy, rule: str, kind: str) -> str:
    """Return what a report calls *rule* about an object of *kind*: rules for controllers carry a prefix."""
    of = next(one for one in policy.rules if one.name == rule)
    if kind not in of.controllers:
        return rule
    return f"autogen-cronjob-{rule}" if kind == "CronJob" else f"autogen-{rule}"
