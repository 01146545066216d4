"""assay annotate."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import click

from assay.cli.output import json_option, print_json, print_table, say


@click.command("annotate")
@click.argument("paths", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("-j", "--jobs", type=click.IntRange(min=1), default=1, show_default=True, help="Processes.")
@json_option
@click.pass_context
def command(context: click.Context, paths: tuple[Path, ...], jobs: int, *, as_json: bool) -> None:
    """Find the true cascade of every incident in PATHS (trees or public-form datapacks) and write it to its truth."""
    from assay.bench.annotating import Annotated, annotate_path
    from assay.bench.parallel import map_processes
    from assay.telemetry.tree import resolve

    unreadable: list[Annotated] = []
    cases = [
        case.datapack.path
        for path in paths
        for case in resolve(
            path, lambda where, error: unreadable.append(Annotated(where.name, where, None, str(error), 0.0))
        )
    ]
    done: list[Annotated] = list(unreadable)
    for number, annotated in enumerate(map_processes(annotate_path, cases, jobs), 1):
        done.append(annotated)
        say(f"assay: {number} of {len(cases)}: {annotated.name}: {_label(annotated)}")
    items = [_item(annotated) for annotated in done]
    if as_json:
        print_json("annotate", items)
    else:
        columns = ("incident", "label", "roots", "edges", "alarms", "seconds")
        rows = [
            (
                i["case"],
                i["label"] or i["error"],
                ", ".join(i["roots"]),
                len(i["edges"]),
                len(i["alarms"]),
                f"{i['seconds']:.2f}",
            )
            for i in items
        ]
        print_table("True cascades", columns, rows)
        click.echo(
            ", ".join(f"{count} {label}" for label, count in Counter(i["label"] or "failed" for i in items).items())
        )
    context.exit(1 if any(item["error"] for item in items) else 0)


def _label(annotated: Any) -> str:
    return annotated.annotation.label.value if annotated.annotation else f"failed: {annotated.error}"


def _item(annotated: Any) -> dict[str, Any]:
    annotation = annotated.annotation
    graph = annotation.graph if annotation else None
    return {
        "datapack": str(annotated.datapack),
        "case": annotated.name,
        "label": annotation.label.value if annotation else None,
        "reason": annotation.reason if annotation else None,
        "roots": sorted(graph.root_services()) if graph else [],
        "edges": sorted(graph.service_edges()) if graph else [],
        "alarms": sorted(graph.alarm_services()) if graph else [],
        "rejected_by": dict(Counter(path.gate for path in annotation.rejected)) if annotation else {},
        "error": annotated.error,
        "seconds": round(annotated.seconds, 3),
    }
