"""Where other engines of Rego differ from OPA: a page of the docs, which ``python -m`` with this module writes anew."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from functools import cache
from pathlib import Path
from textwrap import wrap

import pytest
from tests.evals.compliance.rego_cases import COUNT, SEED, RegoCase, rego_cases

from opsassay.evals.compliance.rego.engines import engines_here

PAGE = Path(__file__).parents[3] / "docs" / "rego-engines.md"
HERE = {one.key: one for one in engines_here()}
OPA = next((key for key in ("opa", "library") if key in HERE), None)
OTHERS = ("regorus", "rego-cpp")
MISSING = [key for key in OTHERS if key not in HERE] + ([] if OPA else ["OPA"])


ASKING = """
import json, sys
from opsassay.evals.compliance.rego.worker import UNDEFINED, EvaluationError, PolicyError, UnsureError
from opsassay.evals.compliance.rego.worker import own_output, read_policy
output = own_output()
for policy, given in json.load(sys.stdin):
    try:
        engine = read_policy(sys.argv[1], policy, "compliance", "compliant", "v1")
        value = (engine.ask if sys.argv[2] == "sure" else getattr(engine, "own_value", engine.ask))(given)
        said = "undefined" if value is UNDEFINED else json.dumps(value, default=lambda some: sorted(some, key=str))
        print(said, file=output)
    except (PolicyError, EvaluationError):
        print("error", file=output)
    except UnsureError:
        print("unsure", file=output)
"""
"""What asks an engine, in a process of its own: a value as JSON, `undefined`, or `error`, as of what is no policy."""


@cache
def answers(engine: str, mode: str = "any") -> list[str]:
    """Return the answers of *engine* to all cases, `error` of the one at which its process ended or stood still.

    In the *mode* "sure" regorus says `unsure` as it does when it judges.
    """
    cases, found = [(case.policy, case.given) for case in rego_cases()], list[str]()
    while len(found) < len(cases):
        rest = json.dumps(cases[len(found) :])
        with subprocess.Popen(
            [sys.executable, "-c", ASKING, engine, mode], stdin=-1, stdout=-1, stderr=-3, text=True
        ) as asked:
            try:
                said, _ = asked.communicate(rest, timeout=15)
            except subprocess.TimeoutExpired:
                asked.kill()
                said, _ = asked.communicate()
        found += said.splitlines()
        found += ["error"] if len(found) < len(cases) else []
    return found


def table() -> str:
    """Return the page: of each kind of case how many there are, and in how many each engine differs from OPA, with one."""
    cases, by_opa = rego_cases(), answers(OPA)
    rows, same = [], Counter()
    for kind in dict.fromkeys(case.kind for case in cases):
        numbers = [number for number, case in enumerate(cases) if case.kind == kind]
        cells = []
        for engine in OTHERS:
            said = answers(engine)
            differing = [n for n in numbers if not alike(said[n], by_opa[n])]
            same[engine] += len(numbers) - len(differing)
            cells.append(_cell(cases, differing, said, by_opa))
        rows.append(f"| {kind} | {len(numbers)} | {' | '.join(cells)} |")
    versions = " and ".join(HERE[engine].label for engine in OTHERS)
    totals = " and ".join(f"{same[engine]} of {engine}'s" for engine in OTHERS)
    text = (
        f"{versions} against {HERE[OPA].label}, over {COUNT} policies with inputs (seed {SEED}). {totals} answers are "
        "OPA's. `tests/evals/compliance/test_rego_engines.py` makes this page and holds it against the engines. Which "
        "of them judges: [compliance](compliance.md#rego)."
    )
    head = ["| cases | number | regorus differs in | rego-cpp differs in |", "| --- | --- | --- | --- |"]
    return "\n".join(["# Engines of Rego", "", *wrap(text, 128, break_long_words=False), "", *head, *rows, ""])


def alike(one: str, other: str) -> bool:
    """Return whether two answers are one value: lists that were sets have no order, and 1.0 is 1."""
    if one == other or {"error", "undefined"} & {one, other}:
        return one == other
    return json.loads(one) == json.loads(other)


def _cell(cases: list[RegoCase], differing: list[int], said: list[str], by_opa: list[str]) -> str:
    if not differing:
        return "none"
    first = differing[0]
    expression = cases[first].policy.removeprefix("package compliance\n").splitlines()[0].removeprefix("compliant := ")
    shown = [text if len(text) < 40 else f"{text[:36]}…" for text in (expression, said[first], by_opa[first])]
    expression, found, expected = (text.replace("|", "\\|").replace("`", "'") for text in shown)
    return f"{len(differing)}, as `{expression}`: `{found}`, in OPA `{expected}`"


@pytest.mark.slow
@pytest.mark.skipif(
    bool(MISSING), reason=f"NOT COMPARED: {', '.join(MISSING)} is not here; run `python install.py --opa`"
)
def test_the_table_says_where_engines_differ_from_opa():
    assert len(rego_cases()) == COUNT
    assert PAGE.read_text(encoding="utf-8") == table(), (
        "make it anew: python -m tests.evals.compliance.test_rego_engines"
    )


@pytest.mark.skipif(
    len([key for key in ("opa", "library") if key in HERE]) < 2, reason="NOT COMPARED: no `opa` on the PATH"
)
def test_the_program_and_the_library_of_opa_agree():
    differing = [
        (case.policy, case.given, one, other)
        for case, one, other in zip(rego_cases(), answers("opa"), answers("library"), strict=True)
        if not alike(one, other)
    ]
    assert not differing


@pytest.mark.slow
@pytest.mark.skipif(
    bool(MISSING), reason=f"NOT COMPARED: {', '.join(MISSING)} is not here; run `python install.py --opa`"
)
def test_no_task_turns_on_the_engine():
    own = [number for number, case in enumerate(rego_cases()) if case.kind == "The tasks' own policies"]
    for engine in OTHERS:
        assert [answers(engine)[n] for n in own] == [answers(OPA)[n] for n in own]


@pytest.mark.slow
@pytest.mark.skipif(
    bool(MISSING), reason=f"NOT COMPARED: {', '.join(MISSING)} is not here; run `python install.py --opa`"
)
def test_engines_that_agree_without_opa_say_what_it_says():
    one, other, by_opa = answers("regorus", "sure"), answers("rego-cpp"), answers(OPA)
    wrong = [
        (case.policy, case.given, one[n], by_opa[n])
        for n, case in enumerate(rego_cases())
        if one[n] not in {"error", "unsure"} and alike(one[n], other[n]) and not alike(one[n], by_opa[n])
    ]
    assert not wrong


if __name__ == "__main__":
    PAGE.write_text(table(), encoding="utf-8")
