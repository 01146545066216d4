"""Evaluates an untrusted Rego policy on each piece of evidence in a sandbox: no network, no files, little time.

OPA decides if installed. Otherwise regorus and rego-cpp do; where they disagree there is no verdict.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal

from opsassay.core.errors import OpsAssayError
from opsassay.evals.compliance.rego import worker
from opsassay.evals.compliance.rego.engines import PLACE, RegoEngine, judges
from opsassay.solvers.sandbox import Sandbox, SandboxLimits, python_path

MAX_POLICY = 256 * 2**10
LIMITS = SandboxLimits(
    wall_clock_s=20.0, memory_bytes=2**30, processes=32, work_bytes=2**20, output_bytes=2**20, file_bytes=2**20
)
"""Threads count as processes here, and Go starts several."""
_ENVIRONMENT = {"LANG": "C.UTF-8", "GOMAXPROCS": "2", "GOMEMLIMIT": "700MiB"}
NOT_JUDGED = "not judged: the engines disagree"
UNSURE = "not judged: regorus and rego-cpp can agree on what OPA does not say, about"


class NotJudgedError(OpsAssayError):
    """The engines give no reliable result; the message is one sentence."""


@dataclass(frozen=True)
class RegoQuestion:
    """The *rule* and *package* to query, and the syntax of the policy."""

    package: str = worker.PACKAGE
    rule: str = worker.RULE
    syntax: Literal["v0", "v1"] = "v1"


@dataclass(frozen=True)
class RegoOutcome:
    """The result of a policy for one input; *reason* explains an error or missing verdict."""

    kind: Literal["true", "false", "undefined", "error", "not judged"]
    reason: str = ""


_OURS = RegoQuestion()


@dataclass(frozen=True)
class JudgedByRego:
    """The *problem* of a policy itself or None, its outcome per input in order, and the *judge* (engines)."""

    problem: str | None
    outcomes: tuple[RegoOutcome, ...] = ()
    judge: str = ""

    def required(self) -> JudgedByRego:
        """Return this result if the engines agreed, so that it can be used; else raise NotJudgedError."""
        found = next((one.reason for one in self.outcomes if one.kind == "not judged"), None)
        if found is not None:
            raise NotJudgedError(f"{found}; put `opa` on the PATH and grade again.")
        return self


def judge_by_rego(
    policy: bytes,
    inputs: Sequence[bytes],
    limits: SandboxLimits = LIMITS,
    question: RegoQuestion = _OURS,
    engines: Sequence[RegoEngine] | None = None,
) -> JudgedByRego:
    """Evaluate *policy* on each of *inputs* (JSON texts) in a sandbox per engine; return the outcomes.

    *engines*, by default those of `judges`, must agree. An input that was not reached within *limits* has the outcome
    of an error. Raises StartError when no sandbox can be made, UserError when no engine is installed.
    """
    some = judges(question.syntax) if engines is None else engines
    judge = " and ".join(one.label for one in some)
    if problem := _problem_of_text(policy):
        return JudgedByRego(problem, judge=judge)
    said = [_ask_engine(one, policy, inputs, limits, question) for one in some]
    return replace(_combine_answers(some, said, len(inputs)), judge=judge)


def _problem_of_text(policy: bytes) -> str | None:
    """Return why no engine can read the policy: too long, not UTF-8, a NUL; None when one can."""
    if len(policy) > MAX_POLICY:
        return f"it has {len(policy)} bytes, more than {MAX_POLICY}"
    try:
        policy.decode("utf-8")
    except UnicodeDecodeError:
        return "it is not UTF-8 text"
    return "it holds a NUL, at which engines stop reading" if b"\0" in policy else None


@dataclass(frozen=True)
class _EngineAnswer:
    """One engine's answer: a *problem* of the policy, or (kind, reason) per input."""

    problem: str | None
    rows: tuple[tuple[str, str], ...] = ()


def _ask_engine(
    engine: RegoEngine, policy: bytes, inputs: Sequence[bytes], limits: SandboxLimits, question: RegoQuestion
) -> _EngineAnswer:
    """Evaluate *policy* on *inputs* with one engine in a sandbox; inputs not reached within *limits* count as late."""
    with TemporaryDirectory(prefix="opsassay-rego-") as made:
        view, work = Path(made, "view"), Path(made, "work")
        (view / "inputs").mkdir(parents=True)
        work.mkdir()
        (view / "policy.rego").write_bytes(policy)
        for number, text in enumerate(inputs):
            (view / "inputs" / f"{number:05}.json").write_bytes(text)
        readable = {f"{PLACE}/worker.py": Path(worker.__file__), **engine.shown}
        seal = Sandbox(view, work, {}, {}, replace(limits, **engine.limits), _ENVIRONMENT, readable=readable)
        asked = (question.package, question.rule, question.syntax)
        command = [python_path(), "-S", f"{PLACE}/worker.py", engine.key, "/view/policy.rego", "/view/inputs", *asked]
        end = seal.run(command)
    said = [json.loads(line) for line in end.stdout_tail.splitlines() if line.endswith("]")]
    if not said:
        return _EngineAnswer(f"it was not read to its end: {end.reason}")
    first, *rows = said
    if first[1]:
        return _EngineAnswer(first[1])
    late = ("late", f"the policy was not done with it: {end.reason}")
    found = [(kind, reason) for kind, reason in rows[: len(inputs)]]
    return _EngineAnswer(None, (*found, *[late] * (len(inputs) - len(found))))


def _combine_answers(engines: Sequence[RegoEngine], answers: Sequence[_EngineAnswer], count: int) -> JudgedByRego:
    """Return the outcomes of *count* inputs on which the *answers* of all *engines* agree, else "not judged"."""
    if all(one.problem for one in answers):
        return JudgedByRego(answers[0].problem)
    if any(one.problem for one in answers):
        why = _describe_disagreement(engines, [one.problem or "it is a policy" for one in answers])
        return JudgedByRego(None, (RegoOutcome("not judged", why),) * max(count, 1))
    found = []
    for rows in zip(*(one.rows for one in answers), strict=True):
        kinds = {kind for kind, _ in rows}
        kind, reason = rows[0]
        if len(rows) > 1 and "unsure" in kinds:
            said_why = next(reason for kind, reason in rows if kind == "unsure")
            found.append(RegoOutcome("not judged", f"{UNSURE} {said_why}"))
        elif len(rows) > 1 and (len(kinds) > 1 or kind == "error"):
            words = [f"{kind} ({reason})" if reason else kind for kind, reason in rows]
            found.append(RegoOutcome("not judged", _describe_disagreement(engines, words)))
        else:
            found.append(RegoOutcome(_KINDS.get(kind, "error"), reason))
    return JudgedByRego(None, tuple(found))


_KINDS: dict[str, Literal["true", "false", "undefined"]] = {"true": "true", "false": "false", "undefined": "undefined"}


def _describe_disagreement(engines: Sequence[RegoEngine], words: Sequence[str]) -> str:
    """Return the sentence that says which engine found which of *words*, in the order of *engines*."""
    by_engine = "; ".join(f"{engine.label}: {word}" for engine, word in zip(engines, words, strict=True))
    return f"{NOT_JUDGED} ({by_engine})"
