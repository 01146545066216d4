"""opsassay trace export."""

from __future__ import annotations

import json
from collections import Counter
from itertools import chain
from pathlib import Path

import click

from opsassay.cli.left_out import first_left_out, say_left_out
from opsassay.cli.output import FILE, FOLDER, echo, json_option, otlp_option, print_json, say
from opsassay.core.text import plural

_PATH = click.Path(path_type=Path)


@click.command("rewards")
@click.argument("store", type=_PATH)
@click.option("-o", "--output", required=True, type=FILE, help="File of JSON lines, one per step.")
@click.option("--cases", type=_PATH, help="Tree with incidents and truth; STORE itself when left out.")
@json_option
def rewards(store: Path, output: Path, cases: Path | None, *, as_json: bool) -> None:
    """Write a reward for every step of the agents' runs in STORE, in the form that TRL trains on."""
    from opsassay.core.errors import UserError
    from opsassay.evals.diagnosis.results.rewards import reward_lines
    from opsassay.evals.diagnosis.score import cases_of
    from opsassay.evals.runner.store import RunStore
    from opsassay.telemetry.content import whole_file

    left_out: list[tuple[Path, str]] = []
    known = cases_of(store, cases, lambda _, error: say(f"opsassay: {error}"))
    lines = reward_lines(RunStore(store), known, lambda path, why: left_out.append((path, why)))
    first = next(lines, None)
    if first is None:
        lacking = f"{store} holds no run of an agent on an incident with a verified cascade{first_left_out(left_out)}"
        raise UserError(f"{lacking}; annotate the incidents, then `opsassay run` one.")
    runs = Counter[str]()
    output.parent.mkdir(parents=True, exist_ok=True)
    with whole_file(output) as partial, partial.open("w", encoding="utf-8") as file:
        for line in chain([first], lines):
            file.write(json.dumps(line, ensure_ascii=False) + "\n")
            runs[line["run"]] += 1
    say_left_out(left_out)
    if as_json:
        print_json("trace export rewards", [{"run": run, "steps": steps} for run, steps in runs.items()], output=output)
    else:
        echo(f"{plural(runs.total(), 'step')} of {plural(len(runs), 'run')}: {output}")


@click.command("atif")
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
        print_json(
            "trace export atif", [{"trace": found.task_id, "steps": len(found.steps)}], output=output, version=VERSION
        )
    else:
        echo(f"{plural(len(found.steps), 'step')} of {found.system_name} as {VERSION}: {output}")


@click.command("otel")
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
        raise UserError(f"{store} holds no graded run with a trace{first_left_out(left_out)}.")
    if output is not None:
        output.parent.mkdir(parents=True, exist_ok=True)
        with whole_file(output) as partial, partial.open("w", encoding="utf-8") as file:
            for part in (part for run in runs for part in (run.spans, run.events)):
                file.write(json.dumps(part, ensure_ascii=False) + "\n")
    for run in runs if otlp is not None else ():
        push(run, str(otlp))
    say_left_out(left_out)
    if as_json:
        items = [{"run": run.run, "metrics": run.metrics} for run in runs]
        print_json("trace export otel", items, output=output, otlp=otlp)
    else:
        places = " and ".join(str(place) for place in (output, otlp) if place is not None)
        echo(
            f"{plural(len(runs), 'run')} with {plural(sum(run.metrics for run in runs), 'evaluation event')}: {places}"
        )


@click.command("inspect")
@click.argument("store", type=_PATH)
@click.option(
    "-o", "--output", required=True, type=FOLDER, help="New folder of the logs, for `inspect view --log-dir`."
)
@json_option
def inspect(store: Path, output: Path, *, as_json: bool) -> None:
    """Write the graded runs of STORE, of any domain, as inspect_ai logs: one per solver and arm (variant of tasks)."""
    from inspect_ai.log import write_eval_log

    from opsassay.core.errors import UserError
    from opsassay.evals.runner.inspect_writing import kept_runs, logs_of
    from opsassay.evals.runner.store import RunStore
    from opsassay.telemetry.content import whole_folder

    left_out: list[tuple[Path, str]] = []
    runs = list(kept_runs(RunStore(store), lambda path, why: left_out.append((path, why))))
    if not runs:
        raise UserError(f"{store} holds no graded run{first_left_out(left_out)}.")
    items = []
    with whole_folder(output) as partial:
        for name, log in logs_of(runs):
            write_eval_log(log, partial / name)
            items.append({"log": str(output / name), "solver": log.eval.solver, "samples": len(log.samples or ())})
    say_left_out(left_out)
    if as_json:
        print_json("trace export inspect", items, output=output)
    else:
        echo(f"{plural(len(runs), 'run')} in {plural(len(items), 'log')}. Next: `inspect view --log-dir {output}`.")
