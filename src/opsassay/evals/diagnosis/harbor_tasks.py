"""Incidents as tasks of Harbor: a folder each, run in one ordinary container and graded in another.

The image of the agent holds telemetry alone; truth is in ``tests/``, the image of a separate verifier, so
that an agent can neither read it nor change what grades.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from opsassay.annotation.suites.curate import copy_case, copy_incident
from opsassay.core.errors import OpsAssayError, UserError
from opsassay.core.schema.diagnosis import Diagnosis
from opsassay.evals.diagnosis.oracles import RIGHT, oracle_of
from opsassay.evals.runner.harbor_format import IMAGE, task_toml, write_task
from opsassay.evals.runner.harbor_install import ContainerInstall
from opsassay.scoring.void import void_reason
from opsassay.solvers.agents.limits import Limits
from opsassay.solvers.agents.prompts import harness_prompt
from opsassay.telemetry.content import whole_folder
from opsassay.telemetry.tree import Case, Tree

CASE = "case"
"""Folder of ``tests/`` with the incident and its truth."""
ANSWER = "/logs/artifacts/answer.json"
"""Where the agent leaves its answer: what lies in this folder is carried to the verifier."""

_PLACES = (
    "- The telemetry lies in /incident, a parquet file per table beside incident.json. Python has duckdb and polars.",
    f"- Write the answer to {ANSWER}: one JSON object and nothing else.",
)
_TEST = """\
#!/bin/sh
# Grades the answer: reward.json has the reward (1 is right, 0 is not) and every metric that has a value.
logs=${HARBOR_LOGS:-/logs}
cd "$(dirname "$0")" && mkdir -p "$logs/verifier" &&
exec python3 -m opsassay.evals.diagnosis.harbor_verifying case \\
  "$logs/artifacts/answer.json" "$logs/verifier/reward.json"
"""
_SOLVE = """\
#!/bin/sh
# Hands in the right answer, for Harbor's oracle agent.
mkdir -p /logs/artifacts && cp "$(dirname "$0")/answer.json" /logs/artifacts/answer.json
"""


def write_tasks(
    cases: list[Case], out: Path, install: ContainerInstall, on_left_out: Callable[[str, str], None]
) -> list[Path]:
    """Write a task for each of *cases* below the new folder *out*, all or nothing, and return their folders.

    *install* is how OpsAssay gets into the image of the verifier. *on_left_out* hears of each case that is void or
    whose truth names no cause, with the reason; nothing is written when no other is left. Raises DatapackError when *out*
    exists.
    """
    answers: dict[str, Diagnosis] = {}
    for case in cases:
        try:
            if case.truth is not None and (void := void_reason(case.truth, case.annotation)):
                raise UserError(void)
            answers[case.name] = oracle_of(case, RIGHT).diagnosis
        except OpsAssayError as error:
            on_left_out(case.name, str(error))
    chosen = [case for case in cases if case.name in answers]
    if chosen:
        with whole_folder(out) as partial:
            for case in chosen:
                _write_task(case, answers[case.name], partial / case.datapack.incident.id, install)
    return [out / case.datapack.incident.id for case in chosen]


def _write_task(case: Case, right: Diagnosis, folder: Path, install: ContainerInstall) -> None:
    incident, limits = case.datapack.incident, Limits()
    copy, installs = install.dockerfile_lines()
    copy_incident(case, folder / "environment" / "incident")
    copy_case(case, Tree(folder / "tests" / CASE))
    write_task(
        folder,
        {
            "task.toml": _toml(incident.id, incident.system, limits),
            "instruction.md": harness_prompt(incident, limits, _PLACES),
            "environment/Dockerfile": f"FROM {IMAGE}\nRUN pip install --no-cache-dir duckdb polars\n"
            "COPY incident /incident\nWORKDIR /work\n",
            "tests/Dockerfile": f"FROM {IMAGE}\n{copy}RUN {installs}\nCOPY . /tests\n",
            **install.files("tests/"),
            "tests/test.sh": _TEST,
            "solution/solve.sh": _SOLVE,
            "solution/answer.json": json.dumps(_with_evidence(right), indent=1) + "\n",
        },
    )


def _toml(id_: str, system: str, limits: Limits) -> str:
    described = f"Name the root causes of an incident of {system}, how it spread, and the evidence."
    return task_toml(
        id_,
        {
            "task": {"description": described, "keywords": ["observability", "root cause analysis"]},
            "metadata": {"system": system},
            "agent": {"timeout_sec": limits.seconds},
            "environment": {"build_timeout_sec": 600.0, "cpus": 2, "memory_mb": 4096},
            "verifier": {"timeout_sec": 600.0, "environment_mode": "separate"},
        },
    )


def _with_evidence(right: Diagnosis) -> dict[str, object]:
    """Return the answer with a statement for each claim, as the contract wants it; it shows spans, no more."""
    answer = right.model_dump(mode="json", by_alias=True, include={"root_causes", "propagation"})
    for claim in (*answer["root_causes"], *answer["propagation"]):
        name = str(claim.get("service") or claim["from"]).replace("'", "''")
        sql = f"SELECT count(*) FROM abnormal_traces WHERE service_name = '{name}'"  # noqa: S608 - run by the locked worker
        claim["evidence"] = [{"kind": "trace", "sql": sql, "claim": f"{name} has spans"}]
    return answer
