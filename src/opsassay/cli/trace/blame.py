"""opsassay trace blame."""

from __future__ import annotations

import os
import shlex
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from opsassay.cli.output import FILE, FOLDER, echo, json_option, print_json, print_table, say
from opsassay.core.text import plural

if TYPE_CHECKING:
    from opsassay.analysis.blame.operations import Joined
    from opsassay.analysis.blame.rerun import Rerun
    from opsassay.analysis.blame.settings import BlameSettings
    from opsassay.core.schema.trajectory import Trace

_PATH = click.Path(path_type=Path)
_config_option = click.option(
    "--config", type=_PATH, help="YAML of settings: what is shown, k, w, tolerance, temperature."
)
_model_option = click.option("--model", help="scripted:FILE, replayed:SESSION, or a model of OPENAI_BASE_URL.")
_cases_option = click.option(
    "--cases", type=_PATH, help="The incident of a run with its truth, for `joined`, the clock and the patterns."
)
_without_option = click.option(
    "--without",
    multiple=True,
    type=click.Choice(["reference", "metadata", "inputs"]),
    help="Hide this; repeat for more.",
)


@click.command("blame")
@click.argument("traces", nargs=-1, required=True, type=_PATH)
@click.option("--technique", default="combined", show_default=True, help="A rule, combined, or one that asks a model.")
@_model_option
@_without_option
@click.option("--rerun", help="Command that runs the system again, for dynamic and continuation.")
@click.option("--upstream", help="URL of the model for --rerun, or scripted:FILE.")
@click.option(
    "--judge",
    metavar="answer:TEXT|COMMAND",
    help="For continuation: the right answer, or what reads a run's trace and exits with 0 where it succeeded, else 1.",
)
@click.option("-n", "runs", type=click.IntRange(2), default=10, show_default=True, help="Runs a prefix: continuation.")
@_cases_option
@_config_option
@json_option
@click.pass_context
def command(
    context: click.Context, traces: tuple[Path, ...], technique: str, model: str | None, without: tuple[str, ...],
    rerun: str | None, upstream: str | None, judge: str | None, runs: int, cases: Path | None, config: Path | None,
    *, as_json: bool,
) -> None:  # fmt: skip
    """Name the agent and the step that caused the failure in each of TRACES, by --technique, which may ask --model.

    Some techniques run the system again: by the command --rerun, with model calls sent to --upstream, -n runs from each
    prefix, and --judge to tell whether a run succeeded. --without hides a part of the trace from the technique.
    """
    from opsassay.analysis.blame.attribute import attribute
    from opsassay.analysis.blame.inevitability import Continuing, judge_named
    from opsassay.core.errors import OpsAssayError
    from opsassay.solvers.agents.models import model_named
    from opsassay.solvers.proxy.formats import read_traces

    settings = _load_settings(config, without)
    continuing = Continuing(judge_named(judge) if judge else None, runs, settings.continuations)
    asked = model_named(model) if model else None
    items, problems = [], []
    for path in traces:
        try:
            for found in read_traces(path):
                again, joined = _rerun_of(path, rerun, upstream, settings), _join_to_truth(found, path, cases)
                blamed = attribute(
                    found, technique, model=asked, settings=settings, rerun=again, joined=joined, continuing=continuing
                )
                items.append(_blame_as_json(path, found, blamed))
        except OpsAssayError as error:
            if len(traces) == 1:
                raise
            problems.append(str(error))
    for item in items:
        for note in item["notes"]:
            say(f"opsassay: {item['trace']}: {note}")
    for problem in problems:
        say(f"opsassay: not attributed: {problem}")
    if as_json:
        print_json("trace blame", items, technique=technique, problems=problems)
    else:
        columns = ("trace", "agent", "step", "calls", "tokens", "reason")
        rows = [(i["trace"], i["agent"], i["step"], i["calls"], i["tokens"], i["reason"]) for i in items]
        print_table(f"Blame ({technique})", columns, rows)
        for item in filter(lambda one: one["prefixes"], items):
            measured = [(p["steps"], p["runs"], p["failed"], p["rate"], p["low"], p["high"]) for p in item["prefixes"]]
            print_table("Runs continued after a step", ("step", "runs", "failed", "P(fail)", "low", "high"), measured)
    context.exit(1 if problems or any(i["step"] is None for i in items) else 0)


@click.command("view")
@click.argument("path", type=_PATH)
@click.option("-o", "--output", type=FILE, required=True, help="HTML file to write; it opens from disk.")
@click.option("--technique", help="What suggests the decisive step: `joined` for a run with findings, else `combined`.")
@_model_option
@click.option("--run", "run_dir", type=_PATH, help="Folder of the run, when PATH is not it.")
@click.option("--answers", type=_PATH, help="Folder of answers that were imported: theirs is the suggested step.")
@_cases_option
def view(
    path: Path, output: Path, technique: str | None, model: str | None, run_dir: Path | None, answers: Path | None,
    cases: Path | None,
) -> None:  # fmt: skip
    """Write an HTML page on the trace at PATH: steps, flow, the blamed step, and the --run's events on one time axis.

    The blamed step is that of --technique, or of imported --answers; --cases holds the incident and truth of the run.
    """
    from opsassay.analysis.blame.answers import imported_answer
    from opsassay.analysis.blame.attribute import JOINED, attribute
    from opsassay.solvers.agents.models import model_named
    from opsassay.solvers.proxy.formats import read_one
    from opsassay.ui.trace_view import TracePage, write_trace_page

    found = read_one(path)
    joined = _join_to_truth(found, run_dir or path, cases, is_run=run_dir is not None)
    if answers is not None:
        suggested = imported_answer(answers, path, found, technique)
    else:
        asked = model_named(model) if model else None
        chosen = technique or (JOINED if joined and joined.findings else "combined")
        suggested = attribute(found, chosen, model=asked, joined=joined).attribution
    findings, lanes = (joined.findings, joined.lanes) if joined else ((), ())
    page = TracePage(found.system_name, found, suggested, findings, lanes)
    write_trace_page([page], output, title=f"Trace of {found.system_name}")
    for finding in findings:
        say(f"opsassay: {finding.name} at step {finding.step}: {finding.evidence}")
    echo(f"Written: {output}; {plural(len(found.steps), 'step')}, step {suggested.step_id} suggested.")


@click.command("annotate")
@click.argument("traces", nargs=-1, required=True, type=_PATH)
@click.option("--annotator", required=True, help="Your name: it names the file that the page saves.")
@click.option("-o", "--output", type=FILE, required=True, help="HTML file to write; it opens from disk.")
def annotate(traces: tuple[Path, ...], annotator: str, output: Path) -> None:
    """Write an HTML page that shows TRACES next to a form for labels; the page saves one file of annotations."""
    from opsassay.core.errors import UserError
    from opsassay.solvers.proxy.formats import read_traces
    from opsassay.ui.trace_view import TracePage, write_trace_page

    if not annotator.strip():
        raise UserError("--annotator is empty; give your name, which names the file of your annotations.")
    stems = Counter(path.stem for path in traces)
    pages = [
        TracePage(_name_of_trace(path, i, twice=stems[path.stem] > 1), t)
        for path in traces
        for i, t in enumerate(read_traces(path))
    ]
    write_trace_page(
        pages, output, title=f"Annotate {len(pages)} trace{'s' if len(pages) > 1 else ''}", annotator=annotator
    )
    echo(
        f"Written: {output}. Save on the page, then `opsassay trace blame agree FILE...` with the files of all annotators."
    )


@click.command("agree")
@click.argument("files", nargs=-1, required=True, type=_PATH)
@click.option("--resolve", type=_PATH, help="YAML of rounds 2 and 3: resolved (by name) and contested traces.")
@click.option(
    "-o", "--output", type=FOLDER, help="Folder to write a benchmark to: traces/ and labels/ of what is settled."
)
@click.option("--traces", type=_PATH, help="Folder with the annotated traces, for -o.")
@json_option
@click.pass_context
def agree(
    context: click.Context, files: tuple[Path, ...], resolve: Path | None, output: Path | None, traces: Path | None,
    *, as_json: bool,
) -> None:  # fmt: skip
    """Measure how far annotators agree in FILES, list the traces they dispute, settle those by the file --resolve."""
    from opsassay.analysis.blame.annotations import (
        SETTLED,
        agreement,
        read_annotations,
        read_resolutions,
        review_plan,
        settle,
    )

    annotations = read_annotations(files)
    alpha = agreement(annotations)
    settled = settle(annotations, read_resolutions(resolve) if resolve else None)
    if output is not None:
        _write_labels(settled, output, traces)
    still_open = [one for one in settled if one.status not in SETTLED]
    reviews = review_plan(annotations, settled)
    if as_json:
        items = [_settled_as_json(one) for one in settled]
        alphas = {"agent": alpha.agent_alpha, "step": alpha.step_alpha}
        print_json("trace blame agree", items, alpha=alphas, annotators=alpha.annotators, reviews=reviews)
    else:
        rows = [(one.trace, one.status, *_read_label(one), one.note) for one in settled]
        print_table("Annotations", ("trace", "status", "agent", "step", "note"), rows)
        alphas = {"agents": alpha.agent_alpha, "steps": alpha.step_alpha}
        shown = ", ".join(
            f"{name} {'not defined' if value is None else f'{value:.3f}'}" for name, value in alphas.items()
        )
        echo(
            f"Krippendorff's alpha of round 1, {len(alpha.annotators)} annotators, "
            f"{plural(alpha.traces, 'trace')}: {shown}."
        )
        for name, assigned in reviews.items():
            echo(f"Round 3, {name} reviews: {', '.join(assigned) or 'nothing'}.")
    context.exit(1 if still_open else 0)


def _join_to_truth(trace: Trace, folder: Path, cases: Path | None, *, is_run: bool = False) -> Joined | None:
    """Return *trace*, the events of the run *folder* and the truth in *cases* on one time axis; None with neither.

    *is_run*: *folder* is a run, also without the usual files. Raises UserError when *cases* holds several incidents.
    """
    from opsassay.analysis.blame.operations import RunRecord, join, read_run
    from opsassay.core.errors import UserError
    from opsassay.telemetry.tree import resolve

    matching = resolve(cases) if cases else []
    if len(matching) > 1:
        raise UserError(f"{cases} holds {len(matching)} incidents; name the one that the run is about.")
    is_run = is_run or any(
        (folder / name).exists() for name in ("run.json", "trace.jsonl", "timeline.jsonl", "diagnosis.json")
    )
    if not is_run and not matching:
        return None
    return join(trace, read_run(folder) if is_run else RunRecord(), matching[0] if matching else None)


def _name_of_trace(path: Path, number: int, *, twice: bool) -> str:
    """Return a trace's name in annotations: PATH's stem, with its parent folder if *twice*, then "-N" for a *number* N."""
    own = f"{path.resolve().parent.name}/{path.stem}" if twice else path.stem
    return own + (f"-{number}" if number else "")


def _write_labels(settled: Any, output: Path, traces: Path | None) -> None:
    """Write each settled trace, read from *traces*, with its label into *output*; raises UserError without *traces*."""
    from opsassay.analysis.blame.annotations import SETTLED
    from opsassay.core.errors import UserError
    from opsassay.solvers.proxy.formats import read_one
    from opsassay.solvers.proxy.formats.export import write_trace
    from opsassay.solvers.proxy.formats.finding import LABELS, TRACES
    from opsassay.telemetry.tree import write_noun

    if traces is None:
        raise UserError("-o writes the annotated traces next to their labels; say where they are with --traces.")
    for one in settled:
        if one.status not in SETTLED:
            continue
        file = traces / f"{one.trace}.json"
        found = read_one(file if file.exists() else traces / one.trace)
        name = f"{one.trace.replace('/', '-')}.json"
        write_trace(found, output / TRACES / name, "json")
        (output / LABELS).mkdir(parents=True, exist_ok=True)
        write_noun(output / LABELS / name, one.attribution)


def _read_label(label_set: Any) -> tuple[str | None, int | None]:
    """Return (blamed agent, blamed step) of *label_set*, (None, None) when its label is not settled."""
    return (label_set.attribution.agent_name, label_set.attribution.step_id) if label_set.attribution else (None, None)


def _settled_as_json(settled: Any) -> dict[str, Any]:
    """Return one trace's labels by annotator, and the settled label, as an item of JSON."""
    agent, step = _read_label(settled)
    labels = {name: label.model_dump() for name, label in settled.labels.items()}
    return {
        "trace": settled.trace,
        "status": settled.status,
        "agent": agent,
        "step": step,
        "note": settled.note,
        "labels": labels,
    }


def _load_settings(config: Path | None, without: tuple[str, ...]) -> BlameSettings:
    """Return the settings of the file *config*, or the defaults, with the switches *without* set to False."""
    from opsassay.analysis.blame.settings import BlameSettings
    from opsassay.core.schema.files import load_yaml

    given = load_yaml(config, BlameSettings) if config else BlameSettings()
    return given.model_copy(update=dict.fromkeys(without, False))


def _rerun_of(path: Path, rerun: str | None, upstream: str | None, settings: BlameSettings) -> Rerun | None:
    """Return the re-run of the session *path* by the command *rerun*, its model calls sent to *upstream*; None if unused.

    Raises UserError without *upstream*, and when *path* is no recorded session.
    """
    from opsassay.analysis.blame.rerun import ProxyRerun, command
    from opsassay.core.errors import UserError
    from opsassay.solvers.proxy.exchanges import read_session
    from opsassay.solvers.proxy.record import RECORD

    if rerun is None:
        return None
    if upstream is None:
        raise UserError("--rerun needs the model that the system asks: give --upstream URL or scripted:FILE.")
    if path.name != RECORD and not (path / RECORD).exists():
        raise UserError(
            f"--rerun repeats a session that `opsassay trace proxy` recorded, and {path} is none; give its folder."
        )
    return ProxyRerun(
        command(shlex.split(rerun)),
        read_session(path),
        upstream,
        key=os.environ.get("OPSASSAY_UPSTREAM_KEY") or None,
        volatile=settings.volatile,
        similar=settings.similar,
    )


def _blame_as_json(path: Path, trace: Trace, blamed: Any) -> dict[str, Any]:
    """Return *blamed* (a `Blamed`: agent, step, reason, cost, failure rate of each re-run prefix) as a JSON object."""
    return {
        "trace": str(path),
        "task": trace.task_id,
        "technique": blamed.technique,
        "agent": blamed.attribution.agent_name,
        "step": blamed.attribution.step_id,
        "steps": len(trace.steps),
        "reason": blamed.attribution.reason,
        "calls": blamed.cost.calls,
        "tokens": blamed.cost.tokens,
        "failed": blamed.failed,
        "notes": blamed.notes,
        "prefixes": [
            {"steps": one.steps, "runs": one.runs, "failed": one.failed, "rate": one.rate,
             "low": one.interval[0], "high": one.interval[1]}
            for one in blamed.prefixes
        ],
    }  # fmt: skip
