"""Oracles of the classes that collect evidence: one is right, each other one fails at a stated stage."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import yaml

from opsassay.evals.compliance.evidence_collection.evidence import EVIDENCE
from opsassay.evals.compliance.rego.worker import PACKAGE, RULE
from opsassay.evals.compliance.tasks import ANSIBLE, POLICY, ComplianceTask

Files = dict[str, bytes]
Play = Callable[[ComplianceTask], Files]
CANNED = '{"items": [], "lines": ["enabled", "active"]}'
_EXAMPLE = "compliant-1"


def right_collector(task: ComplianceTask) -> str:
    """Return the text of the reference collector (script or playbook) of *task*."""
    return task.host_control.playbook() if task.task_class == ANSIBLE else task.control.fetcher()


def right_policy(task: ComplianceTask) -> str:
    """Return the text of the reference Rego policy: it accepts each cluster or host of *task* that complies, no other."""
    return task.host_control.policy() if task.task_class == ANSIBLE else task.control.judging_policy()


def _submitted_files(task: ComplianceTask, collector: str | None = None, policy: str | None = None) -> Files:
    """Return an answer's two files, content by path; None stands for the reference collector or policy."""
    assert task.collector is not None
    return {
        task.collector: (right_collector(task) if collector is None else collector).encode(),
        POLICY: (right_policy(task) if policy is None else policy).encode(),
    }


def _submit_policy_body(task: ComplianceTask, body: str) -> Files:
    """Return the files of the reference collector and a Rego policy with the rules *body*."""
    return _submitted_files(task, policy=f"package {PACKAGE}\n\n{body}\n")


def _make_constant_play(value: str) -> Play:
    """Return an oracle that submits the reference collector and a policy whose rule is always *value*."""
    return lambda task: _submit_policy_body(task, f"{RULE} := {value}")


def _collector_of_script(task: ComplianceTask, script: str) -> str:
    """Return the text of a collector that only runs the shell lines *script* and queries nothing."""
    if task.task_class != ANSIBLE:
        return f"#!/bin/bash\n{script}\n"
    return f"- hosts: target\n  gather_facts: false\n  tasks:\n    - ansible.builtin.shell: |\n        {script}\n"


def _submit_canned_evidence(task: ComplianceTask) -> Files:
    """Return an answer whose collector writes the same evidence on every cluster or host."""
    return _submitted_files(task, _collector_of_script(task, f"echo '{CANNED}' > {EVIDENCE}"))


def _submit_evidence_by_hand(task: ComplianceTask) -> Files:
    """Return an answer with evidence and a policy but no collector."""
    assert task.collector is not None
    return {POLICY: right_policy(task).encode(), EVIDENCE: CANNED.encode()}


def _submit_under_public_name(task: ComplianceTask) -> Files:
    """Return an answer whose collector has the file name of the public goals, which is not the required one."""
    files = _submitted_files(task)
    return {("script.sh" if path == task.collector else path): content for path, content in files.items()}


def _submit_in_subfolder(task: ComplianceTask) -> Files:
    """Return an answer whose policy is in a subfolder, where the scorer does not look."""
    return {
        (f"policies/{path}" if path == POLICY else path): content for path, content in _submitted_files(task).items()
    }


def _submit_no_evidence(task: ComplianceTask) -> Files:
    """Return an answer whose collector fails and writes nothing."""
    return _submitted_files(task, _collector_of_script(task, "exit 3"))


def _submit_binary_evidence(task: ComplianceTask) -> Files:
    """Return an answer whose collector writes random bytes."""
    return _submitted_files(task, _collector_of_script(task, f"head -c 999 /dev/urandom > {EVIDENCE}"))


def _submit_known_names(task: ComplianceTask) -> Files:
    """Return an answer whose policy accepts only names of the compliant examples, so fails elsewhere."""
    shown = {path: text.decode() for path, text in task.files().items() if path.startswith(f"examples/{_EXAMPLE}")}
    if task.task_class == ANSIBLE:
        names, known = [shown[f"examples/{_EXAMPLE}/etc/hostname"].strip()], "some name in input.lines"
    else:
        names = [one["metadata"]["name"] for one in yaml.safe_load_all(shown[f"examples/{_EXAMPLE}.yaml"])]
        known = "name := input.items[_].metadata.name"
    listed = ", ".join(f'"{one}"' for one in names)
    return _submit_policy_body(
        task, f"default {RULE} := false\n\n{RULE} if {{\n    {known}\n    name in {{{listed}}}\n}}"
    )


def _submit_label_search(task: ComplianceTask) -> Files:
    """Return an answer whose policy searches the evidence for a label "violating", which is not in it."""
    body = 'walk(input, [_, value])\n    is_string(value)\n    contains(lower(value), "violating-world")'
    return _submit_policy_body(
        task, f"default {RULE} := false\n\n{RULE} if not labelled\n\nlabelled if {{\n    {body}\n}}"
    )


def _submit_undefined_rule(task: ComplianceTask) -> Files:
    """Return an answer whose policy lacks the default, so that its rule is undefined in place of false."""
    return _submitted_files(task, policy=right_policy(task).replace(f"default {RULE} := false\n", ""))


def _submit_no_boolean(task: ComplianceTask) -> Files:
    """Return an answer whose policy has a text as its default in place of false."""
    policy = right_policy(task).replace(f"default {RULE} := false", f'default {RULE} := "no"')
    return _submitted_files(task, policy=policy)


def _submit_other_package(task: ComplianceTask) -> Files:
    """Return an answer whose policy is in another Rego package, so that the queried rule is undefined."""
    return _submitted_files(task, policy=right_policy(task).replace(f"package {PACKAGE}", "package check"))


def _submit_other_language(task: ComplianceTask) -> Files:
    """Return an answer whose policy file is Python, not Rego."""
    return _submitted_files(task, policy=f"def {RULE}(input):\n    return True\n")


COLLECTED_ORACLES: Mapping[str, tuple[Play, str | None]] = {
    "right": (_submitted_files, None),
    "constant-true": (_make_constant_play("true"), "posture"),
    "constant-false": (_make_constant_play("false"), "posture"),
    "example-knowing": (_submit_known_names, "posture"),
    "label-reading": (_submit_label_search, "posture"),
    "undefined": (_submit_undefined_rule, "posture"),
    "no-boolean": (_submit_no_boolean, "posture"),
    "canned": (_submit_canned_evidence, "asked"),
    "not-collecting": (_submit_no_evidence, "evidence"),
    "binary": (_submit_binary_evidence, "evidence"),
    "written-by-hand": (_submit_evidence_by_hand, "artefact"),
    "other-name": (_submit_under_public_name, "artefact"),
    "elsewhere": (_submit_in_subfolder, "artefact"),
    "other-package": (_submit_other_package, "artefact"),
    "other-language": (_submit_other_language, "artefact"),
}
"""Oracle to (function that returns its files, first stage that it fails or None)."""

COLLECTED_BASELINES: Mapping[str, Play] = {
    "deny-all": _make_constant_play("false"),
    "allow-all": _make_constant_play("true"),
    "untouched": lambda _task: {},
}
