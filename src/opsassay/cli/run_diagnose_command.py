"""opsassay run diagnose."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from opsassay.cli.completion import AGENT, METHOD
from opsassay.cli.output import FOLDER, NumberRange, cases_apart, echo, json_option, print_json, print_table, say

if TYPE_CHECKING:
    from opsassay.core.schema.diagnosis import Diagnosis
    from opsassay.evals.runner.run import RunEnd
    from opsassay.telemetry.tree import Case


@click.command("diagnose")
@click.argument("path", type=click.Path(path_type=Path))
@click.option(
    "-m",
    "--method",
    "methods",
    type=METHOD,
    multiple=True,
    help="NAME, FILE.py:CLASS, MODULE:CLASS or command:WORDS, with :PARAMETER=VALUE; all when left out.",
)
@click.option(
    "-a", "--agent", "agents", type=AGENT, multiple=True,
    help="Agent to run instead, by name or agent.yaml; repeat for more.",
)  # fmt: skip
@click.option("--model", help="Of an agent: scripted:FILE, replayed:SESSION, or a model of OPENAI_BASE_URL.")
@click.option("-o", "--output", type=FOLDER, help="Folder of the run store; PATH itself when left out.")
@click.option(
    "--timeout", "timeout_s", type=NumberRange(min=1), help="Limit per run, s; 120 for methods, an agent's own."
)
@click.option("--sweep", "sweeps", multiple=True, help="Parameters to try: alert-count.z=2.5,3,3.5, or a YAML file.")
@click.option(
    "-c",
    "--change",
    "changes",
    multiple=True,
    metavar="KEY=VALUE",
    help="A setting, as in mask.drop=logs, or a parameter, as in alert-count.z=2.5.",
)
@json_option
@click.pass_context
def command(
    context: click.Context, path: Path, methods: tuple[str, ...], agents: tuple[str, ...], model: str | None,
    output: Path | None, timeout_s: float | None, sweeps: tuple[str, ...], changes: tuple[str, ...], *, as_json: bool,
) -> None:  # fmt: skip
    """Run methods, or agents, on the incidents at PATH; each sees telemetry and nothing else, in a process of its own.

    --sweep runs a method once for each of several values of a parameter; --change sets a parameter or a run setting.
    """
    import os

    from opsassay.evals.diagnosis.plan import estimate, plan, require_apart_from
    from opsassay.evals.diagnosis.setups.agents import Setup, read_settings
    from opsassay.evals.diagnosis.setups.sweeps import asked_method, methods_of, solvers_named, with_changes
    from opsassay.evals.diagnosis.tasks import open_suite
    from opsassay.evals.runner.queue import make_runs
    from opsassay.evals.runner.store import RunStore
    from opsassay.solvers.methods.base import METHODS

    limit = [] if timeout_s is None and agents else [f"limits.seconds={timeout_s or 120.0}"]
    chosen = methods or (() if agents else tuple(METHODS.names()))
    asked, others = with_changes([asked_method(text) for text in chosen], changes, sweeps)
    settings = read_settings([*limit, *others])
    solvers = [*methods_of(asked), *solvers_named(agents, model, settings, [])]
    store = RunStore(output or path)
    problems: list[str] = []
    opened = open_suite(path, lambda _, error: problems.append(str(error)))
    for problem in problems:
        say(f"opsassay: left out: {problem}")
    work = plan(opened, solvers, 1, settings)
    require_apart_from(store, work)
    if any(isinstance(solver, Setup) and solver.paid for solver in solvers):
        say(f"opsassay: {estimate(store, work, settings.price, repeat=settings.again).sentence()}.")
    items = []
    for made in make_runs(store, work, 1 if agents else os.cpu_count() or 1):
        item = _diagnosis_as_json(made)
        say(f"opsassay: {item['case']}: {item['method']}: {item['answer']}")
        items.append(item)
    if as_json:
        print_json("run diagnose", items, problems=problems)
    else:
        rows = [
            (i["case"], i["method"], i["answer"], _yes_or_no(i["correct"]), f"{i['seconds']:.2f}", i["run"])
            for i in items
        ]
        print_table("Diagnoses", ("incident", "method", "answer", "correct", "seconds", "run"), rows)
        echo(f"Next: `opsassay score run {store.root}{cases_apart(path, output)}`.")
    context.exit(1 if problems or any(item["status"] != "done" for item in items) else 0)


def _diagnosis_as_json(end: RunEnd) -> dict[str, Any]:
    """Return the diagnosis of one run as an item of JSON; also for a job that was not run."""
    from opsassay.evals.runner.store import read_diagnosis

    case, run = end.job.case, end.run
    if run is None or end.run_dir is None:
        return {
            "case": case.name, "system": case.datapack.incident.system, "method": end.job.solver_name, "ranking": [],
            "answer": f"not run: {end.error}", "correct": None, "status": "not run", "seconds": 0.0, "run": None,
        }  # fmt: skip
    diagnosis = read_diagnosis(end.run_dir)
    claims = [claim.service for claim in diagnosis.root_causes] if diagnosis else []
    answer = ", ".join(claims) or "nothing is wrong"
    return {
        "case": case.name,
        "system": run.system,
        "method": run.solver.label,
        "ranking": [row.model_dump() for row in diagnosis.ranking] if diagnosis else [],
        "answer": answer if diagnosis else f"{run.status.value}: {run.error}",
        "correct": _is_correct(case, diagnosis) if diagnosis else None,
        "status": run.status.value,
        "seconds": round(((run.ended_ns or run.started_ns) - run.started_ns) / 1e9, 3),
        "run": str(end.run_dir),
    }


def _is_correct(case: Case, diagnosis: Diagnosis) -> bool | None:
    """Return whether *diagnosis* names a true root service, or none where nothing was broken.

    None where the truth is unknown, and on a case that cannot be graded (void).
    """
    from opsassay.scoring.outcome import any_service_hit, true_roots
    from opsassay.scoring.profiles import PROFILES
    from opsassay.scoring.void import void_reason

    truth = case.truth
    if truth is None or truth.broken is None or void_reason(truth, case.annotation):
        return None
    if not truth.broken:
        return not diagnosis.root_causes
    profile = PROFILES["default"]
    return any_service_hit(diagnosis.root_causes, true_roots(truth, profile), profile)


def _yes_or_no(value: bool | None) -> str | None:
    """Return "yes" or "no" for *value*, None for None."""
    return None if value is None else "yes" if value else "no"
