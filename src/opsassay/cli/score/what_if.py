"""opsassay score what-if."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from opsassay.cli.output import echo, json_option, print_json, print_table, say
from opsassay.core.text import plural


@click.command("what-if")
@click.argument("store", type=click.Path(path_type=Path))
@click.option(
    "--cases", type=click.Path(path_type=Path), help="Tree with incidents and truth; STORE itself when left out."
)
@click.option("--profile", default="default", show_default=True, help="Profile to start from.")
@click.option("-c", "--change", "changes", multiple=True, metavar="KEY=VALUE", help="A convention of it to change.")
@json_option
@click.pass_context
def command(
    context: click.Context, store: Path, cases: Path | None, profile: str, changes: tuple[str, ...], *, as_json: bool
) -> None:
    """Grade the runs of STORE again under changed grading conventions, and list the grades that change.

    --change alters a convention of --profile. The new verdicts are stored under a name of their own, are never ranked,
    and change nothing that was graded.
    """
    from opsassay.core.errors import UserError
    from opsassay.evals.diagnosis.report import changed_grades, changed_profile
    from opsassay.evals.diagnosis.score import cases_of, grade_all
    from opsassay.evals.runner.store import RunStore
    from opsassay.scoring.profiles import profile_named

    before, after = profile_named(profile), changed_profile(profile_named(profile), changes)
    runs = RunStore(store)
    if not list(runs.runs()):
        raise UserError(f"{store} holds no runs; make some with `opsassay run diagnose`.")
    problems: list[str] = []

    def report(_: Path, error: Exception) -> None:
        """Note the *error* of a run that cannot be graded, to print it later."""
        problems.append(str(error))

    known = cases_of(store, cases, report)
    first, second = (grade_all(runs, known, chosen, report) for chosen in (before, after))
    items: list[dict[str, Any]] = changed_grades(first, second)
    for problem in dict.fromkeys(problems):
        say(f"opsassay: not graded: {problem}")
    if as_json:
        print_json("score what-if", items, profile=after.name, problems=list(dict.fromkeys(problems)))
    else:
        rows = [
            (i["case"], i["solver"], i["metric"], _format_value(i["before"]), _format_value(i["after"])) for i in items
        ]
        print_table(
            f"Grades that move: {before.name} to {after.name}",
            ("incident", "solver", "metric", "before", "after"),
            rows,
        )
        echo(f"{len(items)} of the grades of {plural(len(second), 'run')} moved; a what-if is never ranked.")
    context.exit(1 if problems else 0)


def _format_value(value: float | None) -> str:
    """Return *value* with three decimals, "n/a" for None."""
    return "n/a" if value is None else f"{value:.3f}"
