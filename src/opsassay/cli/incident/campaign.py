"""opsassay incident campaign."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import click

from opsassay.cli.output import FOLDER, echo, json_option, otlp_option, print_json, print_table, say
from opsassay.core.text import plural


@click.command("campaign")
@click.argument("plan", type=click.Path(path_type=Path))
@click.option("-o", "--output", required=True, type=FOLDER, help="Folder of the incident tree.")
@click.option("-j", "--jobs", type=click.IntRange(min=1), default=1, show_default=True, help="Systems side by side.")
@otlp_option
@json_option
@click.pass_context
def command(context: click.Context, plan: Path, output: Path, jobs: int, otlp: str | None, *, as_json: bool) -> None:
    """Record every incident of the YAML file PLAN, each on a new system, --jobs at a time; annotate them; count labels.

    Run the command again to go on after an interruption: an incident that is recorded is not recorded again.
    """
    from opsassay.annotation.job import annotate_path
    from opsassay.telemetry.tree import Tree
    from opsassay.testbed.campaign import half_recorded, incident_ids, load_plan, run_campaign

    injections, tree = load_plan(plan), Tree(output)
    ids, present = incident_ids(injections, tree), set(tree.ids())
    known = sum(id_ in present for id_ in ids.values())
    say(f"opsassay: {plural(len(injections), 'incident')} planned, {known} recorded already")
    ours, others = half_recorded(injections, tree)
    if ours:
        say(f"opsassay: {len(ours)} half recorded by a call that was killed; they are recorded anew")
    for spool in others:
        say(f"opsassay: {spool} was left half recorded and is not of this plan; remove it when nothing records there")
    failed: dict[str, str] = {}
    for number, outcome in enumerate(run_campaign(injections, tree, jobs, otlp), known + 1):
        say(f"opsassay: {number} of {len(injections)}: {outcome.cell}: {outcome.error or outcome.incident}")
        if outcome.error:
            failed[outcome.cell] = outcome.error
    present = set(tree.ids())
    items = []
    for injection in injections:
        if (id_ := ids[injection.cell]) in present:
            annotated = tree.annotation(id_) or annotate_path(tree.incident_path(id_)).annotation
            items.append(
                {
                    "incident": id_,
                    "system": injection.system,
                    "fault": injection.plan.name,
                    "service": " + ".join(part.target.name for part in injection.plan.parts if part.target),
                    "label": annotated.label.value if annotated else "unreadable",
                    "effect": all(one.acted for one in tree.truth(id_).affected()),
                    "recovered": tree.truth(id_).recovered,
                }
            )
    if as_json:
        print_json(
            "incident campaign", items, failed=[{"cell": cell, "error": error} for cell, error in failed.items()]
        )
    else:
        failures = Counter(injection.plan.name for injection in injections if injection.cell in failed)
        _print_counts(items, failures)
        echo(f"{len(items)} of {len(injections)} recorded in {output}. Next: `opsassay run diagnose {output}`.")
    context.exit(1 if failed else 0)


def _print_counts(items: list[dict[str, Any]], failures: Counter[str]) -> None:
    """Print by fault type how many were injected, had no effect or failed (*failures*), and the number of each label."""
    injected = Counter(item["fault"] for item in items)
    toothless = Counter(item["fault"] for item in items if not item["effect"])
    labelled = Counter((item["fault"], item["label"]) for item in items)
    labels = sorted({label for _, label in labelled})
    rows = [
        (fault, injected[fault], toothless[fault], failures[fault], *(labelled[fault, label] for label in labels))
        for fault in sorted({*injected, *failures})
    ]
    columns = ("fault", "injected", "did not bite", "failed", *(f"label {label}" for label in labels))
    print_table("Incidents by fault type and label", columns, rows)
