"""assay grade."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from assay.cli.output import json_option, percent, print_json, print_table, say

SHOWN = (
    "exact_match", "any_service", "f1", "path_reachability", "ungrounded", "edge_f1", "sql_exec", "evidence_relevant",
)  # fmt: skip


@click.command("grade")
@click.argument("store", type=click.Path(path_type=Path))
@click.option(
    "--cases", type=click.Path(path_type=Path), help="Tree with incidents and truth; STORE itself when left out."
)
@click.option("--profile", default="default", show_default=True, help="default, lenient or compat.")
@click.option("--scores", type=click.Path(path_type=Path), help="CSV file to write the score table to.")
@click.option("--metric", default="any_service", show_default=True, help="Metric of the score table.")
@json_option
@click.pass_context
def command(
    context: click.Context,
    store: Path,
    cases: Path | None,
    profile: str,
    scores: Path | None,
    metric: str,
    *,
    as_json: bool,
) -> None:
    """Grade every finished run of STORE against the truth; every grade is a value, or the reason why there is none."""
    from assay.bench.grades import grade_all
    from assay.bench.scores import modal_answers, score_table, write_scores
    from assay.bench.store import RunStore
    from assay.errors import NotFoundError, UserError
    from assay.grading.aggregate import summarise
    from assay.grading.profiles import PROFILES
    from assay.telemetry.tree import resolve

    if profile not in PROFILES:
        raise NotFoundError("grading profile", profile, PROFILES)
    runs = RunStore(store)
    if not list(runs.runs()):
        raise UserError(f"{store} holds no runs; make some with `assay diagnose`.")
    problems: list[str] = []
    known = resolve(cases or store)
    verdicts = grade_all(runs, known, PROFILES[profile], lambda _, error: problems.append(str(error)))
    for problem in problems:
        say(f"assay: not graded: {problem}")
    if scores is not None:
        unranked = _not_ranked(runs)
        if left_out := [verdict for verdict in verdicts if verdict.run in unranked]:
            say(f"assay: {len(left_out)} runs are left out of the score table: they ran unsealed or are flagged")
        fit = [verdict for verdict in verdicts if verdict.run not in unranked]
        incidents = [case.datapack.incident for case in known]
        families = {i.id: str(i.provenance["format"]) for i in incidents if "format" in i.provenance}
        say(f"assay: score table: {write_scores(score_table(fit, metric, families), scores)}")
    collapsed = [a for a in modal_answers(_answers(runs)) if a.collapsed]
    if as_json:
        modal = [{"solver": a.solver, "service": a.service, "share": a.share, "cases": a.cases} for a in collapsed]
        items = [_item(verdict) for verdict in verdicts]
        print_json("grade", items, profile=profile, problems=problems, collapsed=modal)
    else:
        summary = summarise(verdicts).filter(_pooled())
        rows = [
            (solver, *(_cell(summary, solver, metric) for metric in SHOWN)) for solver in sorted(set(summary["solver"]))
        ]
        print_table(f"Grades ({profile}), mean over incidents [95% interval] (n)", ("solver", *SHOWN), rows)
        for answer in collapsed:
            said = answer.service or "nothing is wrong"
            click.echo(f"Collapsed: {answer.solver} answers {said} in {percent(answer.share)} of {answer.cases} cases.")
        click.echo(f"{len(verdicts)} verdicts. Next: `assay report {store} -o DIR`.")
    context.exit(1 if problems else 0)


def _not_ranked(runs: Any) -> set[str]:
    from assay.bench.repeats import why_not_ranked
    from assay.bench.store import read_run

    found = (read_run(run_dir) for run_dir in runs.runs())
    return {f"{run.cell}/{run.attempt}" for run in found if why_not_ranked(run)}


def _answers(runs: Any) -> Any:
    from assay.bench.store import read_diagnosis, read_run

    for run_dir in runs.runs():
        run, diagnosis = read_run(run_dir), read_diagnosis(run_dir)
        if diagnosis is not None:
            yield run.solver.name, run.system, diagnosis


def _pooled() -> Any:
    import polars as pl

    return pl.col("scope") == "all"


def _item(verdict: Any) -> dict[str, Any]:
    metrics = {name: metric.model_dump(mode="json") for name, metric in verdict.metrics.items()}
    return {
        "run": verdict.run,
        "case": verdict.item,
        "system": verdict.system,
        "solver": verdict.solver,
        "label": verdict.label,
        "metrics": metrics,
    }


def _cell(summary: Any, solver: str, metric: str) -> str | None:
    import polars as pl

    found = summary.filter((pl.col("solver") == solver) & (pl.col("metric") == metric)).to_dicts()
    if not found or found[0]["mean"] is None:
        return "n/a"
    row = found[0]
    interval = f" [{percent(row['low'])}, {percent(row['high'])}]" if row["low"] is not None else ""
    return f"{percent(row['mean'])}{interval} ({row['cases']})"
