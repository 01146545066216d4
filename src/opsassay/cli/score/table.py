"""opsassay score table."""

from __future__ import annotations

from pathlib import Path

import click

from opsassay.cli.output import echo, json_option, print_json, print_tables, say


@click.command("table")
@click.argument("store", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option(
    "--cases", type=click.Path(path_type=Path), help="Tree with incidents and truth; STORE itself when left out."
)
@click.option(
    "--profile", default="default", show_default=True, help="Grading profile: default, lenient, openrca2 or compat."
)
@json_option
@click.pass_context
def command(context: click.Context, store: Path, cases: Path | None, profile: str, *, as_json: bool) -> None:
    """Grade the runs in STORE, whose incidents are in --cases (else STORE), by --profile; print tables by domain."""
    from opsassay.evals.runner.grading import GradeSettings, choose_stores, grade_stores, problem_lines
    from opsassay.scoring.profiles import profile_named

    profile_named(profile)
    graded = grade_stores(choose_stores([store]), GradeSettings(cases, profile, say=say))
    problems = problem_lines(graded)
    for problem in problems:
        say(f"opsassay: not graded: {problem}")
    tables = [(one.domain.name, table) for one in graded for table in one.results()]
    if as_json:
        print_json("score table", [{"domain": name, **table.as_item()} for name, table in tables], problems=problems)
    else:
        print_tables(table for _, table in tables)
        for note in (note for one in graded for note in one.notes()):
            echo(note)
    context.exit(1 if problems else 0)
