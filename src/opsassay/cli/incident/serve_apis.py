"""opsassay incident serve-apis."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from opsassay.cli.output import echo, say
from opsassay.cli.substrates import substrate_of, substrate_option

if TYPE_CHECKING:
    from opsassay.telemetry.backends.serving import ApiServer
    from opsassay.telemetry.datapack import Datapack


@click.command("serve-apis", context_settings={"ignore_unknown_options": False})
@click.argument("source")
@click.argument("client", nargs=-1, type=click.UNPROCESSED)
@click.option("--port", type=click.IntRange(0, 65535), default=0, show_default=True, help="Port; 0 takes a free one.")
@substrate_option
def command(source: str, client: tuple[str, ...], port: int, substrate: str) -> int:
    """Serve SOURCE by the APIs of observability backends on 127.0.0.1, read-only, until Ctrl-C.

    SOURCE is the path of a datapack or of a folder with one incident, or the name of a running system, which is served as
    it is now. With `-- CLIENT...` it is served while that command runs, which finds it by PROMETHEUS_URL, JAEGER_URL,
    LOKI_URL, ALERTMANAGER_URL and TEMPO_URL.
    """
    from opsassay.telemetry.backends.serving import api_urls, serving_on_port

    with _api_server(source, substrate) as server, serving_on_port(server, port) as url:
        variables = {f"{name.upper()}_URL": found for name, found in api_urls(url).items()}
        if client:
            return subprocess.run(client, env={**os.environ, **variables}, check=False).returncode
        for name, value in variables.items():
            echo(f"export {name}={value}")
        say(f"opsassay: the APIs are on {url}; Ctrl-C ends it.")
        while True:  # an interruption ends it: `main` says so
            signal.pause()  # returns, too, where SIGINT is ignored and polars heeds it


@contextmanager
def _api_server(source: str, substrate: str) -> Iterator[ApiServer]:
    """Yield the server of *source*, a datapack's path or a running system's name; raises UserError when it is neither."""
    from opsassay.telemetry.backends.serving import ApiServer

    path = Path(source)
    if path.exists() or os.sep in source:
        yield ApiServer.over(_open_datapack(path))
        return
    from opsassay.evals.remediation.trial.live_apis import apis_of

    with apis_of(substrate_of(substrate).running(source)) as server:
        yield server


def _open_datapack(path: Path) -> Datapack:
    """Open the only incident at *path*, a datapack or a tree; raises UserError when there are several."""
    from opsassay.core.errors import UserError
    from opsassay.telemetry.datapack import Datapack
    from opsassay.telemetry.tree import Tree

    ids = Tree(path).ids()
    if len(ids) > 1:
        raise UserError(f"{path} has {len(ids)} incidents; name one of them, as {Tree(path).incident_path(ids[0])}.")
    return Datapack.open(Tree(path).incident_path(ids[0]) if ids else path)
