"""Scenarios as tasks of Harbor: one ordinary container in which the system runs, is broken, and is repaired.

The trial is an ordinary one on the `plain` level (`harbor_trial.py`). Three users share the container: ``opsassay`` runs
the trial, ``agent`` finds the tools in ``open/`` and can read nothing of the trial, root asks for the grades when the
agent is gone.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Iterable
from pathlib import Path

import yaml

from opsassay.core.errors import OpsAssayError, RefusedError
from opsassay.core.schema.faults import NO_FAULT
from opsassay.core.schema.scenario import Oracle, Scenario
from opsassay.evals.remediation.harbor.trial import MACHINERY, OPEN, PRIVATE, READY, SCENARIO, trial_of
from opsassay.evals.runner.harbor import IMAGE, ContainerInstall, task_toml, write_task
from opsassay.telemetry.content import whole_folder
from opsassay.testbed.substrates.local.actuators.table import REPERTOIRES

HOME = "/opt/opsassay"
"""Where the container has what belongs to the trial."""

_INSTRUCTION = """\
{prompt}

## How you work here

- The system runs in this container and is operated by its tools, which the MCP server `opsassay` offers. On a command
  line `{home}/{open}/ops` lists them, and `{home}/{open}/ops NAME KEY=VALUE ...` calls one.
- Your first call, or the start of the MCP server, begins your time: {seconds:g} s. When it is over every call is refused.
- From then on `{home}/{open}/apis.env` has the URLs of Prometheus, Jaeger, Loki, Alertmanager and Tempo over the same
  telemetry, read only.
- What you do is judged by what the system went through, and by how it is after you have ended.
"""
_DOCKERFILE = """\
FROM {image}
{copy}RUN {installs} \\
 && useradd --system opsassay && useradd --create-home agent \\
 && package=$(python3 -c 'import opsassay; print(*opsassay.__path__)') \\
 && chown -R opsassay "$package" && chmod -R go= "$package"
COPY . {home}
RUN chown -R opsassay {home} && chmod -R go= {home}/{private} && chmod 666 {home}/{open}/arrived
WORKDIR /home/agent
ENTRYPOINT ["{home}/entry.sh"]
"""
_ENTRY = """\
#!/bin/sh
# Starts the trial as the user whose folder `private` is, beside whatever the container is to run.
as= folder=$(cd "$(dirname "$0")" && pwd) && owner=$(stat -c %u "$folder/private") || exit
set -- "$folder" "$@"
if [ "$owner" != "$(id -u)" ]; then as="setpriv --reuid=$owner --regid=$owner --clear-groups"; fi
HOME="$folder/private" OPSASSAY_STATE="$folder/private/state" XDG_CACHE_HOME="$folder/private/cache" \\
  $as python3 -m opsassay.evals.remediation.harbor.trial perform "$1" > "$folder/private/trial.log" 2>&1 < /dev/null &
shift
exec "$@"
"""
_OPEN_TOOLS = """\
#!/bin/sh
# What the trial runs as its agent: opens the tools to whoever works here, until that is over. Arguments: SOCKET OPEN OVER
chmod 711 "$(dirname "$1")" && chmod 666 "$1" && env | grep _URL= > "$2/apis.env" && ln -sfn "$1" "$2/tools.sock"
until [ -e "$3" ]; do sleep 0.2; done
"""
_ARRIVE = """\
# Says that the agent is here, and waits until its tools are open.
here=$(dirname "$(readlink -f "$0")")
echo here >> "$here/arrived"
until [ -L "$here/tools.sock" ]; do sleep 0.1; done
"""
_OPS = "#!/bin/sh\n" + _ARRIVE + 'exec python3 "$here/opsassay_tool.py" "$@"\n'
_MCP = "#!/bin/sh\n" + _ARRIVE + 'exec python3 "$here/opsassay_mcp.py" "$here/tools.sock"\n'
_TEST = f"""\
#!/bin/sh
# Says that the agent has ended, waits for the end of the trial, and hands on its grades. test.sh [FOLDER [LOGS]]
folder=${{1:-{HOME}}} logs=${{2:-/logs}}
mkdir -p "$logs/verifier" &&
exec python3 -m opsassay.evals.remediation.harbor.trial collect "$folder" "$logs/verifier/reward.json"
"""


def write_scenario_tasks(
    scenarios: Iterable[Scenario], out: Path, install: ContainerInstall, on_left_out: Callable[[str, str], None]
) -> list[Path]:
    """Write a task for each of *scenarios* below the new folder *out*, all or nothing, and return their folders.

    *install* is how OpsAssay gets into the container. *on_left_out* hears of each scenario that cannot happen on the plain
    level of one container, with the reason. Raises DatapackError when *out* exists.
    """
    chosen = []
    for scenario in scenarios:
        try:
            _require_plain(scenario)
            chosen.append(scenario)
        except OpsAssayError as error:
            on_left_out(scenario.id, str(error))
    if chosen:
        with whole_folder(out) as partial:
            for scenario in chosen:
                write_task(partial / scenario.id, _files(scenario, install))
    return [out / scenario.id for scenario in chosen]


def _require_plain(scenario: Scenario) -> None:
    if (substrate := scenario.environment.substrate) != "local":
        raise RefusedError(f"it needs {substrate}; a task of Harbor is one container.")
    if scenario.environment.system.endswith((".yaml", ".yml")):
        raise RefusedError(f"its system is the file {scenario.environment.system}, which no image has.")
    for fault in (part.fault for plan in scenario.trigger.faults for part in plan.parts):
        if fault != NO_FAULT and (refusal := REPERTOIRES["plain"].refusal(fault)) is not None:
            raise RefusedError(f"{fault}: {refusal}")


def _files(scenario: Scenario, install: ContainerInstall) -> dict[str, str | bytes]:
    environment = scenario.environment
    copy, installs = install.dockerfile_lines(f"{PRIVATE}/")  # what the wheel holds is not for the agent
    places = {"home": HOME, "open": OPEN, "private": PRIVATE}
    kept = scenario.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    oracle = next(one for one in scenario.oracles.values() if one.certified)
    return {
        "task.toml": _toml(scenario),
        "instruction.md": _INSTRUCTION.format(prompt=scenario.prompt(), seconds=environment.agent_timeout_s, **places),
        "environment/Dockerfile": _DOCKERFILE.format(image=IMAGE, copy=copy, installs=installs, **places),
        "environment/entry.sh": _ENTRY,
        f"environment/{OPEN}/ops": _OPS,
        f"environment/{OPEN}/mcp": _MCP,
        f"environment/{OPEN}/arrived": "",
        f"environment/{PRIVATE}/open_tools.sh": _OPEN_TOOLS,
        f"environment/{PRIVATE}/{SCENARIO}": yaml.safe_dump(kept, sort_keys=False, allow_unicode=True),
        **install.files(f"environment/{PRIVATE}/"),
        "tests/test.sh": _TEST,
        "solution/solve.sh": _solution(oracle),
    }


def _toml(scenario: Scenario) -> str:
    trial = trial_of(scenario, Path(HOME))
    return task_toml(
        scenario.id,
        {
            "task": {"description": scenario.desired_outcome, "keywords": ["sre", "incident response"]},
            "metadata": {"system": scenario.environment.system, "scenario": scenario.digest()},
            "agent": {"timeout_sec": scenario.environment.agent_timeout_s + MACHINERY.arrival_s, "user": "agent"},
            "environment": {"build_timeout_sec": 1200.0, "cpus": 2, "memory_mb": 4096},
            "environment.healthcheck": {
                "command": f"test -e {HOME}/{OPEN}/{READY}",
                "start_period_sec": MACHINERY.start_s,
                "start_interval_sec": 2.0,
            },
            "[environment.mcp_servers]": {"name": "opsassay", "transport": "stdio", "command": f"{HOME}/{OPEN}/mcp"},
            "verifier": {"timeout_sec": MACHINERY.end_s + trial.granted_s, "user": "root"},
        },
    )


def _solution(oracle: Oracle) -> str:
    """Return the script that does what *oracle* does, by the tools; for Harbor's oracle agent."""
    lines = ["#!/bin/sh", "# What is expected to be certified. solve.sh [FOLDER]", f"ops=${{1:-{HOME}}}/{OPEN}/ops"]
    for step in oracle.steps:
        if step.verb is not None:
            words = [
                step.verb.replace(" ", "_"),
                *(f"{key}={json.dumps(value)}" for key, value in step.arguments.items()),
            ]
            lines.append(f'"$ops" {shlex.join(words)} || exit')
        if step.wait_s:
            lines.append(f"sleep {step.wait_s:g}")
    return "\n".join(lines) + "\n"
