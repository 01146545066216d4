"""opsassay export."""

from __future__ import annotations

from pathlib import Path

import click

from opsassay.cli.output import echo, json_option, print_json


@click.command("export")
@click.argument("tree", type=click.Path(path_type=Path))
@click.option(
    "-o", "--output", required=True, type=click.Path(path_type=Path), help="Folder of the public-form datapacks."
)
@json_option
def command(tree: Path, output: Path, *, as_json: bool) -> None:
    """Write every incident of TREE with its truth in the public form: the folder name tells the answer."""
    from opsassay.errors import UserError
    from opsassay.telemetry.public import export_public
    from opsassay.telemetry.tree import Tree

    source = Tree(tree)
    if not source.ids():
        raise UserError(f"{tree} holds no incidents; give a folder made by `opsassay record` or `opsassay import`.")
    folders = export_public(source, output)
    if as_json:
        print_json("export", [{"datapack": str(folder)} for folder in folders])
    else:
        echo("\n".join(str(folder) for folder in folders))
