"""opsassay run trials."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from opsassay.cli.output import FOLDER, json_option, otlp_option, print_json, print_table, print_tables, runs_sent, say
from opsassay.core.text import plural

if TYPE_CHECKING:
    from opsassay.evals.runner.tables import ResultTable


NUMBERS = ["9", "10", "11", "13"]
"""The numbers of tables of trials in *Side Effects Are the Output*."""


@click.command("trials")
@click.argument("plan", type=click.Path(dir_okay=False, path_type=Path))
@click.option("-o", "--output", required=True, type=FOLDER, help="Store of runs.")
@click.option("-j", "--jobs", type=click.IntRange(min=1), default=1, show_default=True, help="Trials side by side.")
@click.option("--dry-run", is_flag=True, help="List the trials and what is done; run nothing.")
@click.option(
    "--table", "numbers", multiple=True, type=click.Choice(NUMBERS), help="Then print this table of the store."
)
@otlp_option
@json_option
@click.pass_context
def command(
    context: click.Context,
    plan: Path,
    output: Path,
    jobs: int,
    numbers: tuple[str, ...],
    otlp: str | None,
    *,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Run every trial of PLAN without a result: agents x scenarios x prompt arms x probe arms x repeats.

    A probe arm is with or without probe requests. --table NUMBER then prints that table of the paper; --dry-run only
    lists the trials. Exits with 1 when a trial ends without a result.
    """
    from opsassay.core.schema.progress import ProgressLines
    from opsassay.evals.remediation.plan import load_trial_plan, require_sound
    from opsassay.evals.remediation.solve import run_trials
    from opsassay.evals.runner.store import RunStore

    _, trials = load_trial_plan(plan)
    require_sound(trials)
    store = RunStore(output)
    say(
        f"opsassay: {_estimate([one.granted_s for one in trials if not store.finished(one.cell.hash)], len(trials), jobs)}."
    )
    if not dry_run:
        with runs_sent(store, otlp) as events:
            run_trials(store, trials, jobs, progress=ProgressLines(say))
        events()
    items: list[dict[str, Any]] = []
    for trial in trials:
        folder = store.finished(trial.cell.hash)
        items.append(
            {
                "scenario": trial.scenario.id,
                "agent": trial.agent.name,
                "arm": trial.cell.arm.without("probes").label,
                "probes": trial.probes,
                "noise": trial.noise,
                "seed": trial.seed,
                "attempts": len(store.attempts_of(trial.cell.hash)),
                "run": str(folder) if folder else None,
                "metrics": _read_metrics(folder) if folder else {},
            }
        )
    tables = [] if dry_run else _result_tables(output, numbers)
    if as_json:
        print_json("run trials", items, tables=[one.as_item() for one in tables])
    else:
        columns = (
            "scenario",
            "agent",
            "arm",
            "probes",
            "noise",
            "seed",
            "outcome",
            "V_temporal",
            "V_depth",
            "V_probe",
            "certificate",
        )
        rows = [
            (
                i["scenario"],
                i["agent"],
                i["arm"],
                "on" if i["probes"] else "off",
                "on" if i["noise"] else "off",
                i["seed"],
                *_format_marks(i["metrics"]),
            )
            for i in items
        ]
        print_table("Trials", columns, rows)
        print_tables(tables)
    context.exit(0 if dry_run or all(item["run"] and item["metrics"] for item in items) else 1)


def _result_tables(output: Path, numbers: tuple[str, ...]) -> list[ResultTable]:
    """Return the paper's tables with these *numbers* for the store *output*, and a table of trials without a result."""
    from opsassay.evals.remediation.report import Trials, void_table
    from opsassay.evals.remediation.tables import tables

    trials = Trials(output)
    for folder, problem in trials.problems.items():
        say(f"{folder}: {problem}")
    found = [one for one in tables(trials.rows) if str(one.number) in numbers] if numbers else []
    return [*found, *([void_table(trials.void)] if trials.void else [])]


def _estimate(left_s: Sequence[float], count: int, jobs: int) -> str:
    """Return in words how many of *count* trials are left and their longest time: *left_s* s each, *jobs* at a time."""
    if not left_s:
        return f"nothing is left of {plural(count, 'trial')}"
    longest = timedelta(seconds=round(max(sum(left_s) / jobs, *left_s)))
    parallel = f", {jobs} side by side" if jobs > 1 else ""
    return (
        f"left: {len(left_s)} of {plural(count, 'trial')}, at most {longest}{parallel}, without deployment and removal"
    )


def _read_metrics(folder: Path) -> dict[str, float | None]:
    """Return metric to value from the verdict in the run *folder*, {} when the run could not be graded."""
    from opsassay.evals.runner.store import read_verdicts

    committed = [v for v in read_verdicts(folder) if v.profile in {"default", "paper"}]
    return {name: metric.value for name, metric in committed[0].metrics.items()} if committed else {}


def _format_marks(metrics: dict[str, float | None]) -> list[str | None]:
    """Return table cells for the main predicates and the certificate: ✓ passed, × failed, None for not judged."""
    names = ("v_outcome", "v_temporal", "v_depth", "v_probe", "certificate")
    words = {1.0: "✓", 0.0: "×", None: None}
    return [words[metrics.get(name)] for name in names]
