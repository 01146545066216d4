"""opsassay score paper-tables."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from opsassay.cli.output import json_option, print_json, print_tables, say

if TYPE_CHECKING:
    from opsassay.evals.runner.grading import GradedRuns
    from opsassay.evals.runner.tables import ResultTable

_FIGURES = {"figure5": "Figure 5.", "figure6": "Figure 6.", "pass@k": "pass@k"}
NUMBERS = [*map(str, (4, *range(8, 16), *range(17, 22))), *_FIGURES]
"""What a table is called on the command line: its number in the papers, or the name of what a figure shows."""


@click.command("paper-tables")
@click.argument("store", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.argument("number", nargs=-1, type=click.Choice(NUMBERS), metavar="[NUMBER]...")
@json_option
@click.pass_context
def command(context: click.Context, store: Path, number: tuple[str, ...], *, as_json: bool) -> None:
    """Print Tables 8 to 15 of "Side Effects Are the Output" over the trials of STORE, or those that are numbered.

    Tables 4 and 17 to 21 are those of ITBench, as are pass@k and what its Figures 5 and 6 show.
    """
    graded = graded_trials(store)
    found = chosen_tables(graded.results(), number)
    if as_json:
        print_json("score paper-tables", [one.as_item() for one in found], problems=graded.problems)
    else:
        print_tables(found)
    context.exit(1 if graded.problems else 0)


def graded_trials(store: Path) -> GradedRuns:
    """Return the trials of *store*, graded; say which could not be."""
    from opsassay.evals.remediation.domain import SRE_DOMAIN
    from opsassay.evals.runner.grading import GradeSettings

    graded = SRE_DOMAIN.grade({store: None}, GradeSettings())
    for folder, problem in graded.problems.items():
        say(f"{folder}: {problem}")
    return graded


def chosen_tables(tables: Iterable[ResultTable], numbers: tuple[str, ...]) -> list[ResultTable]:
    """Return the *tables* that are numbered or named in *numbers*, all when there are none."""
    titles = tuple(_FIGURES[name] for name in numbers if name in _FIGURES)
    return [
        one for one in tables if not numbers or str(one.number) in numbers or (titles and one.title.startswith(titles))
    ]
