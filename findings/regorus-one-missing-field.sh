#!/usr/bin/env bash
# Package: gordon-to-regorus
# Version: 0.13.0
# Date: 2026-11-28
# Happens: A Rego rule `names contains s.team if { some s in input.services }` gives an empty set when any one service has
#   no team, also for the services that have one. With the service without a team first it raises "not an object"
#   instead. Written as a comprehension, or with `team := s.team` in the body, the same engine gives {"red"}. rego-cpp
#   (regopy 1.5.2) gives ["red"] for all three, in both orders.
# Guessed: A reference that leads nowhere is undefined and costs its own element alone, wherever it stands, as the
#   comprehension shows; and the order of the input does not matter to a set.
# Matters: Rules that collect names or messages are written in just this form. One incomplete record hides what the rule
#   finds in all the others, and an empty set looks like a result. Bind every field in the body, and try rules with an
#   incomplete record at each end of the input.
set -euo pipefail

dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
trap 'exit 130' INT TERM
python3 -m venv "$dir/venv"
timeout 300 "$dir/venv/bin/python" -m pip install -qq --disable-pip-version-check gordon-to-regorus==0.13.0 regopy==1.5.2

cat >"$dir/see.py" <<'PY'
import json

import regopy
import regorus

POLICY = """
package p
import rego.v1
head contains s.team if { some s in input.services }
message contains sprintf("team %s", [s.team]) if { some s in input.services }
body contains team if { some s in input.services; team := s.team }
comprehension := {s.team | some s in input.services}
"""
FULL, BARE = {"name": "a", "team": "red"}, {"name": "b"}


def by_regorus(rule, services):
    engine = regorus.Engine()
    engine.add_policy("p.rego", POLICY)
    engine.set_input_json(json.dumps({"services": services}))
    try:
        return sorted(engine.eval_rule(f"data.p.{rule}"))
    except RuntimeError as error:
        return f"error: {str(error).splitlines()[0]}"


def by_rego_cpp(rule, services):
    engine = regopy.Interpreter()
    engine.set_input_term(json.dumps({"services": services}))
    engine.add_module("p.rego", POLICY)
    return json.loads(str(engine.query(f"data.p.{rule}")))["expressions"][0]


expected = {
    "complete alone": ([FULL], ["red"], ["team red"]),
    "complete first": ([FULL, BARE], [], []),
    "incomplete first": ([BARE, FULL], "error: not an object", "error: not an object"),
}
for case, (services, head, message) in expected.items():
    for rule, first in {"head": head, "message": message, "body": ["red"], "comprehension": ["red"]}.items():
        one, other = by_regorus(rule, services), by_rego_cpp(rule, services)
        print(f"{case:17} {rule:14} regorus {one!s:22} rego-cpp {other}")
        assert one == first, "regorus answers otherwise now"
        assert other == (["team red"] if rule == "message" else ["red"]), "rego-cpp answers otherwise now"
PY
timeout 60 "$dir/venv/bin/python" "$dir/see.py"
echo "As described."
