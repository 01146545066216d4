"""opsassay report."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import click

from opsassay.cli.output import FOLDER, cases_apart, say

if TYPE_CHECKING:
    from opsassay.evals.runner.store import RunStore


@click.command("report")
@click.argument("store", type=click.Path(path_type=Path))
@click.option("-o", "--output", required=True, type=FOLDER, help="Folder; report.html is written into it.")
@click.option(
    "--cases", type=click.Path(path_type=Path), help="Tree with incidents and truth; STORE itself when left out."
)
@click.option("--profile", default="default", show_default=True, help="Grading profile of the verdicts that are shown.")
@click.option("--title", default="OpsAssay report", show_default=True, help="Title of the page.")
@click.pass_context
def command(context: click.Context, store: Path, output: Path, cases: Path | None, profile: str, title: str) -> None:
    """Write HTML about the runs of STORE, of any domain, that opens from disk without network.

    Incidents are one file, trials a page each, any other domain is a page of its tables; index.html leads to all of them.
    """
    from opsassay.evals.runner.grading import GradeSettings
    from opsassay.evals.runner.store import RunStore
    from opsassay.ui.reports import PageRequest, write_pages

    runs = RunStore(store)
    settings = GradeSettings(cases, profile, say=say)
    request = PageRequest(runs, output, settings, title, _commands_to_repeat(runs, cases, output))
    problems = write_pages(request, click.echo)
    for problem in problems:
        say(problem)
    context.exit(1 if problems else 0)


def _commands_to_repeat(store: RunStore, cases: Path | None, output: Path) -> list[str]:
    """Return the command lines that reproduce this report (solve, grade, report), as far as *store* shows."""
    from opsassay.core.errors import OpsAssayError
    from opsassay.evals.runner.store import read_run

    kinds = set()
    for run_dir in store.runs():
        with suppress(OpsAssayError):  # what cannot be read is reported by the report itself
            kinds.add(read_run(run_dir).solver.kind)
    made = {"method": "opsassay run diagnose {}", "agent": "opsassay run {} -a AGENT"}
    apart = f" -o {store.root}" if cases else ""
    asked = cases_apart(cases, store.root)
    return [
        *(command.format(cases or store.root) + apart for kind, command in made.items() if kind in kinds),
        f"opsassay score run {store.root}{asked}",
        f"opsassay report {store.root} -o {output}{asked}",
    ]
