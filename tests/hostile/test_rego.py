"""A Rego policy of an agent knows its input and nothing else, and what it takes too much of is an error with its sentence."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from opsassay.core.untrusted import safe_text
from opsassay.evals.compliance.evidence_collection.cache import EvidenceCache
from opsassay.evals.compliance.evidence_collection.cluster import FETCHER
from opsassay.evals.compliance.rego.engines import engines_here
from opsassay.evals.compliance.rego.judging import LIMITS, judge_by_rego
from opsassay.evals.compliance.score import grade_files, problem_of_files
from opsassay.evals.compliance.tasks import POLICY, ComplianceTask
from opsassay.solvers.sandbox import Sandbox, python_path, sealing_refusal

CLASS = "18 policies of Rego"
TASK = ComplianceTask(name="new-opa-kubectl-host-ports", seed=2**100 + 3, held_out=1)
SHORT = replace(LIMITS, wall_clock_s=3.0)
GIVEN = b'{"n": 3, "env": {"HOME": "x"}, "status_code": 200, "now": 5, "text": "aaa"}'

pytestmark = pytest.mark.skipif(
    sealing_refusal() is not None, reason=f"nothing can be sealed here: {sealing_refusal()}"
)

UNKNOWING = {
    "a token": ('io.jwt.decode("a.b.c")[0]', 'base64.decode("YQ==") == "a"'),
    "a file as data": ("data.secret", "input.text"),
    "the work of the grader": ("data.inputs", "input.n"),
    "a file by its name": ('json.unmarshal(data["/view/inputs/00000.json"])', "input.text"),
    "the module of another": ("data.other.compliant", "data.compliance.fine\nfine := true"),
}
"""What a policy cannot know, and what is as much an expression about its input."""


@pytest.mark.sampled(every=4)
@pytest.mark.parametrize("what", UNKNOWING)
def test_a_policy_knows_its_input_alone(what: str) -> None:
    attack, control = (f"package compliance\ncompliant if {one}".encode() for one in UNKNOWING[what])
    found = judge_by_rego(attack, [GIVEN], SHORT)
    assert found.problem is None
    (outcome,) = found.outcomes
    assert outcome.kind in ("undefined", "error"), outcome
    assert (outcome.kind == "error") is bool(outcome.reason)
    assert [one.kind for one in judge_by_rego(control, [GIVEN]).outcomes] == ["true"]


UNSTEADY = {
    "the clock": ("time.now_ns() > 0", "input.now > 0"),
    "the clock in a function": ("f(1)\nf(x) if time.now_ns() > x", "f(1)\nf(x) if input.now > x"),
    "the clock by another spelling": ('time["now_ns"]() > 0', 'input["now"] > 0'),
    "the clock in a comprehension": ("count([x | x := time.now_ns()]) > 0", "count([x | x := input.now]) > 0"),
    "a day that comes": ("time.now_ns() < 1900000000000000000", "input.now < 1900000000000000000"),
    "the environment": ("opa.runtime().env.HOME", "input.env.HOME"),
    "a request": ('http.send({"method": "get", "url": "http://127.0.0.1:1/"}).status_code == 200', "input.status_code == 200"),
    "a request by another spelling": ('http["send"]({"method": "get", "url": "file:///etc/passwd"}).body', "input.text"),
    "a name": ('count(net.lookup_ip_addr("localhost")) > 0', 'net.cidr_contains("10.0.0.0/8", "10.0.0.1")'),
    "a token's time": ('io.jwt.decode_verify("a.b.c", {"secret": "x"})[0] == false', "input.n == 3"),
    "chance": ('rand.intn("x", 2) == 0', "input.n == 3"),
    "chance by another spelling": ('rand["intn"]("x", 2) == 0', 'input["n"] == 3'),
    "chance in a negation": ('not rand.intn("x", 2) == 0', "not input.n == 4"),
    "a name that is drawn": ('uuid.rfc4122("x") > "8"', 'input.text > "8"'),
    "the clock under another name": ('g\ng if { t := time.now_ns(); t % 2 == 0 }', "g\ng if { t := input.now; t % 2 == 1 }"),
}  # fmt: skip
"""What would judge the same evidence otherwise the next time, and an expression that does not."""


@pytest.mark.sampled(every=4)
@pytest.mark.parametrize("what", UNSTEADY)
def test_what_a_policy_says_follows_from_the_evidence(what: str) -> None:
    attack, control = (f"package compliance\ncompliant if {one}".encode() for one in UNSTEADY[what])
    problem = judge_by_rego(attack, [GIVEN]).problem
    assert problem is not None
    assert "does not follow from the evidence" in problem
    assert [[one.kind for one in judge_by_rego(control, [GIVEN]).outcomes] for _ in range(2)] == [["true"]] * 2


def test_a_word_of_the_clock_in_a_text_or_a_comment_is_no_call() -> None:
    policy = b'package compliance\n# time.now_ns()\ncompliant if input.text != "rand.intn(1, 2)"'
    assert [one.kind for one in judge_by_rego(policy, [GIVEN]).outcomes] == ["true"]


BOMBS = {
    "time": ("count([1 | some a in numbers.range(1, 99999); some b in numbers.range(1, 99999); a == b]) > 0", "count([1 | some a in numbers.range(1, 9); a == 1]) > 0"),
    "memory in a text": ('sprintf("%1000000000d", [1]) != ""', 'sprintf("%10d", [1]) != ""'),
    "memory in a list": ("count(numbers.range(1, 999999999)) > 0", "count(numbers.range(1, 999)) > 0"),
    "a number without end": ("bits.lsh(1, 100000000000) > 0", "bits.lsh(1, 10) > 0"),
    "recursion of rules": ("compliant", "input.n"),
    "recursion of functions": ("f(1)\nf(x) := f(x + 1)", "f(1)\nf(x) := x"),
    "an expression of patterns": ('regex.match("((a{1000}){1000}){1000}", "a")', 'regex.match("a{3}", input.text)'),
    "nesting": ("[" * 100 + "1" + "]" * 100 + " == input", "[" * 5 + "1" + "]" * 5 + " != input"),
    "nesting of braces": ("(" * 900 + "1" + ")" * 900, "(((1)))"),
    "a line without end": ("1 == " + "1+" * 5000 + "1", "2 == 1+1"),
    "conflicting values": ("true\ncompliant := false", "true"),
    "a value that is none": ("true\ncompliant := 1 / 0", "1 / 1"),
}  # fmt: skip
ANSWERED = {"memory in a text", "nesting of braces", "a value that is none"}
"""What OPA answers at once: it caps the width of a number, reads any braces, and has a division by zero undefined."""


@pytest.mark.sampled(every=4)
@pytest.mark.parametrize("what", BOMBS)
def test_what_takes_too_much_is_an_error_with_its_sentence(what: str) -> None:
    attack, control = (f"package compliance\ncompliant if {one}".encode() for one in BOMBS[what])
    begun = time.monotonic()
    found = judge_by_rego(attack, [GIVEN, GIVEN], SHORT)
    assert time.monotonic() - begun < 30
    outcomes = found.outcomes
    allowed = ("error", "undefined", "not judged", *(["true"] if what in ANSWERED else []))
    assert found.problem or all(one.kind in allowed for one in outcomes), outcomes
    for said in (found.problem, *(one.reason for one in outcomes)):
        assert "\n" not in (said or "")
        assert len(said or "") < 600
    assert [one.kind for one in judge_by_rego(control, [GIVEN, GIVEN]).outcomes] == ["true"] * 2


REACHING = """
import json, sys
from opa_bindings import OpaEngine, OpaError
engine, said = OpaEngine(), []
engine.register_function("said", lambda value: said.append(value) or True, arity=1)
for one in sys.argv[1:]:
    try:
        engine.eval_query(f"said({one})")
    except OpaError:
        pass
print(json.dumps(said))
"""


def test_the_seal_itself_lets_the_engine_reach_nothing(tmp_path: Path) -> None:
    """The same questions get answers outside of it, so that it is the seal which keeps them from one."""
    library = {one.key: one for one in engines_here()}.get("library")
    if library is None:
        pytest.skip("OPA'S LIBRARY IS NOT HERE: run `python install.py --opa`")
    (tmp_path / "page").write_text("here")
    command = [sys.executable, "-m", "http.server", "0", "-b", "127.0.0.1"]
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, env=environment) as served:
        assert served.stdout is not None
        port = served.stdout.readline().split()[5].decode()
        asked = [
            f'http.send({{"method": "get", "url": "http://127.0.0.1:{port}/page"}}).raw_body',
            "opa.runtime().env.PATH", f'net.lookup_ip_addr("{socket.gethostname()}")',
        ]  # fmt: skip
        outside = subprocess.run([sys.executable, "-c", REACHING, *asked], capture_output=True, text=True, check=True)
        (tmp_path / "view").mkdir()
        (tmp_path / "work").mkdir()
        (tmp_path / "reach.py").write_text(REACHING)
        readable = {"/opt/opsassay-rego/reach.py": tmp_path / "reach.py", **library.shown}
        seal = Sandbox(tmp_path / "view", tmp_path / "work", {}, {}, LIMITS, {}, readable=readable)
        end = seal.run([python_path(), "-S", "/opt/opsassay-rego/reach.py", *asked])
        served.terminate()
    assert "here" in json.loads(outside.stdout)
    assert json.loads(end.stdout_tail) == [], end.stderr_tail


@pytest.mark.slow
def test_memory_is_held_where_no_control_group_holds_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a process writes into of its own is bounded, by the kernel, and Go starts under that bound."""
    monkeypatch.setattr("opsassay.solvers.sandbox.groups.groups_for_seals", lambda: None)
    fits, grows = (
        f"package compliance\ncompliant if count(numbers.range(1, {n})) > 0".encode() for n in (999, 99999999)
    )
    assert [one.kind for one in judge_by_rego(fits, [GIVEN]).outcomes] == ["true"]
    assert [one.kind for one in judge_by_rego(grows, [GIVEN]).outcomes] == ["error"]


def test_a_flood_of_prints_says_nothing() -> None:
    forged = 'print("[\\"true\\", \\"\\"]"); print("x]"); some i in numbers.range(1, 50000); print("xxxxxxxxxxxxxxxxxxxxxxxx"); i == 0'
    policy = f"package compliance\ncompliant if {{ {forged} }}".encode()
    assert [one.kind for one in judge_by_rego(policy, [GIVEN, GIVEN]).outcomes] == ["undefined"] * 2
    control = f"package compliance\ncompliant if {{ {forged[: forged.index('some')]} true }}".encode()
    assert [one.kind for one in judge_by_rego(control, [GIVEN, GIVEN]).outcomes] == ["true"] * 2


NAMES = {
    "a letter of another script": "package \u0441ompliance", "a sign without width": "package compliance\u200b",
    "another direction": "package \u202ecompliance",
    "a full-width letter": "package \uff43ompliance", "a package below": "package compliance.sub",
    "a package above": "package data", "a package in quotes": 'package compliance["x y"]', "a capital": "package Compliance",
    "controls": "package \x1b[2Jcompliance", "a NUL": "package compliance\n\0", "no package": "",
    "two packages": "package other\npackage compliance",
}  # fmt: skip


@pytest.mark.sampled(every=4)
@pytest.mark.parametrize("what", NAMES)
def test_a_package_is_the_one_that_is_asked_for(what: str) -> None:
    found = judge_by_rego(f"{NAMES[what]}\ncompliant := true\n".encode(), [GIVEN])
    assert found.problem
    assert found.problem == safe_text(found.problem)
    assert "\n" not in found.problem
    assert [one.kind for one in judge_by_rego(b"package compliance\ncompliant := true\n", [GIVEN]).outcomes] == ["true"]


@pytest.mark.sampled(every=2)
@pytest.mark.parametrize("what", ["the clock", "recursion of rules"])
def test_it_is_said_before_a_collector_is_run(tmp_path: Path, what: str) -> None:
    body = {**UNSTEADY, **BOMBS}[what][0]
    files = {FETCHER: f"touch {tmp_path}/ran".encode(), POLICY: f"package compliance\ncompliant if {body}".encode()}
    found = grade_files(files, TASK, EvidenceCache(tmp_path / "shelf"))
    assert found["artefact"].value == found["passed"].value == 0.0
    assert found["passed"].reason.startswith(f"{POLICY}: ")
    assert not (tmp_path / "shelf").exists()
    assert problem_of_files(TASK, {**files, POLICY: b"package compliance\ncompliant := true"}) is None  # the control
