"""Answers to the second and third example: a fetcher or playbook, and a Rego policy.

Nothing is fetched here: of each answer it is stated what its fetcher or playbook saves of a world, and what OPA prints of
that on the example's own. Ours judges by a Rego engine that is given; what needs none is said without.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any, Literal

from opsassay.evals.compliance.rego.judging import RegoQuestion, judge_by_rego

from .examples import ANSIBLE, KUBECTL, AnsibleOpaExample, ItbenchExample, ItbenchExamples, KubectlOpaExample
from .new_policies import placed, worlds
from .public_rules import COLLECTED, POLICY_FILE, RUN_FILES, prints_false
from .verdicts import JudgedSubmission

RegoWord = Literal["true", "false", "undefined", "error", "not judged"]
Rego = Callable[[bytes, object], RegoWord]
"""What a policy says of evidence at ``data.check.result``. The examples' policies are of Rego v0."""

_HEAD = b"package check\n\n"
CONSTANT_FALSE, CONSTANT_TRUE = _HEAD + b"result := false\n", _HEAD + b"result := true\n"
_NEW_HEAD = b"package check\n\nimport rego.v1\n\n"
HOST_NETWORK = _NEW_HEAD + (
    b"default result := false\n\nresult if {\n"
    b"\tis_array(input.items)\n\tcount([1 | some pod in input.items; pod.spec.hostNetwork == true]) == 0\n}\n"
)
BY_NAME = _NEW_HEAD + (
    b"default result := true\n\nresult := false if {\n\tsome pod in input.items\n"
    b'\tstartswith(pod.metadata.name, "%s")\n}\n'
)
ROOT_LOGIN = _NEW_HEAD + b'default result := false\n\nresult if input.permit_root_login == "PermitRootLogin no"\n'


@dataclass(frozen=True)
class _RegoWorld:
    """What a fetcher or a playbook would find, and whether it complies; *evidence* is what a right one saves of it."""

    about: str
    compliant: bool
    evidence: Any


@dataclass(frozen=True)
class RegoAnswer:
    """The *policy*, the other *files* that were left, and what is collected; *left* is evidence that the agent wrote.

    *saves* makes of the evidence of a right fetcher that of this one, None where it saves nothing. *outcome* is what OPA
    prints on the example's own world.
    """

    name: str
    policy: bytes
    outcome: RegoWord
    files: tuple[str, ...]
    saves: Callable[[Any], Any] = lambda evidence: evidence
    left: Any = None
    right: bool = False

    def lying_there(self, evidence: Any) -> Any:
        """Return what lies in the workspace once its fetcher was run where a right one saves *evidence*."""
        return self.left if (saved := self.saves(evidence)) is None else saved


def by_engine(policy: bytes, evidence: object) -> RegoWord:
    """Return what the engine says of *evidence* under *policy*, as the examples ask; one that is no policy is an error."""
    asked = RegoQuestion("check", "result", "v0")
    found = judge_by_rego(policy, [json.dumps(evidence).encode()], question=asked).outcomes
    return found[0].kind if found else "error"


def rego_submissions(examples: ItbenchExamples, rego: Rego | None = None) -> Iterator[JudgedSubmission]:
    """Yield every answer to both examples, judged twice; *rego* judges in place of what is stated, where it is given."""
    for example, answers, found in (
        (examples.kubectl_opa, _kubectl_answers(examples.kubectl_opa), _pod_worlds(examples.kubectl_opa)),
        (examples.ansible_opa, _ansible_answers(examples.ansible_opa), _host_worlds(examples.ansible_opa)),
    ):
        for answer in answers:
            yield _judged(example, answer, found, rego)


def _judged(
    example: ItbenchExample, answer: RegoAnswer, found: list[_RegoWorld], rego: Rego | None
) -> JudgedSubmission:
    run_file = RUN_FILES[example.folder]
    evidence = answer.lying_there(found[0].evidence)
    outcome = answer.outcome if rego is None or evidence is None else rego(answer.policy, evidence)
    public = prints_false(run_file, (*answer.files, POLICY_FILE), evidence, outcome)
    why = _refusal(example, answer, found)
    ours: bool | None = False
    if not why and rego is None:
        ours = None
    elif not why and rego is not None:
        why = _misjudged(answer, found, rego)
        ours = not why
    if ours is not False and run_file not in answer.files:
        why = f"the public evaluator runs {run_file}, which the goal does not name"
    return JudgedSubmission(example.task_class, answer.name, answer.right, public, ours, why)


def _refusal(example: ItbenchExample, answer: RegoAnswer, found: list[_RegoWorld]) -> str:
    """Return why ours refuses *answer* without looking at its policy, nothing when it does not."""
    if missing := [name for name in example.named_files if name not in (*answer.files, POLICY_FILE)]:
        return f"there is no {missing[0]}, which the goal names"
    saved = {world.compliant: answer.saves(world.evidence) for world in found}
    if None in saved.values():
        return f"nothing saves {COLLECTED}; what was left as data counts for nothing"
    if saved[True] == saved[False]:
        return "the evidence is the same, whatever the world"
    return ""


def _misjudged(answer: RegoAnswer, found: list[_RegoWorld], rego: Rego) -> str:
    for world in found:
        said, expected = rego(answer.policy, answer.saves(world.evidence)), str(world.compliant).lower()
        if said != expected:
            return f"{said} for {world.about}"
    return ""


def _pod_worlds(example: KubectlOpaExample) -> list[_RegoWorld]:
    """Return lists of pods as kubectl prints them, the example's own first."""
    found = []
    for world in worlds(example.workload):
        template = world.object["spec"].get("template")
        pod = {"metadata": world.object["metadata"], "spec": template["spec"] if template else world.object["spec"]}
        found.append(_RegoWorld(f"pods of {world.about}", world.compliant, {"items": [pod]}))
    return found


def _host_worlds(example: AnsibleOpaExample) -> list[_RegoWorld]:
    def evidence(line: str) -> dict[str, Any]:
        return {key: line if value == example.fault else value for key, value in example.evidence.items()}

    return [
        _RegoWorld(f"a host with {line!r}", line == example.mended, evidence(line))
        for line in (example.fault, example.mended)
    ]


def _kubectl_answers(example: KubectlOpaExample) -> Iterator[RegoAnswer]:
    run, named = (RUN_FILES[KUBECTL],), tuple(name for name in example.named_files if name != POLICY_FILE)
    both = (*named, *run)
    violating = _pod_worlds(example)[0].evidence
    name = placed(example.workload)["metadata"]["name"].encode()
    yield RegoAnswer(f"right, in {named[0]} as the goal says", HOST_NETWORK, "false", named, right=True)
    yield RegoAnswer(f"right, in {run[0]} alone", HOST_NETWORK, "false", run)
    yield RegoAnswer("right, in both files", HOST_NETWORK, "false", both, right=True)
    yield from _wrong(both, HOST_NETWORK, violating)
    yield RegoAnswer("false by the name of the example", BY_NAME % name, "false", both)


def _ansible_answers(example: AnsibleOpaExample) -> Iterator[RegoAnswer]:
    files = (RUN_FILES[ANSIBLE],)
    saved = any(PurePosixPath(one).name == COLLECTED for one in example.destinations)

    def shipped(evidence: Any) -> Any:
        return evidence if saved else None

    as_it_ships = RegoAnswer("the playbook and policy that ship", example.policy, "false", files, shipped, right=saved)
    yield as_it_ships
    if not saved:
        yield RegoAnswer(f"the same, with {COLLECTED} as the goal says", example.policy, "false", files, right=True)
    yield from _wrong(files, example.policy, copy.deepcopy(example.evidence))
    yield RegoAnswer("a policy about something else: root logins", ROOT_LOGIN, "false", files)


def _wrong(files: tuple[str, ...], right_policy: bytes, violating: Mapping[str, Any]) -> Iterator[RegoAnswer]:
    """Yield what is wrong in both examples alike."""
    yield RegoAnswer("constant true", CONSTANT_TRUE, "true", files)
    yield RegoAnswer("constant false", CONSTANT_FALSE, "false", files)
    yield RegoAnswer("a fetcher that prints canned data", right_policy, "false", files, saves=lambda _: dict(violating))
    yield RegoAnswer(
        "a fetcher that does nothing, and evidence written by hand", right_policy, "false", files,
        saves=lambda _: None, left=dict(violating),
    )  # fmt: skip
