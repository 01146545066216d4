"""opsassay task calibrate."""

from __future__ import annotations

from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from opsassay.cli.output import FOLDER, json_option, print_json, print_table, print_tables, say

if TYPE_CHECKING:
    from opsassay.evals.remediation.authoring.calibration import Calibrated, LoadedTrial


@click.command("calibrate")
@click.argument("scenarios", nargs=-1, required=True, metavar="SCENARIO...")
@click.option("-o", "--output", required=True, type=FOLDER, help="Store of runs; resumable.")
@click.option(
    "-n", "count", type=click.IntRange(1, 1000), default=4, show_default=True, help="Right trials, and wrong."
)
@click.option("--seed", type=int, default=0, show_default=True, help="Draws scenario, repair and load of every trial.")
@click.option("--dry-run", is_flag=True, help="List the trials; run nothing.")
@json_option
def command(
    scenarios: tuple[str, ...], output: Path, count: int, seed: int, *, dry_run: bool, as_json: bool
) -> None:  # fmt: skip
    """Measure how often right repairs are rejected and wrong ones certified while this machine is busy.

    Right and wrong repairs (-n of both) of SCENARIO run while 0 to 3 busy loops a core run too. Trials that got too
    little processor time are counted apart. --seed draws the scenario, repair and load of each trial.
    """
    from opsassay.core.errors import UserError
    from opsassay.core.schema.progress import ProgressLines
    from opsassay.evals.remediation.authoring.calibration import by_load, by_predicate, calibrate, drawn_trials
    from opsassay.evals.remediation.plan import require_sound, scenarios_named
    from opsassay.evals.runner.store import RunStore

    named = scenarios_named(scenarios)
    if other := [one.id for one in named if one.environment.substrate != "local"]:
        raise UserError(
            f"{', '.join(other)} does not happen on this machine, which is what is kept busy; leave it out."
        )
    trials = drawn_trials(named, count, seed)
    require_sound([one.run for one in trials])
    found = [] if dry_run else list(calibrate(RunStore(output), trials, ProgressLines(say)))
    items = [_trial_as_json(one, end) for one, end in zip_longest(trials, found)]
    tables = [by_predicate(found), by_load(found)] if found else []
    if as_json:
        print_json("task calibrate", items, tables=[one.as_item() for one in tables])
        return
    columns = ("scenario", "repair", "loops a core", "must be certified", "validity", "certificate", "why")
    rows = [
        (i["scenario"], i["agent"], i["loops"], i["right"], i["validity"], i["certificate"], i["why"]) for i in items
    ]
    print_table("Trials", columns, rows)
    print_tables(tables)


def _trial_as_json(trial: LoadedTrial, end: Calibrated | None) -> dict[str, Any]:
    """Return one trial as an item of JSON; *end* is its verdict under load, None when it has none."""
    verdict = None if end is None else end.verdict
    return {
        "scenario": trial.run.scenario.id,
        "agent": trial.run.agent.name,
        "seed": trial.run.seed,
        "loops": trial.loops,
        "right": trial.right,
        "validity": "starved" if end is not None and end.starved else verdict.validity.status if verdict else None,
        "certificate": verdict.judgement("certificate").status.value if verdict else None,
        "why": verdict.judgement("certificate").reason if verdict else end.reason if end else None,
    }
