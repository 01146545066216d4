"""opsassay trials."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from opsassay.cli.output import echo, json_option, otlp_option, print_json, print_table, print_tables, runs_sent, say
from opsassay.core.text import counted

if TYPE_CHECKING:
    from opsassay.evals.remediation.rows import Trials
    from opsassay.evals.runner.grading import GradedRuns
    from opsassay.evals.runner.tables import ResultTable

_FIGURES = {"figure5": "Figure 5.", "figure6": "Figure 6.", "pass@k": "pass@k"}
_NUMBERS = [*map(str, (4, *range(8, 16), *range(17, 22))), *_FIGURES]
STORE = click.argument("store", type=click.Path(exists=True, file_okay=False, path_type=Path))


@click.group("trials")
def command() -> None:
    """Run agents on remediation scenarios, judge the whole trajectory, make the paper's tables of it."""


@command.command("run")
@click.argument("plan", type=click.Path(dir_okay=False, path_type=Path))
@click.option("-o", "--output", required=True, type=click.Path(file_okay=False, path_type=Path), help="Store of runs.")
@click.option("-j", "--jobs", type=click.IntRange(min=1), default=1, show_default=True, help="Trials side by side.")
@click.option("--dry-run", is_flag=True, help="List the trials and what is done; run nothing.")
@click.option(
    "--table", "numbers", multiple=True, type=click.Choice(_NUMBERS), help="Then print this table of the store."
)
@otlp_option
@json_option
@click.pass_context
def run(
    context: click.Context,
    plan: Path,
    output: Path,
    jobs: int,
    numbers: tuple[str, ...],
    otlp: str | None,
    *,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Run every trial of PLAN that has no result yet: agents x scenarios x prompt arms x probe arms x repeats.

    Exits with 1 when a trial came to no result.
    """
    from opsassay.core.schema.progress import ProgressLines
    from opsassay.evals.remediation.plan import load_trial_plan
    from opsassay.evals.remediation.preflight import require_sound
    from opsassay.evals.remediation.trials import run_trials
    from opsassay.evals.runner.store import RunStore

    _, trials = load_trial_plan(plan)
    require_sound(trials)
    store = RunStore(output)
    say(
        f"opsassay: {_estimate([one.granted_s for one in trials if not store.finished(one.cell.hash)], len(trials), jobs)}."
    )
    if not dry_run:
        with runs_sent(store, otlp) as events:
            run_trials(store, trials, jobs, progress=ProgressLines(say))
        events()
    items: list[dict[str, Any]] = []
    for trial in trials:
        folder = store.finished(trial.cell.hash)
        items.append(
            {
                "scenario": trial.scenario.id,
                "agent": trial.agent.name,
                "arm": trial.prompt_arm,
                "probes": trial.probes,
                "seed": trial.seed,
                "attempts": len(store.attempts_of(trial.cell.hash)),
                "run": str(folder) if folder else None,
                "metrics": _metrics(folder) if folder else {},
            }
        )
    tables = _chosen(_graded(output), numbers) if numbers and not dry_run else []
    if as_json:
        print_json("trials run", items, tables=[one.as_item() for one in tables])
    else:
        columns = (
            "scenario",
            "agent",
            "prompt",
            "probes",
            "seed",
            "outcome",
            "V_temporal",
            "V_depth",
            "V_probe",
            "certificate",
        )
        rows = [
            (i["scenario"], i["agent"], i["arm"], "on" if i["probes"] else "off", i["seed"], *_marks(i["metrics"]))
            for i in items
        ]
        print_table("Trials", columns, rows)
        print_tables(tables)
    context.exit(0 if dry_run or all(item["run"] and item["metrics"] for item in items) else 1)


@command.command("grade")
@STORE
@click.option("--profile", type=click.Choice(["default", "paper"]), help="Instead of the committed one: a what-if.")
@click.option("--scenario", "file", help="A scenario file or name; must be what the runs were begun with.")
@click.option("--what-if", is_flag=True, help="Grade by another file than was committed; never ranked.")
@json_option
@click.pass_context
def grade(context: click.Context, store: Path, profile: Any, file: str | None, *, what_if: bool, as_json: bool) -> None:
    """Grade the trials of STORE again, by what was committed before each run."""
    from opsassay.core.errors import NotFoundError, OpsAssayError, UserError
    from opsassay.evals.remediation.grading import grade_trial, kept_scenario, recorded_trials, require_trials
    from opsassay.evals.runner.ranking import why_not_ranked
    from opsassay.evals.runner.store import RunStore, read_run
    from opsassay.testbed.scenarios import load_scenario

    if what_if and file is None:
        raise UserError("--what-if grades by another file than was committed; say with --scenario which one.")
    other = load_scenario(file) if file else None
    begun_runs = [(run_dir, read_run(run_dir)) for run_dir in recorded_trials(RunStore(require_trials(store)))]
    if other is not None and other.id not in {begun.item for _, begun in begun_runs}:
        raise NotFoundError(f"trial in {store} of the scenario", other.id, {begun.item for _, begun in begun_runs})
    items: list[dict[str, Any]] = []
    problems = 0
    for run_dir, begun in begun_runs:
        if other is not None and begun.item != other.id:
            continue
        try:
            scenario = other or kept_scenario(store, begun.item_hash)
            verdict = grade_trial(run_dir, scenario, profile=profile, what_if=what_if)
        except OpsAssayError as error:
            if isinstance(error, UserError) and other is not None:
                raise
            say(f"{run_dir}: {error}")
            problems += 1
            continue
        metrics = {name: metric.model_dump(mode="json") for name, metric in verdict.metrics.items()}
        items.append(
            {
                "run": str(run_dir),
                "scenario": begun.item,
                "agent": begun.solver.name,
                "arm": begun.arm,
                "seed": begun.seed,
                "profile": verdict.profile,
                "what_if": verdict.what_if,
                "not_ranked": list(why_not_ranked(begun)),
                "metrics": metrics,
                "judgements": [judgement.model_dump(mode="json") for judgement in verdict.judgements],
            }
        )
    if as_json:
        print_json("trials grade", items)
    else:
        columns = ("scenario", "agent", "arms", "seed", "says", "why")
        rows = [
            (
                i["scenario"],
                i["agent"],
                i["arm"],
                i["seed"],
                i["judgements"][-1]["status"],
                i["judgements"][-1]["reason"],
            )
            for i in sorted(items, key=lambda i: (i["scenario"], i["agent"], i["arm"], i["seed"]))
        ]
        print_table("What-if" if any(i["what_if"] for i in items) else "Certificates", columns, rows)
    context.exit(1 if problems else 0)


@command.command("table")
@STORE
@click.argument("number", nargs=-1, type=click.Choice(_NUMBERS), metavar="[NUMBER]...")
@json_option
@click.pass_context
def table(context: click.Context, store: Path, number: tuple[str, ...], *, as_json: bool) -> None:
    """Print Tables 8 to 15 of "Side Effects Are the Output" over the trials of STORE, or those that are numbered.

    Tables 4 and 17 to 21 are those of ITBench, as are pass@k and what its Figures 5 and 6 show.
    """
    graded = _graded(store)
    found = _chosen(graded, number)
    if as_json:
        print_json("trials table", [one.as_item() for one in found], problems=graded.problems)
    else:
        print_tables(found)
    context.exit(1 if graded.problems else 0)


@command.command("sweep")
@STORE
@click.option("--all-arms", is_flag=True, help="Every trial, not only the baseline prompt with probes on.")
@json_option
@click.pass_context
def sweep_command(context: click.Context, store: Path, *, all_arms: bool, as_json: bool) -> None:
    """Score the trials of STORE again under the paper's 144 settings of four thresholds, without a new run."""
    from opsassay.core.errors import UserError
    from opsassay.evals.remediation.sweep import sweep

    trials = _trials(store)
    chosen = trials.recorded if all_arms else trials.main_slice()
    if not chosen and trials.recorded:
        raise UserError(f"{store} holds no trial of the main slice (baseline prompt, probes on); --all-arms takes all.")
    swept = sweep(chosen)
    items = [
        {**one.setting._asdict(), **{name: value for name, value in vars(one).items() if name != "setting"}}
        for one in swept
    ]
    hidden = sorted(one.hidden for one in swept)
    p_values = [one.p_value for one in swept if one.p_value is not None]
    summary: dict[str, Any] = {
        "settings": len(swept),
        "hidden": [hidden[0], hidden[-1]],
        "outcome": [min(s.outcome for s in swept), max(s.outcome for s in swept)],
        "largest_p": max(p_values, default=None),
    }
    if as_json:
        print_json("trials sweep", items, summary=summary, problems=trials.problems)
    else:
        columns = (
            "floor",
            "stall (s)",
            "window (s)",
            "cadence",
            "outcome",
            "conj.",
            "hidden",
            "D1-check",
            "deeper-check",
        )
        rows = [
            (f"{i['floor_availability']:.2f}", i["probe_latency_limit_s"], i["probe_attribution_s"],
             f"x{i['cadence_factor']:g}", f"{i['outcome']}/{i['runs']}", f"{i['conjunction']}/{i['runs']}",
             f"{i['hidden']}/{i['outcome']}", f"{i['d1_hidden']}/{i['d1_outcome']}",
             f"{i['deeper_hidden']}/{i['deeper_outcome']}")
            for i in items
        ]  # fmt: skip
        print_table("Sweep", columns, rows)
        largest = summary["largest_p"]
        said = "no test is defined" if largest is None else f"largest Fisher exact p {largest:.2g}"
        echo(f"{len(swept)} settings: hidden failures from {hidden[0]} to {hidden[-1]}; {said}.")
    context.exit(1 if trials.problems else 0)


@command.command("report")
@STORE
@click.option(
    "-o", "--output", required=True, type=click.Path(file_okay=False, path_type=Path), help="Folder of pages."
)
@click.pass_context
def report(context: click.Context, store: Path, output: Path) -> None:
    """Write one page per trial of STORE, lanes, deciding ticks and steps on one clock, and an index of all trials."""
    from opsassay.evals.remediation.grading import require_trials
    from opsassay.evals.runner.store import RunStore
    from opsassay.ui.reports import PageRequest, write_index_of, write_trial_pages

    request = PageRequest(RunStore(require_trials(store)), output, title="Trials")
    problems = write_trial_pages(request, click.echo)
    write_index_of(request, click.echo)
    for problem in problems:
        say(problem)
    context.exit(1 if problems else 0)


def _graded(store: Path) -> GradedRuns:
    from opsassay.evals.remediation.domain import SRE_DOMAIN
    from opsassay.evals.runner.grading import GradeSettings

    graded = SRE_DOMAIN.grade({store: None}, GradeSettings())
    for folder, problem in graded.problems.items():
        say(f"{folder}: {problem}")
    return graded


def _chosen(graded: GradedRuns, numbers: tuple[str, ...]) -> list[ResultTable]:
    """Return the tables that are numbered or named, all when none is."""
    titles = tuple(_FIGURES[name] for name in numbers if name in _FIGURES)
    return [
        one
        for one in graded.results()
        if not numbers or str(one.number) in numbers or (titles and one.title.startswith(titles))
    ]


def _estimate(left_s: Sequence[float], count: int, jobs: int) -> str:
    """Return how many trials are left and how long they take at most, *jobs* side by side."""
    if not left_s:
        return f"nothing is left of {counted(count, 'trial')}"
    longest = timedelta(seconds=round(max(sum(left_s) / jobs, *left_s)))
    beside = f", {jobs} side by side" if jobs > 1 else ""
    return f"left: {len(left_s)} of {counted(count, 'trial')}, at most {longest}{beside}, plus deployment and removal"


def _trials(store: Path) -> Trials:
    from opsassay.evals.remediation.rows import Trials

    trials = Trials(store)
    for folder, problem in trials.problems.items():
        say(f"{folder}: {problem}")
    return trials


def _metrics(folder: Path) -> dict[str, float | None]:
    """Return the metrics of the committed verdict, none when the run could not be graded."""
    from opsassay.evals.runner.store import read_verdicts

    committed = [v for v in read_verdicts(folder) if v.profile in {"default", "paper"}]
    return {name: metric.value for name, metric in committed[0].metrics.items()} if committed else {}


def _marks(metrics: dict[str, float | None]) -> list[str | None]:
    names = ("v_outcome", "v_temporal", "v_depth", "v_probe", "certificate")
    words = {1.0: "✓", 0.0: "×", None: None}
    return [words[metrics.get(name)] for name in names]
