"""assay up."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from assay.cli.output import isolation_option, json_option, print_json, stages

if TYPE_CHECKING:
    from assay.model.system import IsolationLevel


@click.command("up")
@click.argument("system")
@click.option("--name", help="Name of the running instance; the system's own name when left out.")
@click.option("--seed", type=int, default=0, show_default=True, help="Makes pod names and load repeatable.")
@click.option("--rate", "rate_rps", type=click.FloatRange(min=0.1), help="Load in requests per second.")
@isolation_option
@json_option
def command(
    system: str, name: str | None, seed: int, rate_rps: float | None, isolation: IsolationLevel | None, *, as_json: bool
) -> None:
    """Start SYSTEM (a name, or the path of a YAML file) with its stores and load, and leave it running."""
    from assay.testbed.apps import load_system
    from assay.testbed.local.substrate import LocalSubstrate

    app = load_system(system)
    with stages() as shown:
        shown.begin(f"starting {app.system}")
        running = LocalSubstrate().deploy(app, name or app.system, seed=seed, rate_rps=rate_rps, isolation=isolation)
    status = running.status()
    if as_json:
        print_json("up", [status])
    else:
        click.echo(f"{status['name']} is up: {status['ready']} of {status['replicas']} replicas ready.")
        for entry, urls in status["endpoints"].items():
            click.echo(f"{entry}: {', '.join(urls)}")
        click.echo(f"Next: `assay inject FAULT.yaml --on {status['name']}`, `assay down {status['name']}`.")
