"""Reading the folder of the four examples, as it stands in ITBench's repository (itbench-hub/ITBench, scenarios/ciso).

Everything in it is read bounded: no link, no large file, no anchors of YAML. Nothing in it is run.
"""

from __future__ import annotations

import errno
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from opsassay.core.errors import UserError
from opsassay.core.schema.files import parse_yaml
from opsassay.core.untrusted import read_json, read_plain, safe_text
from opsassay.evals.compliance.kyverno.documents import UnsupportedError, documents, plain_values, value_at
from opsassay.evals.compliance.kyverno.policy import read_policies

from .examples import (
    ANSIBLE,
    EVALUATORS,
    KUBECTL,
    NEW,
    UPDATE,
    AnsibleOpaExample,
    Document,
    ItbenchChecks,
    ItbenchExamples,
    KubectlOpaExample,
    NewKyvernoExample,
    UpdateKyvernoExample,
)

MAX_FILE = 2**20
"""Bytes of one file; those of YAML are held to less (`documents`)."""
_NONE_THERE = "give the folder scenarios/ciso of ITBench's repository"
_NO_OBJECT = "holds what is no object of Kubernetes, which has apiVersion, kind, a name, and values of JSON alone"
_REPORT_KINDS = ("PolicyReport", "ClusterPolicyReport")

T = TypeVar("T")


def read_examples(folder: Path) -> ItbenchExamples:
    """Return the examples in *folder*; raises UserError naming the first file that is missing or cannot be read."""
    if not folder.is_dir():
        raise UserError(f"{safe_text(str(folder))} is no folder; {_NONE_THERE}.")
    found = _ExampleFolder(folder)
    return ItbenchExamples(
        new_kyverno=_new_kyverno(found),
        kubectl_opa=KubectlOpaExample(**found.head(KUBECTL), workload=found.workload(KUBECTL)),
        ansible_opa=_ansible_opa(found),
        update_kyverno=_update_kyverno(found),
    )


@dataclass(frozen=True)
class _ExampleFolder:
    """The folder at *path*, each of whose files is read by its path in it."""

    path: Path

    def bytes_of(self, name: str) -> bytes:
        """Return the content of the file *name*; raises UserError when it is not there, a link or too large."""
        try:
            return read_plain(self.path / name, MAX_FILE)
        except OSError as error:
            missing = error.errno in (errno.ENOENT, errno.ENOTDIR)
            why = f"is not there; {_NONE_THERE}" if missing else f"cannot be read: {error.strerror}"
            raise UserError(f"{safe_text(str(self.path / name))} {why}.") from error

    def text(self, name: str) -> str:
        """Return the file *name* as text; raises UserError."""
        try:
            return self.bytes_of(name).decode("utf-8")
        except UnicodeDecodeError as error:
            raise self.wrong(name, "is no UTF-8 text") from error

    def read(self, name: str, reader: Callable[[bytes, str], T]) -> T:
        """Return what *reader* makes of the file *name*; what the subset of policies cannot say is a UserError."""
        content = self.bytes_of(name)
        try:
            return reader(content, str(self.path / name))
        except UnsupportedError as error:
            raise UserError(safe_text(str(error))) from error

    def json(self, name: str) -> Any:
        """Return the value in the JSON file *name*; raises UserError."""
        try:
            return read_json(self.bytes_of(name))
        except (ValueError, RecursionError) as error:
            raise self.wrong(name, f"is no JSON: {' '.join(str(error).split())[:200]}") from error

    def wrong(self, name: str, why: str) -> UserError:
        """Return the error that the file *name* is not as it should be."""
        return UserError(f"{safe_text(str(self.path / name))} {why}.")

    def head(self, example: str) -> dict[str, Any]:
        """Return what every example has."""
        name, content = f"{example}/{EVALUATORS[example][0]}", None
        if (self.path / name).exists():
            content = self.bytes_of(name)
        return {"folder": example, "goal": self._goal(example), "evaluator": content}

    def _goal(self, example: str) -> str:
        """Return the goal: its own file, or else the first block in the section of the README that is about it."""
        if (self.path / example / "goal.txt").exists():
            goal = self.text(f"{example}/goal.txt")
        else:
            section = f"\n#### {example[0]}.1 "
            _, _, after = f"\n{self.text('README.md')}".partition(section)
            _, _, opened = after.partition("\n```")
            goal = opened.partition("\n")[2].partition("\n```")[0]
        if not goal.strip():
            raise self.wrong("README.md", f"has no goal of {example}, under a heading {example[0]}.1")
        return goal.strip("\n")

    def workload(self, example: str) -> Document:
        """Return the one object of the manifest of *example*, which makes pods."""
        name = f"{example}/manifests/application.yaml"
        found = self.read(name, documents)
        if len(found) != 1 or not isinstance(value_at(found[0], "spec", "template", "spec"), Mapping):
            raise self.wrong(name, "is not one object with a template of pods")
        if not _is_object(found[0]):
            raise self.wrong(name, _NO_OBJECT)
        return found[0]

    def reports(self, name: str, value: Any) -> tuple[Document, ...]:
        """Return the policy reports in *value*, which is one, a list of them, or a list of Kubernetes."""
        if isinstance(value, dict):
            value = value.get("items") if value.get("kind") == "List" else [value]
        if not isinstance(value, list) or not value or not all(_is_report(one) for one in value):
            raise self.wrong(name, "holds something else than policy reports, with a scope, results and a summary")
        return tuple(value)


def _new_kyverno(found: _ExampleFolder) -> NewKyvernoExample:
    policy, report = f"{NEW}/examples/example_policy.yaml", f"{NEW}/examples/example_report.json"
    return NewKyvernoExample(
        **found.head(NEW),
        workload=found.workload(NEW),
        policy=found.read(policy, _policies),
        reports=found.reports(report, found.json(report)),
    )


def _ansible_opa(found: _ExampleFolder) -> AnsibleOpaExample:
    examples = f"{ANSIBLE}/examples"
    evidence = found.json(f"{examples}/example_collected_data.json")
    if not isinstance(evidence, dict):
        raise found.wrong(f"{examples}/example_collected_data.json", "is no map")
    playbook = found.read(f"{examples}/example_playbook.yml", plain_values)
    plays = playbook[0] if len(playbook) == 1 else None
    if not isinstance(plays, list) or not plays or not all(isinstance(one, Mapping) for one in plays):
        raise found.wrong(f"{examples}/example_playbook.yml", "is no list of plays")
    fault, mended = (_line(found, f"{ANSIBLE}/tasks/{name}.yml") for name in ("fault_inject", "fault_removal"))
    if fault not in evidence.values():
        raise found.wrong(f"{examples}/example_collected_data.json", "does not hold the line of tasks/fault_inject.yml")
    return AnsibleOpaExample(
        **found.head(ANSIBLE),
        fault=fault,
        mended=mended,
        policy=found.text(f"{examples}/example_policy.rego").encode(),
        evidence=evidence,
        destinations=tuple(str(one["dest"]) for one in _modules(playbook, "copy") if "dest" in one),
    )


def _update_kyverno(found: _ExampleFolder) -> UpdateKyvernoExample:
    manifest, config = f"{UPDATE}/manifests/application.yaml", f"{UPDATE}/eval_config.yaml"
    objects = found.read(manifest, documents)
    if not all(map(_is_object, objects)):
        raise found.wrong(manifest, _NO_OBJECT)
    checks = found.read(config, _checks)
    name = checks.check_violations[0].resource.name
    pods = [one for one in objects if one.get("kind") == "Pod" and value_at(one, "metadata", "name") == name]
    if len(pods) != 1 or not _has_containers(pods[0]):
        raise found.wrong(
            manifest, f"does not hold one pod {safe_text(name)} with containers, which eval_config.yaml names"
        )
    example = UpdateKyvernoExample(
        **found.head(UPDATE),
        repository=found.read(f"{UPDATE}/manifests/existing-policy.yaml", _policies),
        objects=tuple(objects),
        pod=pods[0],
        fixed=found.read(f"{UPDATE}/examples/example-fix-policy.yaml", _policies),
        checks=checks,
        reports_before=_reports_in(found, f"{UPDATE}/examples/example-policy-report-before-fix.yaml"),
        reports_after=_reports_in(found, f"{UPDATE}/examples/example-policy-report-after-fix.yaml"),
    )
    named = {policy.name for policy in read_policies([("existing-policy.yaml", example.repository)])}
    others = {one.policy_name for one in checks.check_unchanged_policies}
    fixed = {policy.name for policy in read_policies([("example-fix-policy.yaml", example.fixed)])}
    if fixed != {example.target} or not others or not {example.target, *others} <= named:
        raise found.wrong(
            config, "names policies that are not those of existing-policy.yaml and example-fix-policy.yaml"
        )
    return example


def _reports_in(found: _ExampleFolder, name: str) -> tuple[Document, ...]:
    if len(read := found.read(name, documents)) != 1:
        raise found.wrong(name, "is not one report, or one list of them")
    return found.reports(name, read[0])


def _checks(content: bytes, name: str) -> ItbenchChecks:
    documents(content, name)  # which is bounded
    return parse_yaml(content.decode("utf-8"), ItbenchChecks, name)


def _policies(content: bytes, name: str) -> bytes:
    """Return *content* when it holds policies that can be judged; raises UnsupportedError."""
    if not read_policies([(name, content)]):
        raise UnsupportedError(f"{name} holds no policy.")
    return content


def _line(found: _ExampleFolder, name: str) -> str:
    """Return the line that the tasks in the file *name* put into a file of the host."""
    lines = [one.get("line") for one in _modules(found.read(name, plain_values), "lineinfile")]
    if len(lines) != 1 or not isinstance(lines[0], str):
        raise found.wrong(name, "does not put one line into a file")
    return lines[0]


def _modules(value: Any, name: str) -> list[Mapping[str, Any]]:
    """Return the arguments of every use of the Ansible module *name* in *value*."""
    if isinstance(value, list):
        return [one for inner in value for one in _modules(inner, name)]
    if not isinstance(value, Mapping):
        return []
    own = [one for key in (name, f"ansible.builtin.{name}") if isinstance(one := value.get(key), Mapping)]
    return own + [one for inner in value.values() for one in _modules(inner, name)]


def _is_object(one: Mapping[str, Any]) -> bool:
    try:
        if json.loads(json.dumps(one)) != one:  # keys that are numbers
            return False
    except TypeError:  # dates
        return False
    return all(
        isinstance(part, str) for part in (one.get("apiVersion"), one.get("kind"), value_at(one, "metadata", "name"))
    )


def _has_containers(pod: Mapping[str, Any]) -> bool:
    containers = value_at(pod, "spec", "containers")
    return isinstance(containers, list) and bool(containers) and all(isinstance(one, Mapping) for one in containers)


def _is_report(one: Any) -> bool:
    if not isinstance(one, Mapping) or one.get("kind") not in _REPORT_KINDS:
        return False
    results = one.get("results")
    maps = isinstance(one.get("scope"), Mapping) and isinstance(one.get("summary"), Mapping)
    return (
        maps
        and all(isinstance(key, str) for key in one)
        and isinstance(results, list)
        and all(isinstance(result, Mapping) for result in results)
    )
