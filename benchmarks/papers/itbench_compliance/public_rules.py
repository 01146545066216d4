"""What the evaluators of the four public examples accept, stated again in our own words.

Sources: ``evaluation/main.py`` of the first example and ``evaluation.py`` of the fourth, whose SHA-256 are in *examples*.
The playbooks ``evaluate.yml`` of the second and third are not among the files: their rule is the list in the README, and
the names of the files that they run are those of a public copy (xlab-uiuc/ITBench2, ciso/, ``playbooks/vars.yaml``).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from opsassay.evals.compliance.kyverno.documents import value_at

from .examples import ANSIBLE, KUBECTL, ItbenchChecks, ReportedObject, UnchangedCheck, ViolationCheck

Documents = Sequence[Mapping[str, Any]]

RUN_FILES = {KUBECTL: "fetcher.sh", ANSIBLE: "playbook.yml"}
"""What the evaluators of the second and third example run, whatever the goal calls it."""
POLICY_FILE, COLLECTED = "policy.rego", "collected_data.json"


def some_failure(reports: Documents, target: Mapping[str, Any]) -> bool:
    """Return whether the evaluator of the first example passes: a report about *target* counts a failure.

    Which policy failed, and why, is not looked at; a report without a namespace is one of every namespace. A report that
    lacks what is read of it ends the evaluator, which is no pass.
    """
    expected, namespace = (
        (target["apiVersion"], target["kind"], target["metadata"]["name"]),
        value_at(target, "metadata", "namespace"),
    )
    try:
        about = []
        for report in reports:
            scope = report["scope"]
            same = (scope["apiVersion"], scope["kind"], scope["name"]) == expected
            if same and scope.get("namespace", namespace) == namespace:
                about.append(report["summary"])
        return any(summary["fail"] > 0 for summary in about)
    except (KeyError, TypeError):
        return False


def prints_false(run_file: str, files: Iterable[str], evidence: Any, outcome: str) -> bool:
    """Return whether the evaluators of the second and third example pass.

    They run *run_file*, one of the *files* that were left, on the system with the fault alone; then *evidence* has to
    lie there, whoever put it there, and OPA has to print ``false``.
    """
    return {run_file, POLICY_FILE} <= set(files) and evidence is not None and outcome == "false"


def checks_pass(checks: ItbenchChecks, before: Documents, after: Documents, reports: Documents) -> bool:
    """Return whether the evaluator of the fourth example passes, with the policies *before* and *after* and *reports*."""
    reported = [
        _as_expected(one, reports, strict=strict)
        for one in checks.check_violations
        for strict in {one.strict_check, False}
    ]
    return all(reported) and all(_unchanged(one, before, after) for one in checks.check_unchanged_policies)


def _as_expected(check: ViolationCheck, reports: Documents, *, strict: bool) -> bool:
    """Return whether the first result of the policy about the object is the expected one.

    Where *strict*, a result of any other policy is a failure. Without a result of the policy, ``pass`` is taken as found
    unless the report itself carries the policy's name, which no report does: its results do.
    """
    about = [one for one in reports if _is_about(one, check.resource)]
    for report in about:
        results = report.get("results", [])
        known = {check.policy_name, *check.ignore_policies}
        if strict and any(one.get("policy") not in known for one in results):
            return False
        own = [one.get("result") for one in results if one.get("policy") == check.policy_name]
        if own:
            return bool(own[0] == check.expected_result)
    named = any(one.get("policy") == check.policy_name for one in about)
    return check.expected_result == "pass" and not named


def _is_about(report: Mapping[str, Any], resource: ReportedObject) -> bool:
    scope = report.get("scope", {})
    found = (scope.get("apiVersion"), scope.get("kind"), scope.get("namespace", ""), scope.get("name"))
    return bool(found == (resource.api_version, resource.kind, resource.namespace, resource.name))


def _unchanged(check: UnchangedCheck, before: Documents, after: Documents) -> bool:
    """Return whether the rules of the policy stand among those of *after*; the rest of it is not looked at."""
    rules = []
    for some in (before, after):
        policy = next((one for one in some if value_at(one, "metadata", "name") == check.policy_name), None)
        if policy is None:
            return False
        rules.append(value_at(policy, "spec", "rules") or [])
    return stands_in(*rules)


def stands_in(expected: Any, found: Any) -> bool:
    """Return whether *expected* stands in *found*: each key of a map, and of two lists as many values as both have.

    What *found* has beyond that, keys or values, passes; so does a list that ends early.
    """
    if isinstance(expected, Mapping) and isinstance(found, Mapping):
        return all(key in found and stands_in(one, found[key]) for key, one in expected.items())
    if isinstance(expected, list) and isinstance(found, list):
        return all(stands_in(expected[n], found[n]) for n in range(min(len(expected), len(found))))
    return bool(expected == found)
