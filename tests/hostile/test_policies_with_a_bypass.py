"""A policy that keeps out what its author would try, and leaves a bypass: another verb, name, user, namespace or moment."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from opsassay.evals.compliance.evidence_collection.cache import EvidenceCache
from opsassay.evals.compliance.score import grade_files
from opsassay.evals.compliance.scripts.oracles import ORACLES
from opsassay.evals.compliance.tasks import ComplianceTask

CLASS = "23 bypasses that a policy leaves open"
SHELF = EvidenceCache(Path("/nowhere"))
TASKS = (
    "new-kyverno-privileged-containers",
    "update-kyverno-host-network",
    "new-kyverno-host-paths",
    "update-kyverno-wildcards-in-roles",
)
Change = Callable[[dict[str, Any]], object]


def rule(policy: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = policy["spec"]["rules"][0]
    return found


def unchanged(policy: dict[str, Any]) -> None:
    """Leave the right policy as it is."""


def spec(**values: Any) -> Change:
    return lambda policy: policy["spec"].update(values)


def unless(key: str, value: Any, operator: str = "NotEquals") -> Change:
    condition = {"key": f"{{{{ {key} || 'none' }}}}", "operator": operator, "value": value}
    return lambda policy: rule(policy).update(preconditions={"all": [condition]})


def matching(**resources: Any) -> Change:
    return lambda policy: [one["resources"].update(resources) for one in rule(policy)["match"]["any"]]


def excluding(**resources: Any) -> Change:
    return lambda policy: rule(policy).update(exclude={"any": [{"resources": resources}]})


def pattern_or(alternative: dict[str, Any]) -> Change:
    """Let in what *alternative* says, beside what is asked for; of a check that is no pattern nothing else is looked at."""

    def change(policy: dict[str, Any]) -> None:
        validate = rule(policy)["validate"]
        validate["anyPattern"] = [alternative, validate.pop("pattern", {"rules": [{"verbs": ["!*"]}]})]
        validate.pop("deny", None)

    return change


def metadata(**values: Any) -> Change:
    return lambda policy: policy["metadata"].update(values)


def validating(**values: Any) -> Change:
    return lambda policy: rule(policy)["validate"].update(values)


BYPASSES: dict[str, tuple[Change, Change]] = {
    "not asked at admission": (spec(admission=False), spec(admission=True)),
    "only of what is made from now on": (spec(background=False), spec(background=True)),
    "open while Kyverno is away": (spec(failurePolicy="Ignore"), spec(failurePolicy="Fail")),
    "away after a second": (
        spec(webhookTimeoutSeconds=1, failurePolicy="Ignore"), spec(webhookTimeoutSeconds=1, failurePolicy="Fail"),
    ),
    "a switch that is a text": (spec(admission="false"), spec(emitWarning=True)),
    "reports only": (validating(failureAction="Audit"), validating(failureAction="Enforce")),
    "reports in one namespace": (
        spec(validationFailureActionOverrides=[{"action": "Audit", "namespaces": ["prod"]}]), spec(schemaValidation=True),
    ),
    "a webhook with conditions": (spec(webhookConfiguration={"matchConditions": []}), spec(useServerSideApply=False)),
    "made, not changed": (matching(operations=["CREATE"]), matching(operations=["UPDATE", "CREATE"])),
    "changed, not made": (matching(operations=["UPDATE"]), matching(operations=["CREATE", "UPDATE", "DELETE"])),
    "changes left out": (excluding(kinds=["*"], operations=["UPDATE"]), unchanged),
    "a verb left out by a condition": (unless("request.operation", "UPDATE"), unchanged),
    "a name": (unless("request.object.metadata.name", "lantern"), unchanged),
    "the beginning of a name": (unless("request.object.metadata.name", "lantern-*"), unchanged),
    "a name that is made": (unless("request.object.metadata.generateName", "lantern-"), unchanged),
    "a label": (unless('request.object.metadata.labels."team/x"', "yes"), unchanged),
    "an annotation": (unless("request.object.metadata.annotations.skip", "true"), unchanged),
    "some label, by all of it": (unless("to_string(request.object)", "*lantern*"), unchanged),
    "how many labels there are": (unless("length(request.object.metadata.labels)", 7), unchanged),
    "a finalizer": (unless("request.object.metadata.finalizers[0]", "lantern"), unchanged),
    "a namespace": (unless("request.namespace", "annex"), unchanged),
    "a namespace of the object": (unless("request.object.metadata.namespace", "annex"), unchanged),
    "namespaces but one": (matching(namespaces=["!annex", "*"]), matching(namespaces=["*"])),
    "some namespaces": (matching(namespaces=["shop", "billing", "legacy", "default", "kube-system"]), matching(namespaces=["*"])),
    "a namespace left out": (excluding(namespaces=["annex"]), unchanged),
    "a namespace of one letter left out": (excluding(namespaces=["?"]), unchanged),
    "a user": (unless("request.userInfo.username", "mallory"), unchanged),
    "a group": (unless("request.userInfo.groups[0]", "wheel"), unchanged),
    "a role": (unless("request.clusterRoles[0]", "cluster-admin"), unchanged),
    "a service account": (unless("serviceAccountName", "robot"), unchanged),
    "a dry run": (unless("request.dryRun", "true"), unchanged),
    "what was there before": (unless("request.oldObject.metadata.name", "lantern"), unchanged),
    "subjects left out": (
        lambda policy: rule(policy).update(exclude={"any": [{"subjects": [{"kind": "User", "name": "mallory"}]}]}),
        unchanged,
    ),
    "a name left out": (excluding(names=["lantern"]), unchanged),
    "a label left out": (excluding(selector={"matchLabels": {"skip": "yes"}}), unchanged),
    "labels that must not be there": (
        matching(selector={"matchExpressions": [{"key": "skip", "operator": "DoesNotExist"}]}), matching(selector={}),
    ),
    "a part of the pod": (unless("request.object.spec.nodeName", "attic"), unchanged),
    "an image": (unless("request.object.spec.containers[0].image", "evil/*"), unchanged),
    "another pattern, by name": (pattern_or({"metadata": {"name": "lantern"}}), unchanged),
    "another pattern, by label": (pattern_or({"metadata": {"labels": {"skip": "yes"}}}), unchanged),
    "another pattern, by node": (pattern_or({"spec": {"nodeName": "attic"}}), unchanged),
    "an owner that is gone": (metadata(ownerReferences=[{"kind": "Pod", "name": "x"}]), metadata(labels={"a": "b"})),
    "a policy that is being removed": (metadata(deletionTimestamp="2020-01-01T00:00:00Z"), metadata(annotations={"a": "b"})),
    "an annotation of Kyverno's": (
        metadata(annotations={"policies.kyverno.io/scored": "false"}), metadata(annotations={"policies.kyverno.io/title": "t"}),
    ),
    "a key at the top": (lambda policy: policy.update(extra=1), lambda policy: policy.update(status={"extra": 1})),
    "one namespace alone": (
        lambda policy: policy.update(kind="Policy", metadata={**policy["metadata"], "namespace": "shop"}), unchanged,
    ),
}  # fmt: skip


def graded(task: ComplianceTask, change: Change) -> Any:
    files = ORACLES[task.task_class]["right"][0](task)
    path = next(one for one in files if task.policy in one)
    policy = copy.deepcopy(yaml.safe_load(files[path]))
    change(policy)
    return grade_files({**files, path: yaml.safe_dump(policy, sort_keys=False).encode()}, task, SHELF)["passed"]


@pytest.mark.sampled(every=6)
@pytest.mark.parametrize("name", TASKS)
@pytest.mark.parametrize("bypass", BYPASSES)
def test_a_policy_with_a_door_is_none(name: str, bypass: str) -> None:
    task, (attack, control) = ComplianceTask(name=name, seed=2**100 + 23, held_out=1), BYPASSES[bypass]
    found = graded(task, attack)
    assert found.value == 0.0, bypass
    assert found.reason
    assert graded(task, control).value == 1.0, bypass


CONTAINERS = "request.object.spec.[containers, initContainers, ephemeralContainers][]"
WRITTEN = {
    "a container's name in a loop": {
        "foreach": [{
            "list": CONTAINERS, "deny": {"conditions": {"all": [
                {"key": "{{ element.securityContext.privileged || `false` }}", "operator": "Equals", "value": True},
                {"key": "{{ element.name }}", "operator": "NotEquals", "value": "lantern"},
            ]}},
        }],
    },
    "a loop over some": {
        "foreach": [{
            "list": CONTAINERS, "preconditions": {"all": [{"key": "{{ element.image }}", "operator": "NotEquals", "value": "evil/*"}]},
            "pattern": {"=(securityContext)": {"=(privileged)": False}},
        }],
    },
    "the last of a list": {
        "foreach": [{"list": f"{CONTAINERS} | [-1:]", "pattern": {"=(securityContext)": {"=(privileged)": False}}}],
    },
    "an anchor on a name": {
        "pattern": {"spec": {
            f"{group}": [{"(name)": "!lantern", "=(securityContext)": {"=(privileged)": False}}]
            for group in ("containers", "=(initContainers)", "=(ephemeralContainers)")
        }},
    },
}  # fmt: skip
HONEST = {
    "a loop": {
        "foreach": [{
            "list": CONTAINERS, "deny": {"conditions": {"any": [
                {"key": "{{ element.securityContext.privileged || `false` }}", "operator": "Equals", "value": True},
            ]}},
        }],
    },
    "a filter": {"deny": {"conditions": {"any": [
        {"key": f"{{{{ length({CONTAINERS} | [?securityContext.privileged == `true`]) }}}}", "operator": "GreaterThan", "value": 0},
    ]}}},
    "an anchor that every container fits": {
        "pattern": {"spec": {
            f"{group}": [{"(name)": "*", "=(securityContext)": {"=(privileged)": False}}]
            for group in ("containers", "=(initContainers)", "=(ephemeralContainers)")
        }},
    },
    "more than was asked for": {
        "pattern": {"spec": {
            f"{group}": [{"name": "?*", "image": "*", "=(securityContext)": {"=(privileged)": "false"}}]
            for group in ("containers", "=(initContainers)", "=(ephemeralContainers)")
        }},
    },
}  # fmt: skip


@pytest.mark.parametrize("what", [*WRITTEN, *HONEST])
def test_a_check_that_turns_on_something_else_is_none(what: str) -> None:
    task = ComplianceTask(name=TASKS[0], seed=2**100 + 29, held_out=1)
    check = {"failureAction": "Enforce", "message": "m", **(WRITTEN | HONEST)[what]}
    found = graded(task, lambda policy: rule(policy).update(validate=check))
    assert found.value == float(what in HONEST), found.reason


def test_a_condition_on_what_is_removed_leaves_no_door() -> None:
    task = ComplianceTask(name=TASKS[0], seed=2**100 + 31, held_out=1)
    assert graded(task, unless("request.operation", "DELETE")).value == 1.0
