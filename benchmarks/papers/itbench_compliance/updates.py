"""Answers to the fourth example, changed policies in a repository: the one that ships, and wrong ones.

Three defects show only in variants of the example, which the answers name: a policy with two rules, a repository whose
policies enforce, and a check that expects ``pass``.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from opsassay.evals.compliance.clusters.repository import policy_files, what_was_not_kept
from opsassay.evals.compliance.clusters.worlds import merge_maps
from opsassay.evals.compliance.kyverno.documents import UnsupportedError, documents
from opsassay.evals.compliance.kyverno.policy import KyvernoPolicy, read_policies

from .examples import Document, ItbenchChecks, UpdateKyvernoExample
from .new_policies import ALWAYS, placed, policy
from .public_rules import checks_pass
from .reports import report, reports_of
from .verdicts import JudgedSubmission, LabelledObject, misjudged

TRUSTED = "trusted-registry.com"
"""The registry that the goal names."""
_SECURITY = {"allowPrivilegeEscalation": False, "runAsNonRoot": True}
Policies = Mapping[str, Document]
"""Policies by name."""


@dataclass(frozen=True)
class _UpdateCase:
    """A repository, what its cluster is checked for, and whether it *enforces*."""

    before: Policies
    checks: ItbenchChecks
    enforces: bool = False


@dataclass(frozen=True)
class _UpdateAnswer:
    """The policies *after*, and *reports* that stand in place of those that Kyverno would write."""

    name: str
    case: _UpdateCase
    after: Policies
    right: bool = False
    reports: list[dict[str, Any]] | None = field(default=None)


def update_submissions(example: UpdateKyvernoExample) -> Iterator[JudgedSubmission]:
    """Yield every answer, judged twice."""
    objects = [placed(one) for one in example.objects]
    for answer in _answers(example):
        before, after = (list(some.values()) for some in (answer.case.before, answer.after))
        reports = answer.reports
        if reports is None:
            reports = reports_of(read_policies(policy_files(*after).items()), objects)
        public = checks_pass(answer.case.checks, before, after, reports)
        why = _refusal(example, answer)
        yield JudgedSubmission(example.task_class, answer.name, answer.right, public, not why, why)


def _refusal(example: UpdateKyvernoExample, answer: _UpdateAnswer) -> str:
    """Return why ours does not accept *answer*, nothing when it does."""
    try:
        before, after = (
            read_policies(policy_files(*some.values()).items()) for some in (answer.case.before, answer.after)
        )
        return what_was_not_kept(before, after, example.target) or _wrongly(example, answer.case, after)
    except UnsupportedError as error:
        return str(error)


def _wrongly(example: UpdateKyvernoExample, case: _UpdateCase, after: list[KyvernoPolicy]) -> str:
    """Return what is judged wrongly: by the changed policy alone, or by all of them."""
    own, others = worlds(example.pod), old_worlds(example.pod)
    target = [one for one in after if one.name == example.target]
    return misjudged(target, own, enforced=case.enforces) or misjudged(after, others, enforced=case.enforces)


def worlds(pod: Document) -> list[LabelledObject]:
    """Return pods like the example's *pod* that comply with what the goal adds and keeps, or violate it at one place."""
    right = pod_with(pod)
    context = right["spec"]["containers"][0]["securityContext"]
    elsewhere = {**right, "metadata": {"name": "other-one", "namespace": "billing"}}
    escalating = {**context, "allowPrivilegeEscalation": True}
    violating = {
        "the example's pod": placed(pod),
        "an image of another registry": pod_with(elsewhere, image="untrusted.test/app"),
        "an image whose registry only begins so": pod_with(pod, image=f"{TRUSTED}.test/app"),
        "a root user": pod_with(pod, securityContext={**context, "runAsNonRoot": False}),
        "privilege escalation": pod_with(pod, securityContext=escalating),
    }
    compliant = {"a pod that complies": right, "a pod that complies, of another name and namespace": elsewhere}
    return _labelled(compliant, violating)


def old_worlds(pod: Document) -> list[LabelledObject]:
    """Return a pod that every policy accepts, and one that another policy of the repository was there for."""
    right = pod_with(pod)
    default = merge_maps(right, {"spec": {"serviceAccountName": "default"}})
    return _labelled({"a pod that complies with all": right}, {"the default service account": default})


def _labelled(compliant: Mapping[str, Document], violating: Mapping[str, Document]) -> list[LabelledObject]:
    return [
        LabelledObject(about, compliant=label, object=one)
        for label, some in ((True, compliant), (False, violating))
        for about, one in some.items()
    ]


def pod_with(pod: Document, **container: Any) -> Document:
    """Return *pod* in its namespace, each container as the goal asks for, but for what *container* replaces."""
    found = placed(copy.deepcopy(pod))
    right = {"image": f"{TRUSTED}/app", "securityContext": {**_SECURITY, "runAsUser": 1000}}
    found["spec"]["containers"] = [{**merge_maps(one, right), **container} for one in found["spec"]["containers"]]
    return found


def _answers(example: UpdateKyvernoExample) -> Iterator[_UpdateAnswer]:
    """Yield what changes the repository rightly or not at all, then what changes the named policy, then the others."""
    before, target = _by_name(example.repository), example.target
    case, fixed = _UpdateCase(before, example.checks), {**before, **_by_name(example.fixed)}
    failed = [report(placed(example.pod), [{"policy": target, "rule": "by-hand", "result": "fail"}])]
    yield _UpdateAnswer("the change that ships", case, fixed, right=True)
    yield _UpdateAnswer("nothing", case, before)
    yield _UpdateAnswer("nothing, and a report written by hand", case, before, reports=failed)
    yield _UpdateAnswer("deny all, under the name", case, {**before, target: policy(target, ALWAYS)})
    by_name = policy(target, ALWAYS, names=[example.pod["metadata"]["name"]])
    yield _UpdateAnswer("deny by the name of the example", case, {**before, target: by_name})
    forgotten = {"image": f"{TRUSTED}/*", "securityContext": {"runAsNonRoot": True}}
    yield _UpdateAnswer("the old control of that policy dropped", case, {**before, target: _asking(target, forgotten)})
    registry = {"image": f"{TRUSTED}/*", "securityContext": {"allowPrivilegeEscalation": False}}
    yield _UpdateAnswer("the registry alone, root forgotten", case, {**before, target: _asking(target, registry)})
    yield _UpdateAnswer("a policy added", case, {**fixed, "extra": policy("extra", ALWAYS, kinds=["Secret"])})
    yield from _changed_others(example, case, fixed)


def _changed_others(example: UpdateKyvernoExample, case: _UpdateCase, fixed: Policies) -> Iterator[_UpdateAnswer]:
    other = example.checks.check_unchanged_policies[0].policy_name
    before, target = case.before, example.target
    rules = fixed[other]["spec"]["rules"]
    more = [{**policy(other, ALWAYS, kinds=["Secret"])["spec"]["rules"][0], "name": "one-more"}]
    left_out = {"any": [{"resources": {"namespaces": [placed(example.pod)["metadata"]["namespace"]]}}]}
    yield _UpdateAnswer("a rule added to another policy", case, {**fixed, other: _ruled(fixed[other], [*rules, *more])})
    excluding = [{**rule, "exclude": left_out} for rule in rules]
    yield _UpdateAnswer(
        "another policy leaves a namespace out", case, {**fixed, other: _ruled(fixed[other], excluding)}
    )
    two = {**before, other: _ruled(before[other], [*rules, *more])}
    of_two = _UpdateCase(two, example.checks)
    yield _UpdateAnswer("a rule removed from another policy, of two", of_two, fixed)
    enforced, enforcing = ({name: _acting(one, "Enforce") for name, one in some.items()} for some in (before, fixed))
    strong = _UpdateCase(enforced, example.checks, enforces=True)
    weak = {**enforcing, other: _acting(fixed[other], "Audit")}
    yield _UpdateAnswer("the change, where policies enforce", strong, enforcing, right=True)
    yield _UpdateAnswer("another policy weakened to Audit, where policies enforce", strong, weak)
    weak = {**enforcing, target: _acting(fixed[target], "Audit")}
    yield _UpdateAnswer("the policy weakened to Audit, where policies enforce", strong, weak)
    passing = _UpdateCase(before, _expecting_pass(example.checks))
    gone = {name: one for name, one in before.items() if name != target}
    yield _UpdateAnswer("the policy removed, where pass is expected", passing, gone)


def _by_name(content: bytes) -> dict[str, Document]:
    return {one["metadata"]["name"]: one for one in documents(content, "policies")}


def _asking(name: str, container: Mapping[str, Any]) -> Document:
    return policy(name, {"pattern": {"spec": {"containers": [container]}}})


def _ruled(one: Document, rules: list[Any]) -> Document:
    return {**one, "spec": {**one["spec"], "rules": rules}}


def _acting(one: Document, action: str) -> Document:
    return {**one, "spec": {**one["spec"], "validationFailureAction": action}}


def _expecting_pass(checks: ItbenchChecks) -> ItbenchChecks:
    first = checks.check_violations[0].model_copy(update={"expected_result": "pass"})
    return checks.model_copy(update={"check_violations": (first, *checks.check_violations[1:])})
