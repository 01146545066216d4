"""What judges in the seal: one policy over many inputs, an outcome a line. Runs with regorus alone.

::

    python worker.py POLICY FOLDER      reads FOLDER/*.json in the order of their names, prints JSON lines
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

PACKAGE, RULE = "compliance", "compliant"
QUERY = f"data.{PACKAGE}.{RULE}"


def problem_of(policy: str) -> str | None:
    """Return what is wrong with *policy* before it is asked anything, None when nothing is."""
    import regorus

    engine = regorus.Engine()
    try:
        engine.add_policy("policy.rego", policy)
    except RuntimeError as error:
        return _first_line(error)
    packages = engine.get_packages()
    return None if f"data.{PACKAGE}" in packages else f"its package is {packages[0][5:]}, not {PACKAGE}"


def outcome_of(policy: str, given: str) -> tuple[str, str]:
    """Return the outcome of QUERY under *policy*, with the JSON text *given* as its input, and why, if it is an error."""
    import regorus

    engine = regorus.Engine()
    try:
        engine.add_policy("policy.rego", policy)
        engine.set_input_json(given)
        found = engine.eval_query(QUERY)["result"]
    except RuntimeError as error:
        return "error", _first_line(error)
    if not found:
        return "undefined", ""
    value = found[0]["expressions"][0]["value"]
    if isinstance(value, bool):
        return str(value).lower(), ""
    return "error", f"{QUERY} is no boolean but {json.dumps(value, default=str)[:80]}"


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
    print(json.dumps(["checked", problem_of(policy) or ""]), flush=True)
    for path in sorted(Path(sys.argv[2]).glob("*.json")):
        print(json.dumps(outcome_of(policy, path.read_text(encoding="utf-8"))), flush=True)


if __name__ == "__main__":
    main()
