"""opsassay score run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click
from click.core import ParameterSource

from opsassay.cli.output import NewFile, cases_apart, echo, json_option, print_json, print_tables, say
from opsassay.core.text import plural

if TYPE_CHECKING:
    from opsassay.evals.runner.grading import GradedRun, GradedRuns

_PATH = click.Path(path_type=Path)


@click.command("run")
@click.argument("runs", nargs=-1, required=True, type=_PATH, metavar="RUN...")
@click.option("--cases", type=_PATH, help="Tree with incidents and truth; the runs' own stores when left out.")
@click.option("--profile", default="default", show_default=True, help="default, lenient, openrca2 or compat.")
@click.option("--scores", type=NewFile(), help="CSV file to write the score table to.")
@click.option("--metric", default="any_service", show_default=True, help="Metric of the score table.")
@click.option("--tables", type=NewFile(), help="Markdown file to write the tables of a results page to.")
@click.option(
    "--judge", help="Model that says of each statement whether it supports its claim; named as in `opsassay run`."
)
@click.option(
    "--truth",
    type=click.Choice(["ours", "published"]),
    default="ours",
    show_default=True,
    help="Whose causal graphs paths are graded against, where somebody published one.",
)
@json_option
@click.pass_context
def command(
    context: click.Context, runs: tuple[Path, ...], cases: Path | None, profile: str, scores: Path | None, metric: str,
    tables: Path | None, judge: str | None, truth: Literal["ours", "published"], *, as_json: bool,
) -> None:  # fmt: skip
    """Grade finished runs of any domain against the truth: RUN is a store of runs, or the folder of a single one.

    Every grade is a value, or the reason why there is none. --scores: CSV file for --metric of each run; --tables:
    Markdown file for result tables; --judge: model that says whether a statement supports its claim; --truth published:
    paths are graded against the published causal graph, if there is one.
    """
    from opsassay.core.errors import UserError
    from opsassay.evals.runner.grading import GradeSettings, choose_stores, grade_stores, problem_lines
    from opsassay.scoring.profiles import profile_named

    profile_named(profile)
    if scores is None and context.get_parameter_source("metric") is not ParameterSource.DEFAULT:
        raise UserError("--metric is that of the score table; say with --scores which file it goes into.")
    stores = choose_stores(runs)
    graded = grade_stores(stores, GradeSettings(cases, profile, judge, truth, say))
    problems = problem_lines(graded)
    for problem in problems:
        say(f"opsassay: not graded: {problem}")
    if scores is not None:
        _write_scores(scores, graded, metric)
    if tables is not None:
        _write_tables(tables, graded, profile)
    if as_json:
        further: dict[str, list[Any]] = {"collapsed": [], "summary": []}
        for one in graded:
            further |= one.summary()
        items = [_verdict_as_json(run) for one in graded for run in one.graded]
        print_json("score run", items, profile=profile, problems=problems, **further)
    else:
        for one in graded:
            print_tables(one.tables())
            for note in one.notes():
                echo(note)
        store = next(iter(stores))
        verdicts = sum(len(one.graded) for one in graded)
        apart = cases_apart(cases, store)
        echo(
            f"{plural(verdicts, 'verdict')}. Next: `opsassay view {store}{apart}`; "
            f"as files `opsassay report {store} -o DIR{apart}`."
        )
    context.exit(1 if problems else 0)


def _write_scores(path: Path, graded: Sequence[GradedRuns], metric: str) -> None:
    """Write *metric* of the runs that may be ranked as a score table to *path*, and print the names of its solvers."""
    from opsassay.core.errors import UserError
    from opsassay.evals.runner.ranking import versions_reported, why_not_ranked
    from opsassay.evals.runner.scores import score_table, write_scores

    if left_out := sum(bool(why_not_ranked(run.run)) for one in graded for run in one.counted):
        say(f"opsassay: left out of the score table: {plural(left_out, 'run')}, unsealed, flagged or of an oracle")
    for one in graded:
        for reported in versions_reported(run.run for run in one.counted if not why_not_ranked(run.run)):
            say(f"opsassay: {reported}; each is a method of its own in the score table")
    answers = [answer for one in graded for answer in one.scored()]
    if not answers:
        raise UserError("There is no score table to write: none of the runs may be ranked.")
    labels = {item: of for one in graded for item, of in one.case_labels().items()}
    say(f"opsassay: score table: {write_scores(score_table(answers, metric, labels), path)}")


def _write_tables(path: Path, graded: Sequence[GradedRuns], profile: str) -> None:
    """Write the result tables of *graded*, under the grading *profile*, as Markdown to *path*."""
    from opsassay.evals.runner.tables import markdown
    from opsassay.telemetry.content import whole_file

    runs = sum(len(one.counted) for one in graded)
    made = f"Made by `opsassay score run --tables` under the profile `{profile}`, of {plural(runs, 'run')}."
    text = markdown("Results", [made], [table for one in graded for table in one.results()])
    with whole_file(path) as partial:
        partial.write_text(text, encoding="utf-8")
    say(f"opsassay: tables: {path}")


def _verdict_as_json(graded: GradedRun) -> dict[str, Any]:
    """Return the grades of one run as an item of JSON, with the reason if it is not ranked."""
    from opsassay.evals.runner.ranking import why_not_ranked

    verdict = graded.verdict
    return {
        "run": verdict.run,
        "case": verdict.item,
        "system": verdict.system,
        "solver": verdict.solver,
        "label": verdict.label,
        "not_ranked": list(why_not_ranked(graded.run)),
        "metrics": {name: metric.model_dump(mode="json") for name, metric in verdict.metrics.items()},
    }
