"""Solvers without a model: oracles (one right, each other one fails at a stated stage) and baselines."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any

import yaml

from opsassay.evals.compliance.clusters.controls import POD_KINDS, controls
from opsassay.evals.compliance.clusters.repository import FOLDER, others_of, policy_files, policy_name
from opsassay.evals.compliance.kyverno.policy import AUTOGEN
from opsassay.evals.compliance.scripts.collected import COLLECTED_BASELINES, COLLECTED_ORACLES
from opsassay.evals.compliance.tasks import ANSIBLE, KUBECTL, NEW, UPDATE, ComplianceTask

Files = dict[str, bytes]
_NOTHING = "no-such-object"


def _make_control_policy(task: ComplianceTask, **changed: Any) -> dict[str, Any]:
    """Return the reference Kyverno policy of *task*, with the rule fields *changed* replaced."""
    return task.control.policy(task.policy, **changed)


def _write_right_policy(task: ComplianceTask) -> Files:
    """Return the files of the reference policy, content by path."""
    return policy_files(_make_control_policy(task))


def _write_check(task: ComplianceTask, **check: Any) -> Files:
    """Return the files of the reference policy with the ``validate`` block *check* in place of its own."""
    return policy_files(_make_control_policy(task, validate={"failureAction": "Enforce", "message": "no", **check}))


def _deny_all(task: ComplianceTask) -> Files:
    """Return the files of a policy whose deny condition always holds."""
    return _write_check(task, deny={"conditions": {"all": [{"key": "a", "operator": "Equals", "value": "a"}]}})


def _allow_all(task: ComplianceTask) -> Files:
    """Return the files of a policy whose deny condition never holds."""
    return _write_check(task, deny={"conditions": {"all": [{"key": "a", "operator": "Equals", "value": "b"}]}})


def _deny_example_names(task: ComplianceTask) -> Files:
    """Return the files of a policy that denies the names in the violating examples: right on the examples alone."""
    shown = [content for path, content in task.files().items() if path.startswith("examples/violating")]
    names = [one["metadata"]["name"] for content in shown for one in yaml.safe_load_all(content)]
    condition = {"key": "{{ request.object.metadata.name || 'none' }}", "operator": "AnyIn", "value": names}
    return _write_check(task, deny={"conditions": {"any": [condition]}})


def _reports_only(task: ComplianceTask) -> Files:
    """Return the files of the reference check in mode Audit, which refuses nothing."""
    return policy_files(_make_control_policy(task, validate={"failureAction": "Audit", **task.control.check()}))


def _omit_a_kind(task: ComplianceTask) -> Files:
    """Return the files of the reference policy without workloads of controllers, or without cluster roles."""
    if task.control.kinds != POD_KINDS:
        return policy_files(_make_control_policy(task, match={"any": [{"resources": {"kinds": ["Role"]}}]}))
    policy = _make_control_policy(task)
    policy["metadata"]["annotations"] = {AUTOGEN: "none"}
    return policy_files(policy)


def _match_creates_only(task: ComplianceTask) -> Files:
    """Return the files of the reference policy for CREATE alone, not for UPDATE."""
    created = {"any": [{"resources": {"kinds": list(task.control.kinds), "operations": ["CREATE"]}}]}
    return {**_read_policies_before(task), **policy_files(_make_control_policy(task, match=created))}


def _exempt_a_name(task: ComplianceTask) -> Files:
    """Return the files of the reference policy with a precondition that exempts one object name."""
    condition = {"key": "{{ request.object.metadata.name || 'none' }}", "operator": "NotEquals", "value": _NOTHING}
    return policy_files(_make_control_policy(task, preconditions={"all": [condition]}))


def _leave_out_admission(task: ComplianceTask) -> Files:
    """Return the files of the reference policy with ``admission: false``."""
    policy = _make_control_policy(task)
    policy["spec"]["admission"] = False
    return policy_files(policy)


def _write_to_wrong_folder(task: ComplianceTask) -> Files:
    """Return the files of the reference policy in a folder that is not scored."""
    return {path.replace(FOLDER, "rules"): content for path, content in _write_right_policy(task).items()}


def _match_other_kind(task: ComplianceTask) -> Files:
    """Return the files of the reference policy with a resource kind that is not Kyverno's."""
    policy = {
        **_make_control_policy(task),
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicy",
    }
    return policy_files(policy)


def _write_beyond_subset(task: ComplianceTask) -> Files:
    """Return the files of the reference policy with a mutate rule, which the evaluator does not support."""
    policy = _make_control_policy(task)
    policy["spec"]["rules"][0]["mutate"] = {"patchStrategicMerge": {"metadata": {"labels": {"checked": "true"}}}}
    return policy_files(policy)


def _write_broken_expression(task: ComplianceTask) -> Files:
    """Return the files of a policy whose JMESPath expression has no result."""
    condition = {
        "key": f"{{{{ request.object.spec.{_NOTHING.replace('-', '_')} }}}}",
        "operator": "Equals",
        "value": "1",
    }
    return {**_read_policies_before(task), **_write_check(task, deny={"conditions": {"any": [condition]}})}


def _read_policies_before(task: ComplianceTask) -> Files:
    """Return the policy files of the workspace as the agent finds them, content by path."""
    return {path: content for path, content in task.files(examples=0).items() if path.startswith(f"{FOLDER}/")}


def _policy_of_other_control(task: ComplianceTask) -> dict[str, Any]:
    """Return a copy of the policy of the first other control in the repository."""
    name = others_of(task.control_name, task.seed)[0]
    return copy.deepcopy(controls()[name].policy(policy_name(name)))


def _repair_policies(task: ComplianceTask) -> Files:
    """Return the repository's files with the reference policy in place of the outdated one."""
    return {**_read_policies_before(task), **_write_right_policy(task)}


def _remove_other_policy(task: ComplianceTask) -> Files:
    """Return the repaired repository without the policy of another control."""
    gone = set(policy_files(_policy_of_other_control(task)))
    return {path: content for path, content in _repair_policies(task).items() if path not in gone}


def _weaken_other_policy(task: ComplianceTask) -> Files:
    """Return the repaired repository with another control's policy in mode Audit, which refuses nothing."""
    policy = _policy_of_other_control(task)
    policy["spec"]["rules"][0]["validate"]["failureAction"] = "Audit"
    return {**_repair_policies(task), **policy_files(policy)}


def _add_policy(task: ComplianceTask) -> Files:
    """Return the repaired repository with a second policy of the same control under another name."""
    return {**_repair_policies(task), **policy_files(task.control.policy(f"{task.policy}-anew"))}


def _rename_policy(task: ComplianceTask) -> Files:
    """Return the repository with the reference policy under another name in place of the outdated one."""
    kept = {
        path: content for path, content in _read_policies_before(task).items() if path not in _write_right_policy(task)
    }
    return {**kept, **policy_files(task.control.policy(f"{task.policy}-anew"))}


def _exclude_pods(task: ComplianceTask) -> Files:
    """Return the files of the reference policy with an exclude block on pods that no creation matches."""
    excluded = {"any": [{"resources": {"kinds": ["Pod"], "operations": ["CONNECT"]}}]}
    return {**_read_policies_before(task), **policy_files(_make_control_policy(task, exclude=excluded))}


Play = Callable[[ComplianceTask], Files]
ORACLES: Mapping[str, Mapping[str, tuple[Play, str | None]]] = {
    NEW: {
        "right": (_write_right_policy, None),
        "deny-all": (_deny_all, "posture"),
        "allow-all": (_allow_all, "posture"),
        "example-names": (_deny_example_names, "posture"),
        "reports-only": (_reports_only, "posture"),
        "without-a-kind": (_omit_a_kind, "posture"),
        "creates-only": (_match_creates_only, "posture"),
        "exempts-a-name": (_exempt_a_name, "posture"),
        "not-at-admission": (_leave_out_admission, "posture"),
        "wrong-folder": (_write_to_wrong_folder, "artefact"),
        "other-kind": (_match_other_kind, "artefact"),
        "beyond-subset": (_write_beyond_subset, "artefact"),
        "broken-expression": (_write_broken_expression, "evidence"),
    },
    KUBECTL: COLLECTED_ORACLES,
    ANSIBLE: COLLECTED_ORACLES,
    UPDATE: {
        "right": (_repair_policies, None),
        "untouched": (_read_policies_before, "posture"),
        "deny-all": (lambda task: {**_read_policies_before(task), **_deny_all(task)}, "posture"),
        "allow-all": (lambda task: {**_read_policies_before(task), **_allow_all(task)}, "posture"),
        "creates-only": (_match_creates_only, "posture"),
        "removes-another": (_remove_other_policy, "kept"),
        "weakens-another": (_weaken_other_policy, "kept"),
        "leaves-out-more": (_exclude_pods, "kept"),
        "adds-one": (_add_policy, "kept"),
        "renames": (_rename_policy, "kept"),
        "broken-expression": (_write_broken_expression, "evidence"),
    },
}
"""Class to oracle to (function that returns its files, first stage that it fails or None)."""

_ENFORCED_BASELINES: Mapping[str, Play] = {
    "deny-all": lambda task: {**_read_policies_before(task), **_deny_all(task)},
    "allow-all": lambda task: {**_read_policies_before(task), **_allow_all(task)},
    "untouched": _read_policies_before,
}
BASELINES = tuple(_ENFORCED_BASELINES)
"""Solvers that use neither a model nor the truth: refuse all, admit all, change nothing."""


def baseline(name: str, task: ComplianceTask) -> Files:
    """Return the files that the baseline solver *name* leaves in the workspace of *task*, content by path."""
    return (_ENFORCED_BASELINES if task.collector is None else COLLECTED_BASELINES)[name](task)
