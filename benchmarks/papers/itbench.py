"""Print ITBench's numbered tables: of its agents over stores of trials, compliance runs and cost runs, and of the tasks.

Run: ``python -m benchmarks.papers.itbench [STORE]... [-t NUMBER]...``. Without a store the tables of the tasks that ship:
22, 23 and 26 to 29.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import click

from opsassay.cli.output import json_option
from opsassay.evals.remediation.report import GradedTrials
from opsassay.evals.runner.grading import GradeSettings, choose_stores, grade_stores
from opsassay.evals.runner.tables import ResultTable

from .itbench_tasks import task_tables
from .itbench_trials import attempts, itbench_rows, itbench_tables
from .running import Numbered, run, show_tables

_OF = {
    "trials": (4, 17, 18, 19, "figure5", "figure6", "pass@k"), "trials with masked telemetry": (20, 21),
    "compliance runs": (5, 24, 25), "cost runs": (6, 30, 31, 32),
}  # fmt: skip
NUMBERS = Numbered(
    (4, 5, 6, *range(17, 33)),
    {},
    {str(number): f"is of {what}, and none is given" for what, numbers in _OF.items() for number in numbers},
    {"figure5": "Figure 5.", "figure6": "Figure 6.", "pass@k": "pass@k"},
)


@click.command("itbench")
@click.argument("stores", nargs=-1, type=click.Path(exists=True, file_okay=False, path_type=Path))
@NUMBERS.option
@json_option
@click.pass_context
def command(context: click.Context, stores: tuple[Path, ...], numbers: tuple[str, ...], *, as_json: bool) -> None:
    """Print the tables over STORES, of whatever domains their runs are, or those that are numbered."""
    found: list[ResultTable] = []
    problems: dict[str, str] = {}
    for graded in grade_stores(choose_stores(stores), GradeSettings()) if stores else ():
        problems |= graded.problems
        if isinstance(graded, GradedTrials):
            found += [
                table for trials in graded.trials for table in itbench_tables(itbench_rows(trials), attempts(trials))
            ]
        else:
            found += [table for table in graded.results() if table.number is not None]
    found += [replace(table, number=25) for table in found if table.number == 5]  # the same figures, printed again
    shown = sorted([*found, *task_tables()], key=lambda table: table.number or sys.maxsize)
    context.exit(show_tables("itbench", NUMBERS.chosen(shown, numbers), problems, as_json=as_json))


if __name__ == "__main__":
    sys.exit(run(command))
