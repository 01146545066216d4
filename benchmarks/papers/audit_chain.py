"""From the raw files of a public benchmark to the rows of baselines that "leaderboard-audit" prints, by one command.

Run: ``python -m benchmarks.papers.audit_chain openrca FOLDER -o DIR``, with the folder of the download (for OpenRCA the
one that holds Bank, Telecom and Market). Imports, runs the baselines on each incident, scores them against the
benchmark's own truth, and prints the tables. Everything is kept in DIR; the same command goes on from what is there.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from opsassay.cli import cli
from opsassay.cli.output import say
from opsassay.core.errors import OperationError

from .audit_tables import command as print_audit_tables
from .running import run

FORMS = ("openrca", "rcaeval", "petshop")
BASELINES = ("baro", "max-z", "alert-count", "cd-1min")
"""The four methods of the paper's main comparison."""


def opsassay(*words: str) -> None:
    """Run a command of the product; raises OperationError where it fails as a whole."""
    say(f"$ opsassay {' '.join(words)}")
    ended: Any = cli.main(args=list(words), standalone_mode=False)
    if isinstance(ended, int) and ended > 1:
        raise OperationError(f"`opsassay {words[0]} {words[1]}` ended with status {ended}.")


@click.command("audit_chain")
@click.argument("form", type=click.Choice(FORMS))
@click.argument("folder", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("-o", "--output", type=click.Path(file_okay=False, path_type=Path), required=True, help="Folder of all.")
@click.option("-m", "--method", "methods", multiple=True, help="Run this instead of the paper's four; repeat for more.")
@click.option("--resamples", type=click.IntRange(min=100), default=5000, show_default=True, help="Bootstrap samples.")
@click.pass_context
def command(
    context: click.Context, form: str, folder: Path, output: Path, methods: tuple[str, ...], resamples: int
) -> None:
    """Print the audit's tables of the benchmark in FOLDER, whose files are in the published layout of FORM."""
    incidents, runs, scores = output / "incidents", output / "runs", output / "scores.csv"
    opsassay("incident", "import", form, str(folder), "-o", str(incidents))
    chosen = [word for method in methods or BASELINES for word in ("-m", method)]
    opsassay("run", "diagnose", str(incidents), "-o", str(runs), *chosen)
    opsassay("score", "run", str(runs), "--cases", str(incidents), "--scores", str(scores))
    context.exit(run(print_audit_tables, [str(scores), "--resamples", str(resamples)]))


if __name__ == "__main__":
    sys.exit(run(command))
