"""opsassay score trials."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from opsassay.cli.output import json_option, print_json, print_table, say


@click.command("trials")
@click.argument("store", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--profile", type=click.Choice(["default", "paper"]), help="Instead of the committed one: a what-if.")
@click.option("--scenario", "file", help="A scenario file or name; must be what the runs were begun with.")
@click.option("--what-if", is_flag=True, help="Grade by another file than was committed; never ranked.")
@json_option
@click.pass_context
def command(
    context: click.Context, store: Path, profile: Any, file: str | None, *, what_if: bool, as_json: bool
) -> None:
    """Grade the trials of STORE again, by the checks that each scenario committed to before its run; store verdicts.

    --scenario selects the trials of one scenario; with --what-if its file may differ from the committed one, and such a
    verdict is never ranked. --profile replaces the committed grading profile.
    """
    from opsassay.core.errors import NotFoundError, OpsAssayError, UserError
    from opsassay.evals.remediation.score import grade_trial, recorded_trials, require_trials
    from opsassay.evals.remediation.tasks import kept_scenario
    from opsassay.evals.runner.ranking import why_not_ranked
    from opsassay.evals.runner.store import RunStore, read_run
    from opsassay.testbed.scenarios import load_scenario

    if what_if and file is None:
        raise UserError("--what-if grades by another file than was committed; say with --scenario which one.")
    other = load_scenario(file) if file else None
    begun_runs = [(run_dir, read_run(run_dir)) for run_dir in recorded_trials(RunStore(require_trials(store)))]
    if other is not None and other.id not in {begun.item for _, begun in begun_runs}:
        raise NotFoundError(f"trial in {store} of the scenario", other.id, {begun.item for _, begun in begun_runs})
    items: list[dict[str, Any]] = []
    problems = 0
    for run_dir, begun in begun_runs:
        if other is not None and begun.item != other.id:
            continue
        try:
            scenario = other or kept_scenario(store, begun.item_hash)
            verdict = grade_trial(run_dir, scenario, profile=profile, what_if=what_if)
        except OpsAssayError as error:
            if isinstance(error, UserError) and other is not None:
                raise
            say(f"{run_dir}: {error}")
            problems += 1
            continue
        metrics = {name: metric.model_dump(mode="json") for name, metric in verdict.metrics.items()}
        items.append(
            {
                "run": str(run_dir),
                "scenario": begun.item,
                "agent": begun.solver.name,
                "arm": begun.arm,
                "seed": begun.seed,
                "profile": verdict.profile,
                "what_if": verdict.what_if,
                "not_ranked": list(why_not_ranked(begun)),
                "validity": verdict.validity.model_dump(mode="json"),
                "metrics": metrics,
                "judgements": [judgement.model_dump(mode="json") for judgement in verdict.judgements],
            }
        )
    if as_json:
        print_json("score trials", items)
    else:
        columns = ("scenario", "agent", "arms", "seed", "says", "why")
        rows = [
            (
                i["scenario"],
                i["agent"],
                i["arm"],
                i["seed"],
                i["judgements"][-1]["status"],
                i["judgements"][-1]["reason"],
            )
            for i in sorted(items, key=lambda i: (i["scenario"], i["agent"], i["arm"], i["seed"]))
        ]
        print_table("What-if" if any(i["what_if"] for i in items) else "Certificates", columns, rows)
    context.exit(1 if problems else 0)
