"""opsassay incident fetch."""

from __future__ import annotations

from pathlib import Path

import click

from opsassay.cli.output import FOLDER, NumberRange, echo, json_option, print_json
from opsassay.core.text import plural


@click.command("fetch")
@click.argument("source")
@click.option("-o", "--output", required=True, type=FOLDER, help="New folder of the data set.")
@click.option("--most-gib", type=NumberRange(0, min_open=True), default=64.0, show_default=True, help="Refuse more.")
@json_option
def command(source: str, output: Path, most_gib: float, *, as_json: bool) -> None:
    """Download or copy a published suite: SOURCE is a folder, a tar, a URL of either, or OWNER/NAME on the Hub.

    No file appears before its checksum is verified; an interrupted fetch goes on where it was. More than --most-gib is
    refused.
    """
    from opsassay.annotation.suites.fetch import fetch

    files, fetched = fetch(source, output, int(most_gib * 2**30))
    if as_json:
        print_json("incident fetch", [{"source": source, "files": files, "fetched": fetched}], output=output)
    else:
        became = (
            f"{fetched} of {plural(files, 'file')} fetched" if fetched else f"{plural(files, 'file')} there already"
        )
        echo(f"{became}: {output}. Next: `opsassay task list {output}`.")
