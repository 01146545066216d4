"""A Rego policy of a stranger, asked about each piece of evidence, in a seal: no network, no files, little time."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal

from opsassay.core.errors import UserError
from opsassay.core.extras import install_hint
from opsassay.evals.compliance.rego import worker
from opsassay.solvers.sandbox import Sandbox, SandboxLimits, python_path

MAX_POLICY = 256 * 2**10
LIMITS = SandboxLimits(
    wall_clock_s=20.0, memory_bytes=2**30, processes=4, work_bytes=2**20, output_bytes=2**20, file_bytes=2**20
)
_PLACE = "/opt/opsassay-rego"


@dataclass(frozen=True)
class RegoQuestion:
    """Which rule of which package is asked for, and in which syntax the policy is."""

    package: str = worker.PACKAGE
    rule: str = worker.RULE
    syntax: Literal["v0", "v1"] = "v1"


@dataclass(frozen=True)
class RegoOutcome:
    """What a policy said of one input: true, false, undefined, or an error with its *reason*."""

    kind: Literal["true", "false", "undefined", "error"]
    reason: str = ""


_OURS = RegoQuestion()


@dataclass(frozen=True)
class JudgedByRego:
    """What is wrong with a policy by itself, if anything, and its outcome for each input, in their order."""

    problem: str | None
    outcomes: tuple[RegoOutcome, ...] = ()


def judge_by_rego(
    policy: bytes, inputs: Sequence[bytes], limits: SandboxLimits = LIMITS, question: RegoQuestion = _OURS
) -> JudgedByRego:
    """Return what *policy* says of each of *inputs* (JSON texts), all in one seal.

    An input that the seal's *limits* did not let it come to is an error. Raises StartError when no seal can be made,
    UserError when regorus is not installed.
    """
    if len(policy) > MAX_POLICY:
        return JudgedByRego(f"it has {len(policy)} bytes, more than {MAX_POLICY}")
    try:
        policy.decode("utf-8")
    except UnicodeDecodeError:
        return JudgedByRego("it is not UTF-8 text")
    if b"\0" in policy:
        return JudgedByRego("it holds a NUL, at which engines stop reading")
    with TemporaryDirectory(prefix="opsassay-rego-") as made:
        view, work = Path(made, "view"), Path(made, "work")
        (view / "inputs").mkdir(parents=True)
        work.mkdir()
        (view / "policy.rego").write_bytes(policy)
        for number, text in enumerate(inputs):
            (view / "inputs" / f"{number:05}.json").write_bytes(text)
        readable = {f"{_PLACE}/worker.py": Path(worker.__file__), f"{_PLACE}/regorus": _engine()}
        seal = Sandbox(view, work, {}, {}, limits, {"LANG": "C.UTF-8"}, readable=readable)
        asked = (question.package, question.rule, question.syntax)
        command = [python_path(), "-S", f"{_PLACE}/worker.py", "/view/policy.rego", "/view/inputs", *asked]
        end = seal.run(command)
    said = [json.loads(line) for line in end.stdout_tail.splitlines() if line.endswith("]")]
    if not said:
        return JudgedByRego(f"it was not read to its end: {end.reason}")
    first, *rows = said
    if first[1]:
        return JudgedByRego(first[1])
    outcomes = [RegoOutcome(kind, reason) for kind, reason in rows[: len(inputs)]]
    late = RegoOutcome("error", f"the policy was not done with it: {end.reason}")
    return JudgedByRego(None, (*outcomes, *[late] * (len(inputs) - len(outcomes))))


def _engine() -> Path:
    found = find_spec("regorus")
    if found is None or not found.submodule_search_locations:
        raise UserError(f"Rego policies are judged with regorus, which is not installed; {install_hint('ciso')}.")
    return Path(next(iter(found.submodule_search_locations)))
