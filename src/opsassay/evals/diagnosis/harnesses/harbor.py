"""Incidents as tasks of Harbor, and the verifier of such a task.

``tests/test.sh`` of a task runs ``python -m opsassay.evals.diagnosis.harnesses.harbor CASE ANSWER REWARD``.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

from opsassay.annotation.suites.curate import copy_case, copy_incident
from opsassay.core.errors import OpsAssayError, UserError
from opsassay.core.schema.diagnosis import Diagnosis
from opsassay.core.schema.run import Solver
from opsassay.core.untrusted import is_plain, read_plain
from opsassay.evals.diagnosis.harnesses.submissions import grade_given
from opsassay.evals.diagnosis.results.repeats import success
from opsassay.evals.diagnosis.tasks import RIGHT, oracle_of
from opsassay.evals.runner.harbor import IMAGE, ContainerInstall, rewards_of, task_toml, write_rewards, write_task
from opsassay.evals.runner.run import MAX_ANSWER_BYTES
from opsassay.scoring.void import void_reason
from opsassay.solvers.agents.limits import Limits
from opsassay.solvers.agents.prompts import harness_prompt
from opsassay.telemetry.content import whole_folder
from opsassay.telemetry.tree import Case, Tree, resolve


def verify(folder: Path, answer: Path, reward: Path) -> dict[str, float]:
    """Grade the file *answer* on the only incident of *folder*; write the rewards to *reward* and return them by name.

    A missing or broken answer is worth 0; a broken task is an error and writes nothing. Raises UserError,
    DatapackError.
    """
    cases = resolve(folder)
    if len(cases) != 1 or cases[0].truth is None:
        raise UserError(
            f"{folder} is not one incident with its truth; write the task again with `opsassay incident export harbor`."
        )
    text = read_plain(answer, MAX_ANSWER_BYTES) if is_plain(answer) else b""
    if void := void_reason(cases[0].truth, cases[0].annotation):
        raise UserError(f"{folder}: {void}; take another incident.")
    verdict, _ = grade_given(cases[0], text, Solver(name="harbor", kind="agent"))
    rewards = rewards_of(verdict.metrics, success=bool(success(verdict.metrics)))
    write_rewards(reward, rewards)
    for name, metric in verdict.metrics.items():
        print(f"{name}: {metric.reason if metric.value is None else f'{metric.value:g}'}")
    return rewards


def main() -> int:
    """Run `verify` on the three command-line arguments; return 0, or 2 after printing an error as one sentence."""
    try:
        verify(*map(Path, sys.argv[1:4]))
    except OpsAssayError as error:
        print(f"Error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())


CASE = "case"
"""The folder below ``tests/`` with the incident and its truth."""
ANSWER = "/logs/artifacts/answer.json"
"""Where the agent writes its answer: Harbor copies this folder to the verifier."""

_PLACES = (
    "- The telemetry lies in /incident, a parquet file per table beside incident.json. Python has duckdb and polars.",
    f"- Write the answer to {ANSWER}: one JSON object and nothing else.",
)
_TEST = """\
#!/bin/sh
# Grades the answer: reward.json has the reward (1 is right, 0 is not) and every metric that has a value.
logs=${HARBOR_LOGS:-/logs}
cd "$(dirname "$0")" && mkdir -p "$logs/verifier" &&
exec python3 -m opsassay.evals.diagnosis.harnesses.harbor case \\
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
    """Write a Harbor task for each of *cases* below the new folder *out*, all or nothing; return the task folders.

    *install* says how the verifier's image gets OpsAssay. *on_left_out* is called with the name and reason of each case
    that is void or whose truth names no cause. Raises UserError when no case is left, DatapackError when *out* exists.
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
    """Write the Harbor task of *case* into *folder*; *right*: its right answer, *install*: OpsAssay for the verifier."""
    incident, limits = case.datapack.incident, Limits()
    copy, installs = install.dockerfile_lines()
    copy_incident(case, folder / "environment" / "incident")
    copy_case(case, Tree(folder / "tests" / CASE))
    write_task(
        folder,
        {
            "task.toml": _format_task_toml(incident.id, incident.system, limits),
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


def _format_task_toml(id_: str, system: str, limits: Limits) -> str:
    """Return Harbor's task.toml for the task *id_*, an incident of *system*; *limits* gives the agent's timeout."""
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


def _with_evidence(diagnosis: Diagnosis) -> dict[str, object]:
    """Return *diagnosis* as a submitted answer, with a placeholder SQL statement as evidence for each claim."""
    answer = diagnosis.model_dump(mode="json", by_alias=True, include={"root_causes", "propagation"})
    for claim in (*answer["root_causes"], *answer["propagation"]):
        name = str(claim.get("service") or claim["from"]).replace("'", "''")
        sql = f"SELECT count(*) FROM abnormal_traces WHERE service_name = '{name}'"  # noqa: S608 - run by the locked worker
        claim["evidence"] = [{"kind": "trace", "sql": sql, "claim": f"{name} has spans"}]
    return answer
