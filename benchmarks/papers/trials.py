"""Print the numbered tables of two papers over the trials of a store.

Run: ``python -m benchmarks.papers.trials STORE [NUMBER]...``.

Tables 8 to 15 are those of "Side Effects Are the Output", 4 and 17 to 21 those of ITBench.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

import click

from opsassay.cli.output import json_option, print_json, print_tables, say
from opsassay.evals.remediation.report import Trials
from opsassay.evals.remediation.tables import tables
from opsassay.evals.runner.tables import ResultTable

from .hidden_failures import per_class, probe_contrast
from .itbench_trials import attempts, itbench_rows, itbench_tables
from .running import run
from .sweep import main_slice, sweep_tables

_FIGURES = {"figure5": "Figure 5.", "figure6": "Figure 6.", "pass@k": "pass@k"}
NUMBERS = [*map(str, (4, *range(8, 16), *range(17, 22))), *_FIGURES]
"""What a table is called on the command line: its number in the papers, or the name of what a figure shows."""


@click.command("trials")
@click.argument("store", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.argument("number", nargs=-1, type=click.Choice(NUMBERS), metavar="[NUMBER]...")
@json_option
@click.pass_context
def command(context: click.Context, store: Path, number: tuple[str, ...], *, as_json: bool) -> None:
    """Print the tables over the trials of STORE, or those that are numbered."""
    trials = Trials(store)
    for folder, problem in trials.problems.items():
        say(f"{folder}: {problem}")
    found = chosen_tables(all_tables(trials), number)
    if as_json:
        print_json("trials", [one.as_item() for one in found], problems=trials.problems)
    else:
        print_tables(found)
    context.exit(1 if trials.problems else 0)


def all_tables(trials: Trials) -> list[ResultTable]:
    """Return Tables 8 to 15 of "side-effects", then those of ITBench."""
    shown = [per_class(trials.rows), *tables(trials.rows), probe_contrast(trials.rows)]
    return [
        *sorted(shown, key=lambda table: table.number or 0),
        *sweep_tables(main_slice(trials)),
        *itbench_tables(itbench_rows(trials), attempts(trials)),
    ]


def chosen_tables(found: Iterable[ResultTable], numbers: tuple[str, ...]) -> list[ResultTable]:
    """Return the tables of *found* that are numbered or named in *numbers*, all when there are none."""
    titles = tuple(_FIGURES[name] for name in numbers if name in _FIGURES)
    return [
        one for one in found if not numbers or str(one.number) in numbers or (titles and one.title.startswith(titles))
    ]


if __name__ == "__main__":
    sys.exit(run(command))
