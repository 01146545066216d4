"""The four public examples as data: what is asked, what is broken, and what ships as an answer to it."""

from __future__ import annotations

import hashlib
import re
from typing import Any, Literal

from pydantic import Field

from opsassay.core.schema.base import Noun, Written

NEW, KUBECTL, ANSIBLE, UPDATE = (
    "1.gen-cis-b-k8s-kyverno",
    "2.gen-cis-b-k8s-kubectl-opa",
    "3.gen-cis-b-rhel9-ansible-opa",
    "4.upd-cis-b-k8s-kyverno",
)
"""The folders of the examples."""
CLASSES = {NEW: "new-kyverno", KUBECTL: "new-opa-kubectl", ANSIBLE: "new-opa-ansible", UPDATE: "update-kyverno"}

EVALUATORS = {
    NEW: ("evaluation/main.py", "5115ff1ef754067f9da8ce3cf59f30cb49466f0eb9ca96900fd00a60e98f6889"),
    KUBECTL: ("playbooks/evaluate.yml", ""),
    ANSIBLE: ("playbooks/evaluate.yml", ""),
    UPDATE: ("evaluation.py", "fde9a5c2d6e1c0e01b2118ff44b147736dce5561455ed033a2968e94ce054bf2"),
}
"""Where the evaluator of each stands, and the SHA-256 of the one whose rule is stated again in *public_rules*."""

Document = dict[str, Any]
_NAMED_FILE = re.compile(r"`([\w.-]{1,80}\.(?:sh|yml|rego))`")


class ItbenchExample(Noun):
    """What every example has: its *folder*, the *goal* that an agent reads, and its *evaluator* where that is there."""

    folder: str
    goal: str
    evaluator: bytes | None = Field(default=None, repr=False)

    @property
    def task_class(self) -> str:
        """Its class, by our names."""
        return CLASSES[self.folder]

    @property
    def title(self) -> str:
        """The condition that is asked for, or else the first line of the goal."""
        lines = [line.strip() for line in self.goal.splitlines() if line.strip()]
        about = len(lines) > 1 and lines[0].startswith("I would like to check")
        return lines[1] if about else lines[0]

    @property
    def named_files(self) -> tuple[str, ...]:
        """The scripts, playbooks and policies that the goal asks for by name, each once."""
        return tuple(dict.fromkeys(_NAMED_FILE.findall(self.goal)))

    @property
    def evaluator_is(self) -> Literal["stated again", "another version", "not there"]:
        """Whether its evaluator is the one that was read when its rule was stated again."""
        if self.evaluator is None:
            return "not there"
        known = EVALUATORS[self.folder][1]
        return "stated again" if hashlib.sha256(self.evaluator).hexdigest() == known else "another version"


class NewKyvernoExample(ItbenchExample):
    """A new policy: the *workload* that violates, an example *policy* file, and the *reports* that it led to."""

    workload: Document
    policy: bytes
    reports: tuple[Document, ...]


class KubectlOpaExample(ItbenchExample):
    """A fetcher and a Rego policy: the *workload* that violates. No answer ships with it."""

    workload: Document


class AnsibleOpaExample(ItbenchExample):
    """A playbook and a Rego policy: the lines of a file that are the *fault* and *mended*, and the answer that ships.

    *destinations* are the files that the playbook writes, *evidence* is what it collected from a host with the fault.
    """

    fault: str
    mended: str
    policy: bytes
    evidence: Document
    destinations: tuple[str, ...]


class ReportedObject(Written):
    """The object of Kubernetes that a check is about."""

    name: str
    kind: str
    api_version: str
    namespace: str = ""


class ViolationCheck(Written):
    """What the reports are to say of one object by one policy."""

    policy_name: str
    resource: ReportedObject
    expected_result: str
    strict_check: bool = False
    ignore_policies: tuple[str, ...] = ()


class UnchangedCheck(Written):
    """A policy whose rules are to be as they were."""

    policy_name: str


class ItbenchChecks(Written):
    """The file *eval_config.yaml*."""

    check_violations: tuple[ViolationCheck, ...] = Field(min_length=1)
    check_unchanged_policies: tuple[UnchangedCheck, ...]


class UpdateKyvernoExample(ItbenchExample):
    """Changed policies: the *repository* before, what is in the cluster, the *checks*, and the answer that ships.

    *pod* is the object that the first check is about; *fixed* is the file with the changed policy.
    """

    repository: bytes
    objects: tuple[Document, ...]
    pod: Document
    fixed: bytes
    checks: ItbenchChecks
    reports_before: tuple[Document, ...]
    reports_after: tuple[Document, ...]

    @property
    def target(self) -> str:
        """The name of the policy that is to be changed."""
        return self.checks.check_violations[0].policy_name


class ItbenchExamples(Noun):
    """The four examples."""

    new_kyverno: NewKyvernoExample
    kubectl_opa: KubectlOpaExample
    ansible_opa: AnsibleOpaExample
    update_kyverno: UpdateKyvernoExample

    def each(self) -> tuple[ItbenchExample, ...]:
        """Return them in the order of their folders."""
        return self.new_kyverno, self.kubectl_opa, self.ansible_opa, self.update_kyverno
