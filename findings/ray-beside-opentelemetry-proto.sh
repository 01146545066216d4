#!/usr/bin/env bash
# Package: ray, opentelemetry-proto, opentelemetry-api
# Version: 2.60.0, 1.45.2, 1.45.2
# Date: 2026-11-30
# Happens: `ray.init()` works in an environment with ray alone. Once opentelemetry-proto is installed there too, which ray does
#   not use, no node starts: after half a minute `ray.init()` raises an Exception that speaks of an overloaded machine. With
#   opentelemetry-api as a third package it works again.
# Guessed: That a package of message classes changes nothing, and that a missing optional package is missing in the same way
#   whatever else is installed. Both packages share the namespace `opentelemetry`: with the messages alone,
#   `from opentelemetry import metrics` is an ImportError and no ModuleNotFoundError, which is all that ray's agent allows for.
# Matters: Programs that read or write OTLP by its messages alone lose ray, and the error names the load of the machine.
set -euo pipefail

dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
trap 'exit 130' INT TERM
python3 -m venv "$dir/venv"
install() { timeout 500 "$dir/venv/bin/python" -m pip install -qq --disable-pip-version-check "$@"; }

cat >"$dir/see.py" <<'PY'
import logging
import sys

import ray


def main() -> str:
    try:
        ray.init(num_cpus=1, include_dashboard=False, log_to_driver=False, logging_level=logging.CRITICAL, _temp_dir=sys.argv[1])
    except Exception as error:
        return f"{type(error).__name__}: {str(error)[:60]}"
    try:
        return f"ray answers {ray.get(ray.remote(lambda: 6 * 7).remote())}"
    finally:
        ray.shutdown()


print(main())
PY
look() { RAY_raylet_start_wait_time_s=60 timeout 300 "$dir/venv/bin/python" "$dir/see.py" "$dir/ray" 2>/dev/null | tail -n 1; }

install ray==2.60.0
alone=$(look)
install opentelemetry-proto==1.45.2
messages=$(look)
install opentelemetry-api==1.45.2
api=$(look)
echo "ray alone:                   $alone"
echo "and opentelemetry-proto:     $messages"
echo "and opentelemetry-api:       $api"
[ "$alone" = "ray answers 42" ]
[[ "$messages" == "Exception: The current node timed out during startup"* ]]
[ "$api" = "ray answers 42" ]
