"""opsassay export."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from itertools import chain
from pathlib import Path

import click

from opsassay.cli.default_group import DefaultGroup
from opsassay.cli.output import FILE, FOLDER, echo, json_option, otlp_option, print_json, say
from opsassay.core.text import counted

_PATH = click.Path(path_type=Path)


@click.group("export", cls=DefaultGroup, default="rcabench")
def command() -> None:
    """Write incidents, tasks and runs for other tools; incidents in the form of rcabench when none is named."""


@command.command("rcabench")
@click.argument("tree", type=_PATH)
@click.option("-o", "--output", required=True, type=FOLDER, help="Folder of the public-form datapacks.")
@json_option
def rcabench(tree: Path, output: Path, *, as_json: bool) -> None:
    """Write every incident of TREE with its truth in the public form: the folder name tells the answer."""
    from opsassay.core.errors import UserError
    from opsassay.telemetry.public import export_public
    from opsassay.telemetry.tree import Tree

    source = Tree(tree)
    if not source.ids():
        raise UserError(f"{tree} holds no incidents; give a folder made by `opsassay record` or `opsassay import`.")
    folders = export_public(source, output)
    if as_json:
        print_json("export", [{"datapack": str(folder)} for folder in folders])
    else:
        echo("\n".join(str(folder) for folder in folders))


@command.command("rewards")
@click.argument("store", type=_PATH)
@click.option("-o", "--output", required=True, type=FILE, help="File of JSON lines, one per step.")
@click.option("--cases", type=_PATH, help="Tree with incidents and truth; STORE itself when left out.")
@json_option
def rewards(store: Path, output: Path, cases: Path | None, *, as_json: bool) -> None:
    """Write a process reward for every step of the agents' runs of STORE, as TRL reads it."""
    from opsassay.core.errors import UserError
    from opsassay.evals.diagnosis.grades import cases_of
    from opsassay.evals.diagnosis.rewards import reward_lines
    from opsassay.evals.runner.store import RunStore
    from opsassay.telemetry.content import whole_file

    left_out: list[tuple[Path, str]] = []
    known = cases_of(store, cases, lambda _, error: say(f"opsassay: {error}"))
    lines = reward_lines(RunStore(store), known, lambda path, why: left_out.append((path, why)))
    first = next(lines, None)
    if first is None:
        lacking = f"{store} holds no run of an agent on an incident with a verified cascade{_first(left_out)}"
        raise UserError(f"{lacking}; annotate the incidents, then `opsassay run` one.")
    runs = Counter[str]()
    output.parent.mkdir(parents=True, exist_ok=True)
    with whole_file(output) as partial, partial.open("w", encoding="utf-8") as file:
        for line in chain([first], lines):
            file.write(json.dumps(line, ensure_ascii=False) + "\n")
            runs[line["run"]] += 1
    _say_left_out(left_out)
    if as_json:
        print_json("export rewards", [{"run": run, "steps": steps} for run, steps in runs.items()], output=output)
    else:
        echo(f"{counted(runs.total(), 'step')} of {counted(len(runs), 'run')}: {output}")


@command.command("atif")
@click.argument("path", type=_PATH)
@click.option("-o", "--output", required=True, type=FILE, help="File of the trajectory, as trajectory.json.")
@json_option
def atif(path: Path, output: Path, *, as_json: bool) -> None:
    """Write the trace of PATH (a run folder, a recorded session, a trace) in the agent trajectory interchange format."""
    from opsassay.solvers.proxy.formats import read_one
    from opsassay.solvers.proxy.formats.atif_writing import VERSION
    from opsassay.solvers.proxy.formats.export import write_trace

    found = read_one(path)
    write_trace(found, output, "atif")
    if as_json:
        print_json("export atif", [{"trace": found.task_id, "steps": len(found.steps)}], output=output, version=VERSION)
    else:
        echo(f"{counted(len(found.steps), 'step')} of {found.system_name} as {VERSION}: {output}")


@command.command("otel")
@click.argument("store", type=_PATH)
@click.option("-o", "--output", type=FILE, help="File of JSON lines, as the collector's file exporter writes them.")
@otlp_option
@json_option
def otel(store: Path, output: Path | None, otlp: str | None, *, as_json: bool) -> None:
    """Write or send the graded runs of STORE as gen_ai spans, with an evaluation event for each metric."""
    from opsassay.core.errors import UserError
    from opsassay.evals.runner.evaluation_events import exported_runs, push
    from opsassay.evals.runner.store import RunStore
    from opsassay.telemetry.content import whole_file

    if output is None and otlp is None:
        raise UserError("Nothing says where the runs go; give -o FILE, --otlp URL or both.")
    left_out: list[tuple[Path, str]] = []
    runs = list(exported_runs(RunStore(store), lambda path, why: left_out.append((path, why))))
    if not runs:
        raise UserError(f"{store} holds no graded run with a trace{_first(left_out)}.")
    if output is not None:
        output.parent.mkdir(parents=True, exist_ok=True)
        with whole_file(output) as partial, partial.open("w", encoding="utf-8") as file:
            for part in (part for run in runs for part in (run.spans, run.events)):
                file.write(json.dumps(part, ensure_ascii=False) + "\n")
    for run in runs if otlp is not None else ():
        push(run, str(otlp))
    _say_left_out(left_out)
    if as_json:
        items = [{"run": run.run, "metrics": run.metrics} for run in runs]
        print_json("export otel", items, output=output, otlp=otlp)
    else:
        places = " and ".join(str(place) for place in (output, otlp) if place is not None)
        echo(
            f"{counted(len(runs), 'run')} with {counted(sum(run.metrics for run in runs), 'evaluation event')}: {places}"
        )


@command.command("inspect")
@click.argument("store", type=_PATH)
@click.option("-o", "--output", required=True, type=_PATH, help="New folder of the logs, for `inspect view --log-dir`.")
@json_option
def inspect(store: Path, output: Path, *, as_json: bool) -> None:
    """Write the graded runs of STORE, of any domain, as logs of inspect_ai: one for each solver and arm."""
    from inspect_ai.log import write_eval_log

    from opsassay.core.errors import UserError
    from opsassay.evals.runner.inspect_writing import kept_runs, logs_of
    from opsassay.evals.runner.store import RunStore
    from opsassay.telemetry.content import whole_folder

    left_out: list[tuple[Path, str]] = []
    runs = list(kept_runs(RunStore(store), lambda path, why: left_out.append((path, why))))
    if not runs:
        raise UserError(f"{store} holds no graded run{_first(left_out)}.")
    items = []
    with whole_folder(output) as partial:
        for name, log in logs_of(runs):
            write_eval_log(log, partial / name)
            items.append({"log": str(output / name), "solver": log.eval.solver, "samples": len(log.samples or ())})
    _say_left_out(left_out)
    if as_json:
        print_json("export inspect", items, output=output)
    else:
        echo(f"{counted(len(runs), 'run')} in {counted(len(items), 'log')}. Next: `inspect view --log-dir {output}`.")


def _first(left_out: Sequence[tuple[Path, str]]) -> str:
    return f" ({left_out[0][0]}: {left_out[0][1]})" if left_out else ""


def _say_left_out(left_out: Sequence[tuple[Path, str]]) -> None:
    for path, why in left_out:
        say(f"opsassay: left out {path}: {why}.")


@command.command("harbor")
@click.argument("tree", type=_PATH, required=False)
@click.option(
    "--scenario", "scenarios", multiple=True, metavar="NAME", help="A scenario, its file, or `all`; repeat for more."
)
@click.option("-o", "--output", required=True, type=_PATH, help="New folder of the tasks.")
@click.option(
    "--install", metavar="WHAT", help="A wheel of OpsAssay, or what pip fetches; the one that runs when left out."
)
@json_option
def harbor(tree: Path | None, scenarios: tuple[str, ...], output: Path, install: str | None, *, as_json: bool) -> None:
    """Write tasks of Harbor: of every incident of TREE that has a truth, or of live scenarios."""
    from opsassay.core.errors import UserError
    from opsassay.evals.runner.harbor_install import container_install

    if (tree is None) == (not scenarios):
        raise UserError("Name what becomes tasks: the folder of incidents TREE, or --scenario NAME.")
    ours = container_install(install, "data" if tree is not None else "testbed,agents,apis")
    left_out: list[tuple[Path, str]] = []
    if tree is not None:
        from opsassay.evals.diagnosis.harbor_tasks import write_tasks
        from opsassay.telemetry.tree import resolve

        cases, note = resolve(tree), lambda name, why: left_out.append((tree / name, why))
        tasks, what = write_tasks(cases, output, ours, note), f"{tree} holds no incident"
    else:
        from opsassay.evals.remediation.harbor_tasks import write_scenario_tasks
        from opsassay.evals.remediation.plan import scenarios_named

        note = lambda name, why: left_out.append((Path(name), why))  # noqa: E731
        tasks = write_scenario_tasks(scenarios_named(scenarios), output, ours, note)
        what = "No scenario is named"
    if not tasks:
        raise UserError(f"{what} that can be a task{_first(left_out)}")
    _say_left_out(left_out)
    if as_json:
        print_json("export harbor", [{"task": task.name, "path": str(task)} for task in tasks], output=output)
    else:
        echo(f"{counted(len(tasks), 'task')} of Harbor: {output}")


@command.command("dataset")
@click.argument("suite", type=_PATH)
@click.option("-o", "--output", required=True, type=_PATH, help="New folder of the data set.")
@click.option(
    "--license", "license_", default="other", show_default=True, help="Licence in the card, as the Hub names it."
)
@click.option("--without-truth", is_flag=True, help="Leave the truth here; others then cannot grade.")
@json_option
def dataset(suite: Path, output: Path, license_: str, *, without_truth: bool, as_json: bool) -> None:
    """Write SUITE, or any tree of incidents, as a data set of the Hugging Face Hub: a card, parquet, checksums."""
    from opsassay.annotation.suites.publish import write_data_set
    from opsassay.evals.diagnosis.exams import open_suite

    cases = [case for case, _ in open_suite(suite)]
    incidents = write_data_set(cases, suite, output, license_=license_, with_truth=not without_truth)
    if as_json:
        print_json("export dataset", [{"incidents": incidents, "truth": not without_truth}], output=output)
    else:
        echo(f"{counted(incidents, 'incident')} {'without' if without_truth else 'with'} their truth: {output}")
