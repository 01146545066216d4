"""opsassay server worker."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import click

from opsassay.cli.output import FOLDER, say


@click.command("worker")
@click.option("--database", metavar="URL", required=True, envvar="OPSASSAY_DATABASE", help="The platform's database.")
@click.option("--state", type=FOLDER, required=True, help="The platform's folder, which all workers share.")
@click.option("--server", default="", help="Where agents that run elsewhere reach the platform: http://HOST:PORT.")
@click.option("--domain", "domains", multiple=True, help="Take cells of this domain alone; repeat for more.")
@click.option("-j", "--jobs", type=click.IntRange(1, 64), default=1, show_default=True, help="Cells side by side.")
@click.option(
    "--artefacts", metavar="URL", envvar="OPSASSAY_ARTEFACTS", help="Object store for uploads, as of the server."
)
@click.option("--until-empty", is_flag=True, help="End when there is nothing left to do.")
@click.option(
    "--ray", metavar="ADDRESS", help="Have -j workers on a ray cluster (auto, HOST:PORT, local), until nothing is left."
)
def command(
    database: str,
    state: Path,
    server: str,
    domains: tuple[str, ...],
    jobs: int,
    artefacts: str | None,
    ray: str | None,
    *,
    until_empty: bool,
) -> None:
    """Run benchmark tasks of the platform's --database until stopped; another worker takes over unfinished ones."""
    from opsassay.core.parallel import map_processes
    from opsassay.server.serving import WorkSettings, work

    given = WorkSettings(state.absolute(), database, server, domains, jobs, until_empty, artefacts)
    if ray is None:
        say(f"opsassay: {work(given)}")
        return
    one = replace(given, jobs=1, until_empty=True)
    for number, ended in enumerate(map_processes(work, [one] * jobs, jobs, ray=ray), 1):
        say(f"opsassay: worker {number} of {jobs}: {ended}")
