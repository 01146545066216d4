"""opsassay apis."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import click

from opsassay.cli.output import echo, say

if TYPE_CHECKING:
    from opsassay.telemetry.datapack import Datapack


@click.command("apis", context_settings={"ignore_unknown_options": False})
@click.argument("path", type=click.Path(path_type=Path))
@click.argument("client", nargs=-1, type=click.UNPROCESSED)
@click.option("--port", type=click.IntRange(0, 65535), default=0, show_default=True, help="Port; 0 takes a free one.")
def command(path: Path, client: tuple[str, ...], port: int) -> int:
    """Serve the incident at PATH by the APIs of observability backends on 127.0.0.1, read-only, until Ctrl-C.

    PATH is a datapack, or a folder with one incident. With `-- CLIENT...` it is served while that command runs, which
    finds it by PROMETHEUS_URL, JAEGER_URL, LOKI_URL, ALERTMANAGER_URL and TEMPO_URL.
    """
    from opsassay.apis.serving import ApiServer, api_urls, serving_on_port

    with serving_on_port(ApiServer.over(_opened(path)), port) as url:
        variables = {f"{name.upper()}_URL": found for name, found in api_urls(url).items()}
        if client:
            return subprocess.run(client, env={**os.environ, **variables}, check=False).returncode
        for name, value in variables.items():
            echo(f"export {name}={value}")
        say(f"opsassay: the APIs are on {url}; Ctrl-C ends it.")
        signal.pause()  # an interruption ends it: `main` says so
    return 0


def _opened(path: Path) -> Datapack:
    from opsassay.errors import UserError
    from opsassay.telemetry.datapack import Datapack
    from opsassay.telemetry.tree import Tree

    ids = Tree(path).ids()
    if len(ids) > 1:
        raise UserError(f"{path} has {len(ids)} incidents; name one of them, as {Tree(path).incident_path(ids[0])}.")
    return Datapack.open(Tree(path).incident_path(ids[0]) if ids else path)
