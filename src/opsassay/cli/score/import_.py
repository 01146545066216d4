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
    """Import the answers of other tools in SOURCE, a file or folder in a public form, and grade them.

    Each becomes a run of the store, with a note on all that was not exactly convertible. Runs are graded by --profile
    and not ranked. --form: their format (else detected), --cases: the incidents, --solver: the name of the solver.
    """
    from opsassay.analysis.answers import PREDICTIONS
    from opsassay.analysis.answers.importing import find_form, import_answers
    from opsassay.analysis.answers.predictions import holds_predictions
    from opsassay.core.errors import OpsAssayError
    from opsassay.evals.diagnosis.score import grade_all
    from opsassay.evals.runner.store import RunStore
    from opsassay.scoring.profiles import profile_named
    from opsassay.telemetry.tree import resolve

    if form in PREDICTIONS or (form is None and source.exists() and holds_predictions(source)):
        context.exit(_import_predictions(source, form, cases or output, solver, output, as_json=as_json))
    if form is not None:
        find_form(form)
    chosen, unread = profile_named(profile), list[str]()

    def report_on(_: Path, error: OpsAssayError) -> None:
        """Note the *error* of a case that cannot be read, to print it later."""
        unread.append(str(error))

    known = resolve(cases or output, report_on)
    report = import_answers(source, known, output, form, solver)
    made = {one.run.cell for one in report.kept}
    verdicts = grade_all(RunStore(output), known, chosen, report_on, run_filter=lambda run: run.cell in made)
    problems = [*report.problems, *unread]
    for one in report.kept:
        for note in one.notes:
            say(f"opsassay: {one.source}: {note}")
    for problem in problems:
        say(f"opsassay: left out: {problem}")
    if report.passed_over:
        shown = ", ".join(report.passed_over[:3]) + (", ..." if len(report.passed_over) > 3 else "")
        say(f"opsassay: passed over: {plural(len(report.passed_over), 'file')} in no form that is read ({shown})")
    items = [_answer_as_json(one) for one in report.kept]
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


def _import_predictions(
    source: Path, form: str | None, traces: Path, solver: str | None, output: Path, *, as_json: bool
) -> int:
    """Import predictions of the blamed agent and step for the labelled traces in *traces*; return the exit code.

    *form* is their format (None: detected), *solver* the name that the runs get.
    """
    from opsassay.analysis.answers.predictions import import_predictions
    from opsassay.analysis.blame.labelled import read_labelled

    odd: list[str] = []
    report = import_predictions(source, read_labelled(traces, odd.append), output, form, solver)
    for problem in odd:
        say(f"opsassay: no trace: {problem}")
    for one in report.kept:
        for note in one.line.notes:
            say(f"opsassay: {one.source}: {note}")
    for problem in report.problems:
        say(f"opsassay: left out: {problem}")
    items = [
        {
            "answer": one.source, "trace": one.case.id, "technique": one.line.technique, "run": one.line.run,
            "agent": one.line.agent, "step": one.line.step, "agent_right": one.is_agent_right,
            "step_right": one.is_step_right, "became": "there already" if one.known else "imported",
            "notes": list(one.line.notes),
        }
        for one in report.kept
    ]  # fmt: skip
    notes = sum(len(one.line.notes) for one in report.kept)
    if as_json:
        print_json("score import", items, problems=report.problems, passed_over=[], notes=notes)
    else:
        columns = ("trace", "technique", "run", "agent", "step", "agent_right", "step_right", "became")
        rows = [tuple(item[name] for name in columns) for item in items]
        print_table(f"{plural(len(items), 'prediction')} in {output}", columns, rows)
        right = [sum(bool(item[name]) for item in items) for name in ("agent_right", "step_right")]
        echo(
            f"Agent right: {right[0]} of {len(items)}, step right: {right[1]}; {plural(notes, 'conversion note')}, "
            f"{plural(len(report.problems), 'answer')} left out. Next: "
            f"`opsassay trace blame view TRACE --answers {output}`."
        )
    return 1 if report.problems else 0


def _answer_as_json(answer: KeptAnswer) -> dict[str, Any]:
    """Return one imported answer as an item of JSON: its file, incident and run."""
    return {
        "answer": answer.source,
        "incident": answer.run.item,
        "solver": answer.run.solver.label,
        "seed": answer.run.seed,
        "ended": answer.run.status.value,
        "became": "there already" if answer.known else "imported",
        "run": str(answer.folder),
        "notes": list(answer.notes),
    }
