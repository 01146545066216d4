"""opsassay incident annotate."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from opsassay.cli.output import echo, json_option, print_json, print_table, say

if TYPE_CHECKING:
    from opsassay.annotation.verdict.settings import AnnotateSettings


@click.command("annotate")
@click.argument("paths", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("-j", "--jobs", type=click.IntRange(min=1), default=1, show_default=True, help="Processes.")
@click.option("--ray", metavar="ADDRESS", help="Use a ray cluster (auto, HOST:PORT, local) instead of processes.")
@click.option("--root", metavar="SERVICE", help="Pretend that the fault was on this service; nothing is written.")
@click.option(
    "--sham",
    metavar="FAULT",
    help="Pretend a fault of this type (or every) where nothing was broken; nothing is written.",
)
@click.option("--explain", is_flag=True, help="Say why each path was accepted or rejected.")
@click.option(
    "--settings", type=click.Path(path_type=Path, dir_okay=False), help="YAML: slo, thresholds, limits, rules."
)
@click.option("--again", is_flag=True, help="Make anew what is unchanged too.")
@click.option(
    "--compare",
    is_flag=True,
    help="Print how far our graph agrees with a published causal_graph.json; nothing is written.",
)
@json_option
@click.pass_context
def command(
    context: click.Context,
    paths: tuple[Path, ...],
    jobs: int,
    ray: str | None,
    root: str | None,
    sham: str | None,
    settings: Path | None,
    *,
    explain: bool,
    again: bool,
    compare: bool,
    as_json: bool,
) -> None:
    """Find the causal graph of every incident in PATHS (trees or public-form datapacks) and store it with its truth.

    Nothing is stored with --root (as if the fault were on that service), --sham (as if a fault of that type were where
    nothing was broken) and --compare (with published graphs). Unchanged results are only made again with --again.
    """
    from opsassay.annotation.job import EVERY_TYPE, Annotated, AnnotateJob, run_job
    from opsassay.annotation.verdict.settings import load_settings
    from opsassay.core.parallel import map_processes
    from opsassay.core.schema.faults import fault_type
    from opsassay.telemetry.tree import find_cases

    chosen = load_settings(settings)
    if compare:
        _print_agreement(paths, chosen, as_json=as_json)
        return
    type_ = fault_type(sham).name if sham and sham != EVERY_TYPE else sham
    done: list[Annotated] = []
    cases = [AnnotateJob(folder, root, type_, again, explain, chosen) for path in paths for folder in find_cases(path)]
    for number, results in enumerate(map_processes(run_job, cases, jobs, ray=ray), 1):
        done += results
        for annotated in results:
            say(f"opsassay: {number} of {len(cases)}: {annotated.name}: {_format_label(annotated)}")
    items = [_annotation_as_json(annotated, explain=explain) for annotated in done]
    if as_json:
        print_json("incident annotate", items)
    else:
        _print_annotations(items, done, explain=explain)
    context.exit(1 if any(item["error"] for item in items) else 0)


def _print_agreement(paths: tuple[Path, ...], settings: AnnotateSettings, *, as_json: bool) -> None:
    """Print how far OpsAssay's causal graph agrees with the published one, for every case in *paths* with both."""
    from dataclasses import asdict

    from opsassay.annotation.job import annotate_case
    from opsassay.annotation.verdict.agreement import Overlap, agreement
    from opsassay.core.errors import OpsAssayError
    from opsassay.telemetry.tree import resolve

    def text(overlap: Overlap) -> str:
        share = "-" if overlap.jaccard is None else f"{overlap.jaccard:.0%}"
        return f"{share} ({overlap.both} both, {overlap.ours_alone} ours, {overlap.published_alone} published)"

    rows, items = [], []
    for path in paths:
        for case in resolve(path, lambda where, error: say(f"opsassay: {where.name} is left out: {error}")):
            try:
                published = case.published
                if published is None:
                    say(f"opsassay: {case.name} is left out: no causal graph of it was published.")
                    continue
                ours = annotate_case(case, settings=settings)
            except OpsAssayError as error:
                say(f"opsassay: {case.name} is left out: {error}")
                continue
            found = agreement(ours.graph, published.graph, case.datapack.services())
            if found.note:
                say(f"opsassay: {case.name}: {found.note}")
            items.append({"case": case.name, "label": ours.label.value, **asdict(found)})
            parts = (found.roots, found.services, found.components, found.edges)
            rows.append((case.name, ours.label.value, *(text(part) for part in parts)))
    if as_json:
        print_json("agreement", items)
        return
    print_table(
        "Agreement with published graphs", ("incident", "our label", "roots", "services", "components", "edges"), rows
    )


def _print_annotations(items: list[dict[str, Any]], done: list[Any], *, explain: bool) -> None:
    """Print *items*, the JSON of *done*, as a table, then label counts and notes, or with *explain* the reasons."""
    pretended = any(item["pretended"] for item in items)
    columns = ("incident", *(("pretended",) if pretended else ()), "label", "roots", "edges", "alarms", "seconds")
    rows = [
        (
            i["case"],
            *((i["pretended"],) if pretended else ()),
            i["label"] or i["error"],
            ", ".join(i["roots"]),
            len(i["edges"]),
            len(i["alarms"]),
            "unchanged" if i["unchanged"] else f"{i['seconds']:.2f}",
        )
        for i in items
    ]
    print_table("True cascades", columns, rows)
    echo(", ".join(f"{n} {label}" for label, n in Counter(i["label"] or "failed" for i in items).items()))
    for annotated in done if not explain else ():
        if annotated.stated:
            echo(f"{annotated.name}: {annotated.stated}")
    noted = Counter(note for one in done if one.annotation for note in one.annotation.notes)
    for note, count in noted.items() if not explain else ():
        echo(note if len(done) == 1 else f"{count} of {len(done)}: {note}")
    for annotated in done if explain else ():
        for line in _explain_annotation(annotated):
            echo(line)


def _explain_annotation(annotated: Any) -> Iterator[str]:
    """Yield lines of text that explain how the label of one `Annotated` incident came about."""
    from opsassay.annotation.verdict.explain import explain

    yield f"\n{annotated.name}" + (f", pretending {annotated.pretended}" if annotated.pretended else "")
    if annotated.stated:
        yield annotated.stated
    yield from explain(annotated.annotation).lines() if annotated.annotation else [f"failed: {annotated.error}"]


def _format_label(annotated: Any) -> str:
    """Return the label of one `Annotated` incident as text, or the error that left it without one."""
    if annotated.annotation is None:
        return f"failed: {annotated.error}"
    pretended = f" ({annotated.pretended})" if annotated.pretended else ""
    return str(annotated.annotation.label.value) + pretended + (" (unchanged)" if annotated.unchanged else "")


def _annotation_as_json(annotated: Any, *, explain: bool) -> dict[str, Any]:
    """Return one `Annotated` incident as an item of JSON; *explain* adds the lines that explain its label."""
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
        "faults": [fault.model_dump(mode="json") for fault in annotation.faults] if annotation else [],
        "rejected_by": dict(Counter(path.gate for path in annotation.rejected)) if annotation else {},
        "false_alarm_rate": annotation.false_alarm_rate if annotation else None,
        "notes": list(annotation.notes) if annotation else [],
        "pretended": annotated.pretended,
        **({"stated": annotated.stated} if annotated.stated else {}),
        "unchanged": annotated.unchanged,
        "error": annotated.error,
        "seconds": round(annotated.seconds, 3),
        **({"explanation": list(_explain_annotation(annotated))[1:]} if explain else {}),
    }
