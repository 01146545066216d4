"""opsassay incident curate."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import click

from opsassay.cli.output import FOLDER, echo, json_option, print_json, print_table, say


@click.command("curate")
@click.argument("paths", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("-o", "--output", required=True, type=FOLDER, help="New folder of the suite.")
@click.option("--name", help="Name of the suite; that of its folder when left out.")
@click.option(
    "--per-stratum",
    type=click.IntRange(min=1),
    default=3,
    show_default=True,
    help="Cases per system, chaos family and root service.",
)
@click.option("--size", type=click.IntRange(min=1), help="Cases in all; as many as fit when left out.")
@click.option("--dry-run", is_flag=True, help="Only say what would be taken and left out.")
@json_option
def command(
    paths: tuple[Path, ...],
    output: Path,
    name: str | None,
    per_stratum: int,
    size: int | None,
    *,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Make a suite of annotated incidents in PATHS: --per-stratum for each system, chaos family and root service."""
    from opsassay.annotation.suites.curate import select, write_suite
    from opsassay.telemetry.tree import resolve

    cases = [
        case
        for path in paths
        for case in resolve(path, lambda where, error: say(f"opsassay: {where.name} is left out: {error}"))
    ]
    chosen = select(cases, per_stratum=per_stratum, size=size)
    if chosen.taken and not any(candidate.calm for candidate in chosen.taken):
        say(
            "opsassay: in every case of this suite something is broken, so a solver that always accuses is never wrong; "
            "record some with `fault: NoFault`"
        )
    suite = None if dry_run else write_suite(cases, chosen, output, name=name)
    items = [
        {
            "id": c.id,
            "system": c.system,
            "stratum": list(c.stratum),
            "longest_path": c.size[0],
            "edges": c.size[1],
            "services": c.size[2],
        }
        for c in chosen.taken
    ]
    if as_json:
        about = {"suite": str(output), "name": suite.name, "canary": suite.canary} if suite else {}
        print_json("incident curate", items, **about, left_out=chosen.left_out)
        return
    columns = ("case", "system", "family", "root", "longest path", "edges", "services")
    rows = [(i["id"], *i["stratum"], i["longest_path"], i["edges"], i["services"]) for i in items]  # type: ignore[misc]
    print_table(f"Suite {suite.name}" if suite else "Would be taken", columns, rows)
    for reason, count in Counter(chosen.left_out.values()).most_common():
        echo(f"{count} left out: {reason}")
