#!/usr/bin/env bash
# Package: regopy
# Version: 1.5.2
# Date: 2026-11-30
# Happens: `time.parse_rfc3339_ns` of rego-cpp has no value for "2026-03-03T00:00:00Z", the form that Kubernetes and
#   OPA itself write. The same instant as "2026-03-03T00:00:00+00:00" has its value, a fraction of a second too. No
#   error is raised: the rule is undefined, and what negates it holds. regorus (gordon-to-regorus 0.13.0) reads all.
# Guessed: Z is the first way in RFC 3339 to write UTC, so a function named after it reads Z before it reads offsets.
# Matters: "deny if the certificate has expired" denies nobody, for every certificate of every cluster, and looks like
#   a policy that found nothing. Replace a final Z by +00:00 before the call.
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

FORMS = ("2026-03-03T00:00:00+00:00", "2026-03-03T00:00:00Z", "2026-03-03T00:00:00.5+00:00")
found = {}
for text in FORMS:
    policy = f'package p\nimport rego.v1\nat := time.parse_rfc3339_ns("{text}")\nallowed if not expired\nexpired if at < 1e20\n'
    engine = regorus.Engine()
    engine.add_policy("p.rego", policy)
    other = engine.eval_query("data.p")["result"][0]["expressions"][0]["value"]
    interpreter = regopy.Interpreter()
    interpreter.add_module("p.rego", policy)
    ours = json.loads(str(interpreter.query("data.p")))["expressions"][0]
    found[text] = ours.get("at"), ours.get("allowed", False), other.get("at")
    print(f"{text:28} rego-cpp {ours.get('at')}, allowed: {ours.get('allowed', False)}; regorus {other.get('at')}")
plain, zulu, fraction = found.values()
assert plain == (1772496000000000000, False, 1772496000000000000)
assert zulu == (None, True, 1772496000000000000)
assert fraction == (1772496000500000000, False, 1772496000500000000)
PY
"$dir/venv/bin/python" "$dir/see.py"
