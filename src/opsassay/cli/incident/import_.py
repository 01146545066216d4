"""opsassay incident import."""

from __future__ import annotations

from pathlib import Path

import click

from opsassay.cli.output import FOLDER, json_option, print_json, print_table, say


@click.command("import")
@click.argument("format_", metavar="FORMAT")
@click.argument("path", type=click.Path(path_type=Path))
@click.option("-o", "--output", required=True, type=FOLDER, help="Folder of the incident tree.")
@json_option
@click.pass_context
def command(context: click.Context, format_: str, path: Path, output: Path, *, as_json: bool) -> None:
    """Bring the data at PATH, in a public FORMAT, into a tree of datapacks with their truth apart.

    A case that is there already is skipped; one that cannot be read is reported, and the rest goes on (exit 1).
    """
    from opsassay.telemetry.importers import IMPORTERS

    report = IMPORTERS.load(format_)(path, output, lambda name, became: say(f"opsassay: {name}: {became}"))
    groups = (("imported", report.imported), ("skipped", report.skipped), ("failed", report.failed))
    items = [{"case": name, "status": status, "detail": detail} for status, cases in groups for name, detail in cases]
    if as_json:
        notes = [{"case": name, "note": note} for name, note in report.notes]
        print_json("incident import", items, notes=notes)
    else:
        print_table(
            f"{format_} into {output}", ("case", "status", "id or reason"), [tuple(item.values()) for item in items]
        )
        for name, note in report.notes:
            say(f"opsassay: {name}: {note}")
    context.exit(1 if report.failed else 0)
