"""opsassay run explain."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from opsassay.cli.output import FOLDER, json_option, print_json, print_table, print_tables, say

if TYPE_CHECKING:
    from opsassay.evals.remediation.authoring.counterfactual import RecordedTrial


@click.command("explain")
@click.argument("run_folder", metavar="RUN", type=click.Path(file_okay=False, path_type=Path))
@click.option("--counterfactual", is_flag=True, help="Replay it, leaving out one action after the other.")
@click.option(
    "--by",
    type=click.Choice(["action", "tool"]),
    default="action",
    show_default=True,
    help="Leave out each action, or all by one tool.",
)
@click.option("--repeats", type=click.IntRange(1, 100), default=1, show_default=True, help="Replays of each.")
@click.option("-j", "--jobs", type=click.IntRange(1, 256), default=1, show_default=True, help="Replays side by side.")
@click.option("-o", "--output", type=FOLDER, help="Folder of the replays; resumable.")
@json_option
def command(
    run_folder: Path,
    by: Literal["action", "tool"],
    repeats: int,
    jobs: int,
    output: Path | None,
    *,
    counterfactual: bool,
    as_json: bool,
) -> None:
    """Report what the agent changed in the trial RUN, and each judgement; --counterfactual: the effect of each change.

    RUN is the folder of an attempt, as in STORE/runs/CELL/1. A replay repeats seed, fault, load and changes, and leaves
    out one change, or with --by tool all changes by one tool; --repeats: replays of each. Two replays with all changes
    show what differs by chance.
    """
    from opsassay.core.schema.progress import ProgressLines
    from opsassay.evals.remediation.authoring.counterfactual import RecordedTrial, replay

    trial = RecordedTrial.read(run_folder.resolve())
    changes, judged = changes_of(trial), judgements_of(trial)
    found = None
    if counterfactual:
        store = run_folder.resolve().parents[2]
        cell, attempt = run_folder.resolve().parts[-2:]
        folder = output or store.with_name(f"{store.name}-counterfactual") / f"{cell}-{attempt}"
        found = replay(trial, folder, grouping=by, repeats=repeats, workers=jobs, progress=ProgressLines(say))
    if as_json:
        more: dict[str, Any] = {} if found is None else {
            "noise": {"unsteady": sorted(found.noise.unsteady), "spreads": found.noise.spreads,
                      "unlike_record": sorted(found.noise.unlike_record)},
            "effects": [{**asdict(one), "verdict": one.verdict} for one in found.effects],
        }  # fmt: skip
        print_json("run explain", changes, judgements=judged, **more)
        return
    print_table(
        "Changes of the agent", tuple(changes[0]) if changes else ("change",), [tuple(i.values()) for i in changes]
    )
    print_table("Judgements", tuple(judged[0]), [tuple(i.values()) for i in judged])
    if found is not None:
        print_tables([found.table()])


def changes_of(trial: RecordedTrial) -> list[dict[str, Any]]:
    """Return the agent's changes to the system, in order: change (from 1), after_s (its start), what, touched, status."""
    from opsassay.evals.remediation.authoring.counterfactual import NS, words_of

    return [
        {"change": n, "after_s": round((action.started_ns - trial.started_ns) / NS, 1), "what": words_of(action),
         "touched": ", ".join(action.touched), "status": action.status}
        for n, action in enumerate(trial.changes, 1)
    ]  # fmt: skip


def judgements_of(trial: RecordedTrial) -> list[dict[str, Any]]:
    """Return each check's predicate, status and reason, with after_change: the agent's last change before it, or None."""
    found = []
    for one in trial.verdict.judgements:
        before = [n for n, a in enumerate(trial.changes, 1) if one.time_ns is not None and a.started_ns <= one.time_ns]
        found.append({"predicate": one.predicate, "status": one.status.value, "after_change": max(before, default=None),
                      "reason": one.reason})  # fmt: skip
    return found
