"""opsassay run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from opsassay.cli.completion import SOLVER
from opsassay.cli.output import (
    FOLDER,
    cases_apart,
    echo,
    json_option,
    otlp_option,
    print_json,
    print_tables,
    runs_sent,
    say,
)
from opsassay.core.text import plural

if TYPE_CHECKING:
    from opsassay.evals.diagnosis.results.repeats import SolverSummary
    from opsassay.evals.diagnosis.setups.agents import RunSettings
    from opsassay.evals.runner.run import RunEnd
    from opsassay.telemetry.tree import Case


@click.command("run")
@click.argument("suite", type=click.Path(path_type=Path), metavar="SUITE|PLAN")
@click.option(
    "-a",
    "--agent",
    "agents",
    type=SOLVER,
    multiple=True,
    help="Agent, agent.yaml or method; repeat for more. A PLAN has its own.",
)
@click.option("--model", help="scripted:FILE, replayed:SESSION, or a model of OPENAI_BASE_URL.")
@click.option("--repeats", type=click.IntRange(1, 1000), default=1, show_default=True, help="Runs of every incident.")
@click.option("-j", "--jobs", type=click.IntRange(1, 256), default=1, show_default=True, help="Runs side by side.")
@click.option("-o", "--output", type=FOLDER, help="Folder of the run store; SUITE itself when left out.")
@click.option("--sweep", "sweeps", multiple=True, help="Parameters to try: alert-count.z=2.5,3,3.5, or a YAML file.")
@click.option(
    "-c",
    "--change",
    "changes",
    multiple=True,
    metavar="KEY=VALUE",
    help="A setting, as in mask.drop=logs, or a parameter of a method, as in alert-count.z=2.5.",
)
@otlp_option
@json_option
@click.pass_context
def command(
    context: click.Context, suite: Path, agents: tuple[str, ...], model: str | None, repeats: int, jobs: int,
    output: Path | None, sweeps: tuple[str, ...], changes: tuple[str, ...], otlp: str | None, *, as_json: bool,
) -> None:  # fmt: skip
    """Run agents on the incidents of SUITE, or all runs of the file PLAN, of any domain; runs with a result are kept.

    SUITE is a suite or any folder of incidents; --sweep: parameter values to try, --change: a setting. With --otlp a
    receiver gets each step of an agent as a gen_ai span, grades as evaluation events, and a live system's telemetry.
    """
    if suite.suffix in (".yaml", ".yml"):
        given = {"-a": agents, "--model": model, "--sweep": sweeps, "-c": changes, "--repeats": repeats > 1}
        context.exit(
            _run_plan(suite, output, jobs, [name for name, value in given.items() if value], otlp, as_json=as_json)
        )
    if suite.is_file():
        from opsassay.core.errors import UserError

        raise UserError(
            f"{suite} is neither a folder of incidents nor a plan, whose name ends with .yaml; check the path."
        )
    if not agents:
        raise click.UsageError("Missing option '-a' / '--agent'.", context)
    from opsassay.cli.live_table import run_table
    from opsassay.evals.diagnosis.plan import estimate, plan, require_apart_from
    from opsassay.evals.diagnosis.results.repeats import summary_tables
    from opsassay.evals.diagnosis.setups.agents import Setup, read_settings
    from opsassay.evals.diagnosis.setups.sweeps import asked_method, is_asked_method, solvers_named, with_changes
    from opsassay.evals.diagnosis.tasks import open_suite
    from opsassay.evals.runner.queue import make_runs
    from opsassay.evals.runner.store import FINISHED, RunStore
    from opsassay.scoring.profiles import profile_named

    asked, others = with_changes([asked_method(name) for name in agents if is_asked_method(name)], changes, sweeps)
    settings = read_settings(others)
    profile_named(settings.profile)
    solvers = solvers_named(agents, model, settings, asked)
    problems: list[str] = []
    opened = open_suite(suite, lambda _, error: problems.append(str(error)))
    for problem in problems:
        say(f"opsassay: left out: {problem}")
    store = RunStore(output or suite)
    work = plan(opened, solvers, repeats, settings)
    require_apart_from(store, work)
    if any(isinstance(solver, Setup) and solver.paid for solver in solvers):
        expected = estimate(store, work, settings.price, repeat=settings.again)
        say(f"opsassay: {expected.sentence()}.")
    with runs_sent(store, otlp) as events, run_table(len(work)) as table:
        made = list(make_runs(store, work, jobs, table))
    cases = [case for case, _ in opened]
    summaries, verdicts = _grade_runs(store, cases, made, settings, repeats)
    events()
    items = [_run_as_json(one) for one in made]
    if as_json:
        print_json("run", items, summary=[s.as_item() for s in summaries], problems=problems, profile=settings.profile)
    else:
        print_tables(summary_tables(summaries, repeats))
        if not verdicts:
            ended = any(status in FINISHED for s in summaries for status in s.statuses)
            why = "no truth is at hand for these incidents" if ended else "no run came to a result"
            echo(f"Nothing was graded: {why}.")
        echo(f"{plural(len(made), 'run')} in {store.root / 'runs'}. {_next_step(items, suite, output)}")
    context.exit(1 if problems or any(item["status"] != "done" for item in items) else 0)


def _run_plan(
    path: Path, output: Path | None, workers: int, extra_options: list[str], otlp: str | None, *, as_json: bool
) -> int:
    """Run the plan *path* into the store *output*; return the exit code. Raises UserError for any *extra_options*."""
    from opsassay.cli.live_table import run_table
    from opsassay.core.errors import UserError
    from opsassay.evals.runner.plan import load_plan
    from opsassay.evals.runner.queue import make_runs
    from opsassay.evals.runner.results import row_of, solver_tables
    from opsassay.evals.runner.store import RunStore

    if extra_options:
        raise UserError(f"{', '.join(extra_options)}: a plan says that itself; write it into {path}, or give a suite.")
    if output is None:
        raise UserError("A plan is run into a store of its own; name its folder with -o DIR.")
    jobs = load_plan(path)
    store = RunStore(output)
    with runs_sent(store, otlp) as events, run_table(len(jobs)) as table:
        rows = [row_of(end) for end in make_runs(store, jobs, workers, table)]
    events()
    if as_json:
        print_json("run", [row.as_item() for row in rows], plan=str(path))
    else:
        print_tables(solver_tables(rows))
        next_ = f"Next: `opsassay view {output}`; as files `opsassay report {output} -o DIR`."
        echo(f"{plural(sum(row.run is not None for row in rows), 'run')} in {store.runs_dir}. {next_}")
    return 0 if all(row.run and row.run.status.value == "done" and not row.problem for row in rows) else 1


def _next_step(items: list[dict[str, Any]], suite: Path, output: Path | None) -> str:
    """Return a sentence for the end of the output: repeat the command if runs aborted, else view and score the store."""
    if aborted := sum(item["status"] == "aborted" for item in items):
        return f"{aborted} of them aborted; the same command makes these again."
    store = f"{output or suite}{cases_apart(suite, output)}"
    return f"Next: `opsassay view {store}`; for every metric `opsassay score run {store}`."


def _grade_runs(
    store: Any, cases: list[Case], ends: list[RunEnd], settings: RunSettings, repeats: int
) -> tuple[list[SolverSummary], list[Any]]:
    """Grade the runs of *ends* by the truth in *cases*, print failures; return (summaries of solvers, verdicts)."""
    from opsassay.evals.diagnosis.results.repeats import summarise_runs
    from opsassay.evals.diagnosis.score import grade_all
    from opsassay.evals.runner.ranking import run_id
    from opsassay.scoring.profiles import profile_named

    runs = [one.run for one in ends if one.run is not None]
    ours = {run_id(run) for run in runs}
    true = [case for case in cases if case.truth is not None]
    hashes = {one.job.item.content_hash for one in ends if one.job.case.truth is not None}
    verdicts = grade_all(
        store, true, profile_named(settings.profile), lambda _, error: say(f"opsassay: not graded: {error}"),
        run_filter=lambda run: run_id(run) in ours and run.item_hash in hashes,
    ) if true else []  # fmt: skip
    return summarise_runs(runs, verdicts, cases, repeats), verdicts


def _run_as_json(end: RunEnd) -> dict[str, Any]:
    """Return the end of one run as an item of JSON; also for a job that was not run."""
    from opsassay.evals.runner.ranking import why_not_ranked

    run = end.run
    return {
        "case": end.job.case.name,
        "solver": end.job.solver_name,
        "seed": end.job.seed,
        "status": run.status.value if run else "not run",
        "error": run.error if run else end.error,
        "isolation": run.isolation if run else None,
        "limits_hit": list(run.limits_hit) if run else [],
        "flags": list(run.flags) if run else [],
        "not_ranked": list(why_not_ranked(run)) if run else [],
        "spent": dict(run.spent) if run else {},
        "run": str(end.run_dir) if end.run_dir else None,
    }
