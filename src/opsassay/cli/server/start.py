"""opsassay server start."""

from __future__ import annotations

from pathlib import Path

import click

from opsassay.cli.output import FOLDER, say


@click.command("start")
@click.argument("words", nargs=-1, type=click.UNPROCESSED, metavar="[-- COMMAND...]")
@click.option("--state", type=FOLDER, default="platform", show_default=True, help="Folder of everything that is kept.")
@click.option("--port", type=click.IntRange(0, 65535), default=8400, show_default=True, help="0 for any free one.")
@click.option("--bind", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option(
    "--name", "names", multiple=True, help="Host name that the server answers to, besides this machine's own."
)
@click.option("--database", metavar="URL", help="postgresql://USER:PASSWORD@HOST/NAME; one of its own when left out.")
@click.option("--workers", type=click.IntRange(0, 64), default=1, show_default=True, help="Workers to start with it.")
@click.option(
    "--artefacts", metavar="URL", envvar="OPSASSAY_ARTEFACTS", help="Object store for uploads: s3://BUCKET/PREFIX."
)
@click.option("--reindex", is_flag=True, help="Fill an empty database from the folder, and go on.")
@click.pass_context
def command(
    context: click.Context,
    words: tuple[str, ...],
    state: Path,
    port: int,
    bind: str,
    names: tuple[str, ...],
    database: str | None,
    workers: int,
    artefacts: str | None,
    *,
    reindex: bool,
) -> None:
    """Run the platform (leaderboards, agents, benchmarks, their API), with its own or a given database and workers.

    With a COMMAND it serves for as long as that runs. It listens on --bind and answers to the host names --name too.
    --reindex first fills an empty database from the folder --state.
    """
    from opsassay.server.serving import ServeSettings, serve

    context.exit(serve(ServeSettings(state, port, bind, names, database, workers, reindex, words, artefacts, say)))
