"""Answers to the first example, a new Kyverno policy: the one that ships, and wrong ones."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from opsassay.evals.compliance.clusters.repository import policy_files
from opsassay.evals.compliance.kyverno.documents import value_at
from opsassay.evals.compliance.kyverno.policy import read_policies

from .examples import Document, NewKyvernoExample
from .public_rules import some_failure
from .reports import report, reports_of
from .verdicts import JudgedSubmission, LabelledObject, misjudged

NAMESPACE = "paa"
"""Where the examples' objects are put that name no namespace."""
ALWAYS = {"deny": {"conditions": {"all": [{"key": "yes", "operator": "Equals", "value": "yes"}]}}}
"""A check that everything fails."""
_NETWORK: Document = {"pattern": {"spec": {"=(hostNetwork)": False}}}
_TEMPLATE_NETWORK: Document = {"pattern": {"spec": {"template": _NETWORK["pattern"]}}}


@dataclass(frozen=True)
class _NewAnswer:
    """Policy files that were deployed, and *reports* that somebody wrote by hand."""

    name: str
    files: Mapping[str, bytes]
    right: bool = False
    reports: tuple[Mapping[str, Any], ...] = ()


def new_submissions(example: NewKyvernoExample) -> Iterator[JudgedSubmission]:
    """Yield every answer, judged twice."""
    for answer in _answers(example):
        policies = read_policies(answer.files.items())
        workload = placed(example.workload)
        public = some_failure([*reports_of(policies, [workload]), *answer.reports], workload)
        why = misjudged(policies, list(worlds(example.workload)), enforced=False) if policies else "there is no policy"
        yield JudgedSubmission(example.task_class, answer.name, answer.right, public, not why, why)


def placed(one: Mapping[str, Any]) -> Document:
    """Return an object as it stands in the cluster: in the examples' namespace, unless it names one."""
    return {**one, "metadata": {"namespace": NAMESPACE, **one["metadata"]}}


def policy(name: str, check: Mapping[str, Any], **resources: Any) -> Document:
    """Return a policy with one rule, about pods unless *resources* says otherwise."""
    match = {"any": [{"resources": {"kinds": ["Pod"], **resources}}]}
    return {
        "apiVersion": "kyverno.io/v1",
        "kind": "ClusterPolicy",
        "metadata": {"name": name},
        "spec": {"rules": [{"name": "check", "match": match, "validate": {"message": f"{name} says no.", **check}}]},
    }


def _answers(example: NewKyvernoExample) -> Iterator[_NewAnswer]:
    workload = placed(example.workload)
    kind, name, namespace = workload["kind"], workload["metadata"]["name"], workload["metadata"]["namespace"]
    labelled = {"pattern": {"metadata": {"labels": {"owner": "?*"}}}}
    by_hand = report(workload, [{"policy": "anything", "rule": "anything", "result": "fail"}])
    yield _NewAnswer("the policy that ships", {"policy.yaml": example.policy}, right=True)
    yield _NewAnswer("nothing", {})
    yield _NewAnswer("allow all", policy_files(policy("allow-all", {"pattern": {"kind": "?*"}})))
    yield _NewAnswer("deny all", policy_files(policy("deny-all", ALWAYS)))
    yield _NewAnswer("a policy about something else: an owner", policy_files(policy("require-owner", labelled)))
    yield _NewAnswer(
        "deny by the name of the example", policy_files(policy("by-name", ALWAYS, kinds=[kind], names=[name]))
    )
    one_kind = policy("one-kind", _TEMPLATE_NETWORK, kinds=[kind])
    yield _NewAnswer(f"the control, for {kind}s alone", policy_files(one_kind))
    elsewhere = policy("one-namespace", _NETWORK, namespaces=[namespace])
    yield _NewAnswer("the control, in the example's namespace alone", policy_files(elsewhere))
    yield _NewAnswer("no policy, and a report written by hand", {}, reports=(by_hand,))


def worlds(workload: Mapping[str, Any]) -> Iterator[LabelledObject]:
    """Yield the example's workload and others of its template, with the network of the node and without."""
    template = workload["spec"]["template"]
    for about, network in (("uses the host's network", True), ("does not", False), ("says nothing of it", None)):
        spec = copy.deepcopy(dict(template["spec"]))
        spec.pop("hostNetwork", None)
        if network is not None:
            spec["hostNetwork"] = network
        body = {**workload["spec"], "template": {**template, "spec": spec}}
        own = placed({**workload, "spec": body})
        labels = value_at(template, "metadata", "labels") or {}
        elsewhere = {"name": "other-one", "namespace": "billing", "labels": labels}
        other: Document = {**own, "kind": "StatefulSet", "apiVersion": "apps/v1", "metadata": elsewhere}
        pod: Document = {"apiVersion": "v1", "kind": "Pod", "metadata": elsewhere, "spec": spec}
        for one in (own, other, pod):
            where = f"{one['kind']} {one['metadata']['name']} in {one['metadata']['namespace']}"
            yield LabelledObject(f"a {where} that {about}", network is not True, one)
