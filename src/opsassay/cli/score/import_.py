"""opsassay score import."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from opsassay.cli.output import FOLDER, cases_apart, echo, json_option, print_json, print_table, say
from opsassay.core.text import plural

if TYPE_CHECKING:
    from opsassay.analysis.answers.importing import KeptAnswer

_PATH = click.Path(path_type=Path)


@click.command("import")
@click.argument("source", type=_PATH)
@click.option("--form", help="Form of the answers; recognised from each file when left out.")
@click.option("--cases", type=_PATH, help="Incidents that the answers are about; STORE itself when left out.")
@click.option("--solver", help="Whom answers are of, instead of what their files say.")
@click.option("--profile", default="default", show_default=True, help="default, lenient, openrca2 or compat.")
@click.option("-o", "--output", required=True, type=FOLDER, help="STORE: folder of the store of runs.")
@json_option
@click.pass_context
def command(
    context: click.Context, source: Path, form: str | None, cases: Path | None, solver: str | None, profile: str,
    output: Path, *, as_json: bool,
) -> None:  # fmt: skip
    """Read the answers that others gave in SOURCE, a file or folder in a public form, and grade them.

    Each becomes a run of the store, with a note on all that was not exactly convertible. Runs are graded and not ranked.
    """
    from opsassay.analysis.answers.importing import import_answers
    from opsassay.core.errors import OpsAssayError
    from opsassay.evals.diagnosis.score import grade_all
    from opsassay.evals.runner.store import RunStore
    from opsassay.scoring.profiles import profile_named
    from opsassay.telemetry.tree import resolve

    chosen, unread = profile_named(profile), list[str]()

    def report_on(_: Path, error: OpsAssayError) -> None:
        unread.append(str(error))

    known = resolve(cases or output, report_on)
    report = import_answers(source, known, output, form, solver)
    made = {one.run.cell for one in report.kept}
    verdicts = grade_all(RunStore(output), known, chosen, report_on, only=lambda run: run.cell in made)
    problems = [*report.problems, *unread]
    for one in report.kept:
        for note in one.notes:
            say(f"opsassay: {one.source}: {note}")
    for problem in problems:
        say(f"opsassay: left out: {problem}")
    if report.passed_over:
        shown = ", ".join(report.passed_over[:3]) + (", ..." if len(report.passed_over) > 3 else "")
        say(f"opsassay: passed over: {plural(len(report.passed_over), 'file')} in no form that is read ({shown})")
    items = [_item(one) for one in report.kept]
    notes = sum(len(one.notes) for one in report.kept)
    if as_json:
        print_json("score import", items, problems=problems, passed_over=report.passed_over, notes=notes)
    else:
        columns = ("answer", "incident", "solver", "seed", "ended", "became", "notes")
        rows = [(*(item[name] for name in columns[:-1]), len(item["notes"])) for item in items]
        print_table(f"{plural(len(items), 'answer')} in {output}", columns, rows)
        store = f"{output}{cases_apart(cases, output)}"
        echo(
            f"{plural(len(verdicts), 'verdict')}, {plural(notes, 'conversion note')}, "
            f"{plural(len(problems), 'answer')} left out. Next: `opsassay score table {store}`."
        )
    context.exit(1 if problems else 0)


def _item(one: KeptAnswer) -> dict[str, Any]:
    return {
        "answer": one.source,
        "incident": one.run.item,
        "solver": one.run.solver.label,
        "seed": one.run.seed,
        "ended": one.run.status.value,
        "became": "there already" if one.known else "imported",
        "run": str(one.folder),
        "notes": list(one.notes),
    }
