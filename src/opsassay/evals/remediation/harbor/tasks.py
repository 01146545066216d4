"""Scenarios as tasks of Harbor: one unprivileged container in which the system runs, is broken, and is repaired.

The trial runs at the isolation level `plain`. Three users share the container: ``opsassay`` runs the trial, ``agent``
has the tools in ``open/`` and cannot read the trial, root collects the rewards after the agent's end.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Iterable
from importlib.resources import files
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
"""The folder of the trial's files in the container."""


def _read_template(name: str) -> str:
    """Return the text of the packaged file *name* for containers; its placeholders are not filled in."""
    return files(__package__).joinpath("container", name).read_text(encoding="utf-8")


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
    """Write a Harbor task per scenario below the new folder *out*, all or nothing; return the task folders.

    *install* is how OpsAssay gets into the container. *on_left_out* is called with the id and reason of each scenario
    that one container without privileges cannot run. Raises DatapackError when *out* exists.
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
                write_task(partial / scenario.id, _list_files(scenario, install))
    return [out / scenario.id for scenario in chosen]


def _require_plain(scenario: Scenario) -> None:
    """Raise RefusedError with the reason if one unprivileged container cannot run *scenario*."""
    if (substrate := scenario.environment.substrate) != "local":
        raise RefusedError(f"it needs {substrate}; a task of Harbor is one container.")
    if scenario.environment.system.endswith((".yaml", ".yml")):
        raise RefusedError(f"its system is the file {scenario.environment.system}, which no image has.")
    for fault in (part.fault for plan in scenario.trigger.faults for part in plan.parts):
        if fault != NO_FAULT and (refusal := REPERTOIRES["plain"].refusal(fault)) is not None:
            raise RefusedError(f"{fault}: {refusal}")


def _list_files(scenario: Scenario, install: ContainerInstall) -> dict[str, str | bytes]:
    """Return the files of the scenario's Harbor task by path; *install* is how OpsAssay gets into its image."""
    environment = scenario.environment
    copy, installs = install.dockerfile_lines(f"{PRIVATE}/")  # what the wheel holds is not for the agent
    places = {"home": HOME, "open": OPEN, "private": PRIVATE}
    kept = scenario.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    oracle = next(one for one in scenario.oracles.values() if one.certified)
    arrive = _read_template("arrive.sh")
    return {
        "task.toml": _format_task_toml(scenario),
        "instruction.md": _read_template("instruction.md").format(
            prompt=scenario.prompt(), seconds=environment.agent_timeout_s, **places
        ),
        "environment/Dockerfile": _read_template("Dockerfile").format(
            image=IMAGE, copy=copy, installs=installs, **places
        ),
        "environment/entry.sh": _read_template("entry.sh"),
        f"environment/{OPEN}/ops": f'#!/bin/sh\n{arrive}exec python3 "$here/opsassay_tool.py" "$@"\n',
        f"environment/{OPEN}/mcp": f'#!/bin/sh\n{arrive}exec python3 "$here/opsassay_mcp.py" "$here/tools.sock"\n',
        f"environment/{OPEN}/arrived": "",
        f"environment/{PRIVATE}/open_tools.sh": _read_template("open_tools.sh"),
        f"environment/{PRIVATE}/{SCENARIO}": yaml.safe_dump(kept, sort_keys=False, allow_unicode=True),
        **install.files(f"environment/{PRIVATE}/"),
        "tests/test.sh": _TEST,
        "solution/solve.sh": _solution_script(oracle),
    }


def _format_task_toml(scenario: Scenario) -> str:
    """Return the text of the Harbor task's task.toml."""
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


def _solution_script(oracle: Oracle) -> str:
    """Return a shell script with the tool calls and waits of *oracle*, for Harbor's oracle agent."""
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
