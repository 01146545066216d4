"""Where the two forms of ITBench's ground truth name different root causes, a row for each scenario that has both.

They agree where the objects that v2 calls faulted are the root causes of v1, by kind, namespace and name or filter; they
name other kinds where that holds once kinds and namespaces are left out, as of a Deployment and its pods.

Run: ``python -m benchmarks.papers.itbench_truths TRUTHS``.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from opsassay.cli.output import json_option, print_json, print_table, say
from opsassay.core.errors import UserError
from opsassay.scoring.itbench import ItbenchTruth
from opsassay.telemetry.importers.itbench import V1, V2

from .itbench_answers import scenario_number
from .running import run


@click.command("itbench_truths")
@click.argument("truths", type=click.Path(exists=True, file_okay=False, path_type=Path))
@json_option
def command(truths: Path, *, as_json: bool) -> None:
    """Print where v1 and v2 of the ground truths in TRUTHS, a folder per scenario, name different root causes."""
    items = []
    for folder in sorted(
        (one for one in truths.iterdir() if one.is_dir()), key=lambda f: scenario_number(f.name).zfill(9)
    ):
        read: dict[str, ItbenchTruth] = {}
        for file in (V1, V2):
            try:
                read[file] = ItbenchTruth.read(folder, (file,))
            except UserError as error:
                say(f"opsassay: {error}")
        if len(read) == 2:
            items.append({"scenario": folder.name, **_compared(read[V1], read[V2])})
    if not items:
        raise UserError(
            f"{truths} has no folder with both {V1} and {V2}, each with a root cause; give ITBench's scenarios."
        )
    apart = [item for item in items if item["roots"] != "same"]
    if as_json:
        print_json("itbench_truths", items)
    else:
        rows = [(item["scenario"], item["roots"], "\n".join(item["v1"]), "\n".join(item["v2"])) for item in apart]
        title = f"Not the same root causes in {len(apart)} of {len(items)} scenarios"
        print_table(title, ("scenario", "roots", f"{V1} (graded)", V2), rows)


def _compared(first: ItbenchTruth, second: ItbenchTruth) -> dict[str, Any]:
    said, roots = second.truth.roots, first.truth.roots
    bare = [str(second.truth.groups[name]["name"]) for name in said]
    fit = [[first.distance(root, name) is not None for root in roots] for name in bare]
    alike = all(map(any, fit)) and all(map(any, zip(*fit, strict=True)))
    same = {first.group_of(name) for name in said} == set(roots)
    return {"v1": list(roots), "v2": list(said), "roots": "same" if same else "other kinds" if alike else "different"}


if __name__ == "__main__":
    sys.exit(run(command))
