"""What judges in the seal: one policy over many inputs, an outcome a line. Runs with regorus alone.

::

    python worker.py POLICY FOLDER PACKAGE RULE SYNTAX      reads FOLDER/*.json in the order of their names, prints JSON
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

PACKAGE, RULE = "compliance", "compliant"
UNSTEADY = ("time.now_ns", "rand.intn", "uuid.rfc4122")
"""Functions whose value does not follow from the input: the same evidence has to be judged the same whenever it is."""


def _engine(syntax: str) -> Any:
    import regorus

    engine = regorus.Engine()
    engine.set_rego_v0(syntax == "v0")
    return engine


def problem_of(policy: str, package: str = PACKAGE, syntax: str = "v1") -> str | None:
    """Return what is wrong with *policy* before it is asked anything, None when nothing is."""
    engine = _engine(syntax)
    try:
        engine.add_policy("policy.rego", policy)
    except RuntimeError as error:
        return _first_line(error)
    packages = engine.get_packages()
    if f"data.{package}" not in packages:
        return f"its package is {packages[0][5:]}, not {package}"
    called = next((name for name in _calls(json.loads(engine.get_ast_as_json())) if name in UNSTEADY), None)
    return f"it calls {called}, so that what it says does not follow from the evidence" if called else None


def _calls(tree: Any) -> Iterator[str]:
    """Yield the names of the functions that are called in the syntax *tree* of a policy."""
    todo = [tree]
    while todo:
        one = todo.pop()
        if isinstance(one, dict):
            if "Call" in one:
                yield _name_of(one["Call"]["fcn"])
            todo += one.values()
        elif isinstance(one, list):
            todo += one


def _name_of(function: Any) -> str:
    parts: list[str] = []
    while "Var" not in function:
        ((kind, ref),) = function.items()
        if kind == "RefDot":
            parts.append(ref["field"][1])
        elif kind == "RefBrack" and "String" in ref["index"]:
            parts.append(ref["index"]["String"]["value"])
        else:
            return ""
        function = ref["refr"]
    return ".".join([function["Var"]["value"], *reversed(parts)])


def outcome_of(policy: str, given: str, query: str, syntax: str = "v1") -> tuple[str, str]:
    """Return the outcome of *query* under *policy*, with the JSON text *given* as its input, and why, if it is an error."""
    engine = _engine(syntax)
    try:
        engine.add_policy("policy.rego", policy)
        engine.set_input_json(given)
        found = engine.eval_query(query)["result"]
    except RuntimeError as error:
        return "error", _first_line(error)
    if not found:
        return "undefined", ""
    value = found[0]["expressions"][0]["value"]
    if isinstance(value, bool):
        return str(value).lower(), ""
    return "error", f"{query} is no boolean but {json.dumps(value, default=str)[:80]}"


def _first_line(error: RuntimeError) -> str:
    """Return what the engine says is wrong, without the picture of the line and its own stack."""
    lines = str(error).split("Stack backtrace")[0].strip().splitlines()
    said = next((line for line in lines if line.startswith("error:")), lines[-1] if lines else "no reason was given")
    where = next((line.strip("-> ") for line in lines if line.strip().startswith("-->")), "")
    return " ".join(f"{said.removeprefix('error: ')} ({where})".split() if where else said.split())[:300]


def main() -> None:
    """Judge, a line at once, so that those before an end from outside count."""
    sys.setrecursionlimit(10_000)
    policy = Path(sys.argv[1]).read_text(encoding="utf-8")
    package, rule, syntax = sys.argv[3:]
    print(json.dumps(["checked", problem_of(policy, package, syntax) or ""]), flush=True)
    for path in sorted(Path(sys.argv[2]).glob("*.json")):
        found = outcome_of(policy, path.read_text(encoding="utf-8"), f"data.{package}.{rule}", syntax)
        print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
