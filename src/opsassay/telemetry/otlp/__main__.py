"""``python -m opsassay.telemetry.otlp``: run the receiver in the foreground."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from opsassay.core.errors import OpsAssayError
from opsassay.core.logs import configure
from opsassay.telemetry.otlp.receiver import run


@click.command()
@click.option(
    "--state", required=True, type=click.Path(path_type=Path), help="Folder of receiver.json and control.sock."
)
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option(
    "--port", default=0, show_default=True, type=click.IntRange(0, 65535), help="Data port; 0 takes a free one."
)
@click.option("--die-with-stdin", is_flag=True, help="End when standard input does.")
def main(state: Path, host: str, port: int, die_with_stdin: bool) -> None:
    """Run the receiver of OTLP/HTTP on *host* and *port*, its files in *state*, until SIGTERM (or the end of stdin)."""
    configure("receiver")
    try:
        run(state, host, port, die_with_stdin=die_with_stdin)
    except OpsAssayError as error:
        click.echo(f"error: {error}", err=True)
        sys.exit(error.exit_code)


main()
