"""assay grade."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from assay.cli.output import json_option, percent, print_json, print_table, say

SHOWN = ("exact_match", "any_service", "f1", "path_reachability", "ungrounded", "node_f1", "edge_f1", "sql_exec")


@click.command("grade")
@click.argument("store", type=click.Path(path_type=Path))
@click.option(
    "--cases", type=click.Path(path_type=Path), help="Tree with incidents and truth; STORE itself when left out."
)
@click.option("--profile", default="default", show_default=True, help="default, lenient or compat.")
@json_option
@click.pass_context
def command(context: click.Context, store: Path, cases: Path | None, profile: str, *, as_json: bool) -> None:
    """Grade every finished run of STORE against the truth; every grade is a value, or the reason why there is none."""
    from assay.bench.grades import grade_all
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
    verdicts = grade_all(runs, resolve(cases or store), PROFILES[profile], lambda _, error: problems.append(str(error)))
    for problem in problems:
        say(f"assay: not graded: {problem}")
    if as_json:
        print_json("grade", [_item(verdict) for verdict in verdicts], profile=profile, problems=problems)
    else:
        summary = summarise(verdicts).filter(_pooled())
        rows = [
            (solver, *(_cell(summary, solver, metric) for metric in SHOWN)) for solver in sorted(set(summary["solver"]))
        ]
        print_table(f"Grades ({profile}), mean over incidents [95% interval] (n)", ("solver", *SHOWN), rows)
        click.echo(f"{len(verdicts)} verdicts. Next: `assay report {store} -o DIR`.")
    context.exit(1 if problems else 0)


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
