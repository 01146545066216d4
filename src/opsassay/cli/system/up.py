"""opsassay system up."""

from __future__ import annotations

import click

from opsassay.cli.completion import SYSTEM
from opsassay.cli.output import NumberRange, echo, json_option, print_json, stages
from opsassay.cli.substrates import fresh_option, split_level, substrate_of, there


@click.command("up")
@click.argument("system", type=SYSTEM)
@click.option("--name", help="Name of the running instance; the system's own name when left out.")
@click.option("--seed", type=int, default=0, show_default=True, help="Makes pod names and load repeatable.")
@click.option("--rate", "rate_rps", type=NumberRange(min=0.1), help="Load in requests per second.")
@fresh_option
@click.option("--image", help="On a cluster: what every pod runs, when your registry calls it otherwise.")
@json_option
def command(
    system: str,
    name: str | None,
    seed: int,
    rate_rps: float | None,
    substrate: str,
    image: str | None,
    *,
    as_json: bool,
) -> None:
    """Start SYSTEM (a name, or the path of a YAML file) with its stores and load, and leave it running."""
    from opsassay.testbed.apps import load_system

    app = load_system(system)
    with stages() as shown:
        shown.started(f"starting {app.system}")
        where, isolation = split_level(substrate)
        chosen = substrate_of(where, image=image)
        running = chosen.deploy(app, name or app.system, seed=seed, rate_rps=rate_rps, isolation=isolation)
    status = running.status()
    if as_json:
        print_json("system up", [status.payload()])
    else:
        echo(f"{status.name} is up: {status.ready} of {status.replicas} replicas ready.")
        for entry, urls in status.endpoints.items():
            echo(f"{entry}: {', '.join(urls)}")
        on = status.name + there(where)
        echo(f"Next: `opsassay system inject FAULT.yaml --on {on}`, `opsassay system down {on}`.")
