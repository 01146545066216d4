"""assay campaign."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import click

from assay.cli.output import json_option, print_json, print_table, say


@click.command("campaign")
@click.argument("plan", type=click.Path(path_type=Path))
@click.option("-o", "--output", required=True, type=click.Path(path_type=Path), help="Folder of the incident tree.")
@click.option("-j", "--jobs", type=click.IntRange(min=1), default=1, show_default=True, help="Systems side by side.")
@json_option
@click.pass_context
def command(context: click.Context, plan: Path, output: Path, jobs: int, *, as_json: bool) -> None:
    """Record every incident of the YAML file PLAN, each on a fresh system; annotate them; count labels by fault type.

    Run it again to go on after any end: what is recorded is not recorded twice.
    """
    from assay.bench.annotating import annotate_path
    from assay.bench.campaign import incident_ids, load_plan, run_campaign
    from assay.telemetry.tree import Tree

    injections, tree = load_plan(plan), Tree(output)
    ids, present = incident_ids(injections, tree), set(tree.ids())
    known = sum(id_ in present for id_ in ids.values())
    say(f"assay: {len(injections)} incidents planned, {known} recorded already")
    failed = []
    for number, outcome in enumerate(run_campaign(injections, tree, jobs), known + 1):
        say(f"assay: {number} of {len(injections)}: {outcome.cell}: {outcome.error or outcome.incident}")
        failed += [outcome] if outcome.error else []
    present = set(tree.ids())
    items = []
    for injection in injections:
        if (id_ := ids[injection.cell]) in present:
            annotated = tree.annotation(id_) or annotate_path(tree.incident_path(id_)).annotation
            label = annotated.label.value if annotated else "unreadable"
            service = injection.plan.target.service if injection.plan.target else ""
            items.append(
                {
                    "incident": id_,
                    "system": injection.system,
                    "fault": injection.plan.fault,
                    "service": service,
                    "label": label,
                }
            )
    if as_json:
        print_json("campaign", items, failed=[{"cell": outcome.cell, "error": outcome.error} for outcome in failed])
    else:
        counts = Counter((str(item["fault"]), str(item["label"])) for item in items)
        labels, faults = ({pair[i] for pair in counts} for i in (1, 0))
        rows = [(fault, *(counts[fault, label] for label in sorted(labels))) for fault in sorted(faults)]
        print_table("Incidents by fault type and label", ("fault", *sorted(labels)), rows)
        click.echo(f"{len(items)} of {len(injections)} recorded in {output}. Next: `assay diagnose {output}`.")
    context.exit(1 if failed else 0)
