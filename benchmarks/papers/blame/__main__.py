"""python -m benchmarks.papers.blame: bench, scores, table, labels, training."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, TypeVar, cast, get_args

import click

from opsassay.analysis.blame.answers import read_answers
from opsassay.analysis.blame.attribute import JOINED, names
from opsassay.analysis.blame.labelled import read_labelled
from opsassay.cli.output import FILE, FOLDER, echo, json_option, print_json, print_table, print_tables, say
from opsassay.core.errors import NotFoundError, UserError
from opsassay.core.schema.base import Written
from opsassay.core.schema.files import load_yaml
from opsassay.core.schema.overrides import with_changes
from opsassay.core.schema.progress import ProgressLines
from opsassay.core.schema.trajectory import LabelledTrace
from opsassay.core.text import plural
from opsassay.evals.runner.tables import markdown, percent
from opsassay.solvers.agents.models import model_named
from opsassay.solvers.agents.models.base import Model
from opsassay.telemetry.content import whole_file

from ..running import run
from .bench import OF_PAPERS, Bench, BenchRow
from .bench import bench as compare
from .labels import label_tables
from .prompts import read_prompts
from .reruns import reruns_in
from .score_table import BlameMetric, score_table, write_score_table
from .settings import BenchSettings, Scorer
from .tables import published_tables
from .training import training_items

_W = TypeVar("_W", bound=Written)
_PATH = click.Path(path_type=Path)
ARMS = {"response-only": ("metadata=false", "inputs=false")}
"""Settings by the name of an arm: response-only is all that Who&When records ("trace-elephant", 4.2.3)."""
_scorer_option = click.option(
    "--scorer",
    type=click.Choice(get_args(Scorer)),
    help="How answers are held against labels; exact where nothing says.",
)


@click.group("blame")
def cli() -> None:
    """Compare attribution techniques on labelled traces."""


@cli.command("bench")
@click.argument("folder", type=_PATH)
@click.option(
    "--technique", "techniques", multiple=True, help="A technique to compare with the rules; repeat for more."
)
@click.option("--model", help="scripted:FILE, replayed:SESSION, or a model of OPENAI_BASE_URL.")
@click.option(
    "-o", "--output", type=FOLDER, help="Folder that keeps every answer as it ends; it is gone on from there."
)
@click.option("-j", "--jobs", type=click.IntRange(1, 256), default=1, show_default=True, help="Questions side by side.")
@click.option("--budget", type=click.FloatRange(min=0), help="USD that are never passed; needs a price of the model.")
@click.option("--reruns", type=_PATH, help="YAML of how traces are run again: dynamic, counterfactual, spectrum.")
@click.option("--prompts", type=_PATH, help="YAML of a paper's own prompts: techniques prompts:all-at-once and so on.")
@click.option("--arm", type=click.Choice(list(ARMS)), help="What is shown: response-only has the outputs alone.")
@click.option(
    "--config", type=_PATH, help="YAML of settings: what is shown, runs, prices, the context and long traces."
)
@click.option("-c", "changes", multiple=True, metavar="KEY=VALUE", help="One setting, as in -c runs=1.")
@_scorer_option
@json_option
@click.pass_context
def bench(
    context: click.Context, folder: Path, techniques: tuple[str, ...], model: str | None, output: Path | None, jobs: int,
    budget: float | None, reruns: Path | None, prompts: Path | None, arm: str | None, config: Path | None,
    changes: tuple[str, ...], scorer: str | None, *, as_json: bool,
) -> None:  # fmt: skip
    """Compare techniques on the labelled traces in FOLDER; the rule-based rows are always there.

    Exit 1 when the model gave no answer to a question, or the budget ended first; the same command goes on from there.
    """
    published = read_prompts(prompts) if prompts else {}
    known = [*names(), *OF_PAPERS, *published]
    for technique in techniques:
        if technique not in known:
            raise NotFoundError("attribution technique", technique, known)
        if technique == JOINED:
            raise UserError("The technique 'joined' reads run folders, which a benchmark of traces has not.")
    settings = _changed(BenchSettings, config, _with_scorer((*ARMS.get(arm or "", ()), *changes), scorer))
    price = settings.prices.get(model) if model else None
    if budget is not None and model is not None and price is None:
        raise UserError(
            f"A budget needs the price of {model}; write prices: {{{model}: {{input: USD, output: USD}}}} per million "
            "tokens into the file of --config."
        )
    cases = _labelled(folder)
    how = Bench(
        settings=settings,
        model=_model(model, settings.answer_tokens if budget is not None else None),
        rerun_of=reruns_in(reruns, settings) if reruns else lambda _: None,
        folder=output,
        jobs=jobs,
        price=price,
        budget=budget,
        progress=ProgressLines(lambda text: say(f"opsassay: {text}")),
        prompts=published,
    )
    result = compare(cases, techniques, how)
    for technique, count in result.left_out.items():
        say(f"opsassay: {technique}, {count} of {len(cases)} cannot be run again and are left out")
    failed = sum(answer.failed is not None for answer in result.answers)
    if as_json:
        scoring = settings.scorer
        shown = {
            name: getattr(settings, name) for name in ("reference", "metadata", "inputs", "truncate_middle", "long")
        }
        totals = {"failed": failed, "open": result.open, "stopped": result.stopped, "spent": result.spent}
        print_json("bench", [_bench_item(row) for row in result.rows], scoring=scoring, shown=shown, **totals)
    else:
        _print_bench(result.rows, scorer=settings.scorer)
        if price is not None:
            echo(f"Spent: {result.spent:.4f} USD" + ("" if budget is None else f" of {budget:g}") + ".")
    if result.stopped:
        say(f"opsassay: open: {plural(result.open, 'question')}: {result.stopped}")
    if failed:
        say(f"opsassay: failed and in no mean: {plural(failed, 'question')}; the same command asks again.")
    context.exit(1 if failed or result.stopped else 0)


@cli.command("scores")
@click.argument("answers", type=_PATH)
@click.argument("folder", type=_PATH)
@click.option("-o", "--output", type=FILE, required=True, help="CSV file to write, for `opsassay audit`.")
@click.option(
    "--metric",
    type=click.Choice(["agent", "step", "near"]),
    default="step",
    show_default=True,
    help="What is the score.",
)
@click.option("-c", "changes", multiple=True, metavar="KEY=VALUE", help="One setting, as in -c tolerance=2.")
@_scorer_option
def scores(
    answers: Path, folder: Path, output: Path, metric: str, changes: tuple[str, ...], scorer: str | None
) -> None:
    """Write ANSWERS, as `bench FOLDER -o ANSWERS` kept them, scored by the labels in FOLDER, for `opsassay audit`."""
    settings = _changed(BenchSettings, None, _with_scorer(changes, scorer))
    table = score_table(answers, _labelled(folder), cast("BlameMetric", metric), settings)
    write_score_table(table, output)
    missing = table["score"].null_count()
    echo(f"Written: {output}; {table.height} scores, {missing} of them empty.")


@cli.command("table")
@click.argument("answers", type=_PATH)
@click.argument("folder", type=_PATH)
@click.option("-c", "changes", multiple=True, metavar="KEY=VALUE", help="One setting, as in -c scorer=exact.")
@_scorer_option
@json_option
def table(answers: Path, folder: Path, changes: tuple[str, ...], scorer: str | None, *, as_json: bool) -> None:
    """Print Tables 2 and 3 of TraceElephant of ANSWERS, as `bench` or `opsassay score import` kept them."""
    settings = _changed(BenchSettings, None, _with_scorer(changes, scorer))
    tables = published_tables(read_answers(answers), _labelled(folder), settings)
    if as_json:
        print_json("table", [one.as_item() for one in tables], scoring=settings.scorer)
    else:
        print_tables(tables)


@cli.command("labels")
@click.argument("folder", type=_PATH)
@click.option("--answers", type=_PATH, help="Folder of answers: how often each technique names its favourite.")
@click.option("-o", "--output", type=FILE, help="Markdown page to write instead.")
@json_option
def labels(folder: Path, answers: Path | None, output: Path | None, *, as_json: bool) -> None:
    """Print how the labels in FOLDER are distributed: agents, kinds of agents, steps; with --answers what is predicted."""
    cases = _labelled(folder)
    tables = label_tables(cases, read_answers(answers) if answers else ())
    if output is not None:
        lines = [f"{plural(len(cases), 'labelled trace')} of {folder.name}."]
        with whole_file(output) as partial:
            partial.write_text(markdown("Labels", lines, tables), encoding="utf-8")
        echo(f"Written: {output}.")
    elif as_json:
        print_json("labels", [one.as_item() for one in tables])
    else:
        print_tables(tables)


@cli.command("training")
@click.argument("folder", type=_PATH)
@click.option("-o", "--output", type=FILE, required=True, help="JSONL file to write: a conversation for each trace.")
@click.option(
    "--held-out",
    type=click.FloatRange(0, 1, max_open=True),
    default=0.2,
    show_default=True,
    help="Share of tasks for test.",
)
@click.option("-c", "changes", multiple=True, metavar="KEY=VALUE", help="One setting, as in -c reference=false.")
def training(folder: Path, output: Path, held_out: float, changes: tuple[str, ...]) -> None:
    """Write the labelled traces in FOLDER as training data: the question of all-at-once, and the label as its answer."""
    items = training_items(_labelled(folder), _changed(BenchSettings, None, changes), held_out)
    with whole_file(output) as partial:
        partial.write_text("".join(json.dumps(item) + "\n" for item in items), encoding="utf-8")
    tests = sum(item["split"] == "test" for item in items)
    echo(f"Written: {output}; {len(items) - tests} to train on, {tests} held out.")


def _with_scorer(changes: tuple[str, ...], scorer: str | None) -> tuple[str, ...]:
    return (*changes, f"scorer={scorer}") if scorer else changes


def _changed(model: type[_W], config: Path | None, changes: tuple[str, ...]) -> _W:
    """Return the settings in *config* with *changes* on top; raises ConfigError."""
    file = load_yaml(config, model).model_dump(mode="json", exclude_unset=True) if config else {}
    return with_changes(model, file, changes, example="runs=1")


def _model(model: str | None, answer_tokens: int | None) -> Model | None:
    """Return the model called *model*, its answers no longer than *answer_tokens*; further tries are made one level up."""
    return None if model is None else model_named(model, retries=0, answer_tokens=answer_tokens)


def _labelled(folder: Path) -> list[LabelledTrace]:
    """Return the labelled traces in *folder*, with everything that is odd about them said."""
    cases = read_labelled(folder, lambda problem: say(f"opsassay: left out: {problem}"))
    for case in cases:
        for note in case.notes:
            say(f"opsassay: {case.id}: {note}; kept as it is")
    return cases


def _bench_item(row: BenchRow) -> dict[str, Any]:
    summary = row.summary
    return {
        "subset": row.subset,
        "technique": row.technique,
        "n": summary.n,
        "runs": row.runs,
        "agent_accuracy": summary.agent.value,
        "step_accuracy": summary.step.value,
        "step_within_accuracy": summary.step_within.value,
        "unanswered": summary.unanswered,
        "intervals": {"agent": [summary.agent.low, summary.agent.high], "step": [summary.step.low, summary.step.high]},
        "macro": {"agent": summary.macro_agent, "step": summary.macro_step},
        "by_agent_type": {name: part.as_json() for name, part in row.by_agent_type.items()},
        "by_third": {name: part.as_json() for name, part in row.by_third.items()},
        "failed": summary.failed,
        "calls": row.calls,
        "tokens": row.tokens,
        "price": row.price,
    }


def _print_bench(rows: list[BenchRow], *, scorer: str) -> None:
    thirds = "early / middle / late step"
    columns = ("technique", "n", "failed", "agent", "step", "near", "no answer", thirds, "calls", "tokens")
    for subset in dict.fromkeys(row.subset for row in rows):
        own = [row for row in rows if row.subset == subset]
        shown = [
            (
                row.technique,
                row.summary.n,
                row.summary.failed or "",
                row.summary.agent.text,
                row.summary.step.text,
                percent(row.summary.step_within.value),
                percent(row.summary.unanswered),
                " / ".join(_third(row, name) for name in ("early", "middle", "late")),
                f"{row.calls:.1f}",
                f"{row.tokens:.0f}",
            )
            for row in own
        ]
        scoring = "" if scorer == "exact" else f", scored as {scorer}"
        print_table(f"{subset}{scoring}; accuracy [95% interval]", columns, shown)


def _third(row: BenchRow, name: str) -> str:
    return percent(row.by_third[name].step.value) or "-" if name in row.by_third else "-"


if __name__ == "__main__":
    sys.exit(run(cli))
