"""Print the numbered tables of "Side Effects Are the Output" over the trials of a store, 1 and 4 to 6 of its scenarios.

Run: ``python -m benchmarks.papers.side_effects [STORE] [-t NUMBER]...``. Without a store those of the scenarios that ship.
"""

from __future__ import annotations

import sys
from pathlib import Path

import click

from opsassay.cli.output import json_option
from opsassay.evals.remediation.report import Trials
from opsassay.evals.remediation.tables import tables
from opsassay.evals.runner.tables import ResultTable
from opsassay.testbed.scenarios import load_scenario, names

from .hidden_failures import per_class, probe_contrast
from .running import Numbered, run, show_tables
from .scenario_tables import oracle_pairs, run_slices, scenario_tables
from .sweep import main_slice, sweep_tables

NUMBERS = Numbered(
    range(1, 16),
    {"3": "it explains words of Kubernetes; docs/concepts.md explains ours"},
    dict.fromkeys(map(str, (2, *range(7, 16))), "is of trials; give a store of them"),
)


@click.command("side_effects")
@click.argument("store", required=False, type=click.Path(exists=True, file_okay=False, path_type=Path))
@NUMBERS.option
@json_option
@click.pass_context
def command(context: click.Context, store: Path | None, numbers: tuple[str, ...], *, as_json: bool) -> None:
    """Print the tables over the trials of STORE, or those that are numbered."""
    if store is None:
        found, problems = scenario_tables(map(load_scenario, names())), {}
    else:
        trials = Trials(store)
        found, problems = all_tables(trials), trials.problems
    context.exit(show_tables("side_effects", NUMBERS.chosen(found, numbers), problems, as_json=as_json))


def all_tables(trials: Trials) -> list[ResultTable]:
    """Return every table of the paper but the third, by number."""
    rows = trials.rows
    shown = [
        *scenario_tables(scenario for _, scenario, _ in trials.recorded), oracle_pairs(rows), run_slices(rows),
        per_class(rows), *tables(rows), probe_contrast(rows), *sweep_tables(main_slice(trials)),
    ]  # fmt: skip
    return sorted(shown, key=lambda table: table.number or 0)


if __name__ == "__main__":
    sys.exit(run(command))
