"""opsassay grade."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from opsassay.cli.output import NewFile, cases_apart, echo, json_option, percent, print_json, print_table, say
from opsassay.cli.summaries import plain_summary, print_summaries

if TYPE_CHECKING:
    from opsassay.bench.core.results import ResultRow
    from opsassay.bench.domains.diagnosis.grades import Graded
    from opsassay.bench.domains.diagnosis.repeats import SolverSummary
    from opsassay.bench.domains.diagnosis.scores import ModalAnswer
    from opsassay.model.run import Run, Verdict

SHOWN = {
    "exact_match": "exact", "any_service": "right service", "f1": "F1", "path_reachability": "path",
    "ungrounded": "un-grounded", "path_reachability_per_any_service": "PR / AnySvc", "edge_f1": "edge F1",
    "sql_exec": "SQL runs", "evidence_relevant": "SQL relevant",
}  # fmt: skip
"""Metrics of the table with the titles of their columns."""

_PATH = click.Path(path_type=Path)


@click.command("grade")
@click.argument("runs", nargs=-1, required=True, type=_PATH, metavar="RUN...")
@click.option("--cases", type=_PATH, help="Tree with incidents and truth; the runs' own stores when left out.")
@click.option("--profile", default="default", show_default=True, help="default, lenient or compat.")
@click.option("--scores", type=NewFile(), help="CSV file to write the score table to.")
@click.option("--metric", default="any_service", show_default=True, help="Metric of the score table.")
@click.option("--tables", type=NewFile(), help="Markdown file to write the tables of a results page to.")
@click.option(
    "--judge", help="Model that says of each statement whether it supports its claim; named as in `opsassay run`."
)
@json_option
@click.pass_context
def command(
    context: click.Context, runs: tuple[Path, ...], cases: Path | None, profile: str, scores: Path | None, metric: str,
    tables: Path | None, judge: str | None, *, as_json: bool,
) -> None:  # fmt: skip
    """Grade finished runs against the truth: RUN is a store of runs, or the folder of a single one.

    Every grade is a value, or the reason why there is none.
    """
    from opsassay.bench.core.results import solver_tables
    from opsassay.bench.domains.diagnosis.grades import grade_stores
    from opsassay.bench.domains.sre.grading import grade_trials
    from opsassay.errors import UserError
    from opsassay.grading.profiles import profile_named

    problems: list[str] = []
    domains = {path: _domains(path) for path in runs}
    ours = [path for path in runs if domains[path] != {"sre"}]
    graded = grade_stores(ours, cases, profile_named(profile), _judge(judge)) if ours else None
    problems += graded.problems if graded else ()
    trials = [
        one
        for path in runs if "sre" in domains[path]
        for one in grade_trials(path, lambda folder, error: problems.append(f"{folder}: {error}"))
    ]  # fmt: skip
    for problem in problems:
        say(f"opsassay: not graded: {problem}")
    if scores is not None:
        _write_scores(scores, graded, trials, metric)
    if tables is not None:
        if graded is None:
            raise UserError(
                "The tables of a results page are of incidents; `opsassay trials table` makes those of trials."
            )
        _write_tables(tables, graded, profile)
    items = [*(_items(graded) if graded else ()), *(_item(row.run, verdict) for row, verdict in trials if row.run)]
    summaries, repeats, collapsed = _summaries(graded) if graded else ([], 1, [])
    if as_json:
        modal = [{"solver": a.solver, "service": a.service, "share": a.share, "cases": a.cases} for a in collapsed]
        print_json(
            "grade", items, profile=profile, problems=problems, collapsed=modal,
            summary=[plain_summary(summary) for summary in summaries],
        )  # fmt: skip
    else:
        for one in solver_tables([row for row, _ in trials]):
            print_table(one.title, one.columns, one.rows)
        if graded:
            _print(graded, profile, summaries, repeats, collapsed, cases)
    context.exit(1 if problems else 0)


def _domains(path: Path) -> set[str]:
    """Return the domains of the runs in the store, or of the one run, at *path*."""
    from opsassay.bench.core.store import RUN, RunStore, read_run

    if (path / RUN).is_file():
        return {str(RunStore(path.resolve().parents[2]).domain_of(read_run(path)))}
    return set(RunStore(path).domains())


def _summaries(graded: Graded) -> tuple[Sequence[SolverSummary], int, Sequence[ModalAnswer]]:
    from opsassay.bench.core.ranking import most_repeats
    from opsassay.bench.domains.diagnosis.repeats import summarise_runs
    from opsassay.bench.domains.diagnosis.scores import modal_answers

    own = [run for run, _ in graded.counted()]
    repeats = most_repeats(own)
    collapsed = [answer for answer in modal_answers(graded.answers()) if answer.collapsed]
    return summarise_runs(own, graded.verdicts, graded.cases, repeats), repeats, collapsed


def _judge(name: str | None) -> Callable[[Verdict], Verdict] | None:
    if name is None:
        return None
    from opsassay.agents.models.named import model_named, require_endpoint
    from opsassay.bench.domains.diagnosis.judging import judged, questions

    model = model_named(name)
    require_endpoint(name)

    def judge(verdict: Verdict) -> Verdict:
        say(f"opsassay: judging {questions(verdict)} statements of {verdict.solver} on {verdict.item}")
        return judged(verdict, model)

    return judge


def _print(
    graded: Graded, profile: str, summaries: Sequence[SolverSummary], repeats: int, collapsed: Sequence[ModalAnswer],
    cases: Path | None,
) -> None:  # fmt: skip
    from opsassay.bench.domains.diagnosis.judging import SUPPORTED
    from opsassay.grading.aggregate import only, summarise

    pooled = {
        (row["solver"], row["metric"]): row
        for row in summarise(only(graded.labelled(), (*SHOWN, SUPPORTED))).iter_rows(named=True)
        if row["scope"] == "all"
    }
    unranked = {summary.solver for summary in summaries if summary.not_ranked}
    solvers = [summary.solver for summary in summaries]
    judged = {SUPPORTED: "SQL supports"} if any(metric == SUPPORTED for _, metric in pooled) else {}
    shown = SHOWN | judged
    rows = [
        (f"{name} (not ranked)" if name in unranked else name, *(_cell(pooled.get((name, m))) for m in shown))
        for name in sorted(solvers, key=lambda name: (name in unranked, name))
    ]
    print_table(f"Grades ({profile}), mean over incidents [95% interval] (n)", ("solver", *shown.values()), rows)
    print_summaries(summaries, graded=True, repeats=repeats)
    for answer in collapsed:
        said = answer.service or "nothing is wrong"
        echo(f"Collapsed: {answer.solver} answers {said} in {percent(answer.share)} of {answer.cases} cases.")
    store = graded.stores[0]
    echo(f"{len(graded.verdicts)} verdicts. Next: `opsassay report {store} -o DIR{cases_apart(cases, store)}`.")


def _write_scores(path: Path, graded: Graded | None, trials: Sequence[tuple[ResultRow, Verdict]], metric: str) -> None:
    """Write the score table of what may be ranked, of whatever domain."""
    from opsassay.bench.core.ranking import solver_label, why_not_ranked
    from opsassay.bench.domains.diagnosis.scores import families_of, score_table, write_scores
    from opsassay.errors import UserError

    runs = [run for run, _ in graded.counted()] if graded else []
    runs += [row.run for row, _ in trials if row.run]
    if left_out := sum(bool(why_not_ranked(run)) for run in runs):
        say(
            f"opsassay: {left_out} runs are left out of the score table: they ran unsealed, are flagged, or of an oracle"
        )
    verdicts = graded.labelled(ranked=True) if graded else []
    verdicts += [
        verdict.model_copy(update={"solver": solver_label(row.run)})
        for row, verdict in trials
        if row.run and not row.not_ranked
    ]
    if not verdicts:
        raise UserError("There is no score table to write: none of the runs may be ranked.")
    table = score_table(verdicts, metric, families_of(graded.cases) if graded else {})
    say(f"opsassay: score table: {write_scores(table, path)}")


def _write_tables(path: Path, graded: Graded, profile: str) -> None:
    from opsassay.bench.core.tables import markdown
    from opsassay.bench.domains.diagnosis.results import results_tables
    from opsassay.telemetry.content import whole_file

    tables = results_tables(graded.labelled(), graded.cases, graded.not_ranked())
    made = f"Made by `opsassay grade --tables` under the profile `{profile}`, of {len(graded.counted())} runs."
    with whole_file(path) as partial:
        partial.write_text(markdown("Results", [made], tables), encoding="utf-8")
    say(f"opsassay: tables: {path}")


def _items(graded: Graded) -> list[dict[str, Any]]:
    return [_item(run, verdict) for run, verdict in zip(graded.runs, graded.verdicts, strict=True)]


def _item(run: Run, verdict: Verdict) -> dict[str, Any]:
    from opsassay.bench.core.ranking import why_not_ranked

    return {
        "run": verdict.run,
        "case": verdict.item,
        "system": verdict.system,
        "solver": verdict.solver,
        "label": verdict.label,
        "not_ranked": list(why_not_ranked(run)),
        "metrics": {name: metric.model_dump(mode="json") for name, metric in verdict.metrics.items()},
    }


def _cell(row: dict[str, Any] | None) -> str:
    if row is None or row["mean"] is None:
        return "n/a"
    interval = f" [{percent(row['low'])}, {percent(row['high'])}]" if row["low"] is not None else ""
    return f"{percent(row['mean'])}{interval} ({row['cases']})"
