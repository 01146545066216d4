"""opsassay render."""

from __future__ import annotations

import click

from opsassay.cli.output import echo


@click.command("render")
@click.argument("system")
@click.option("--name", help="Namespace of the instance; the system's own name when left out.")
@click.option("--seed", type=int, default=0, show_default=True, help="Makes the load repeatable.")
@click.option("--rate", "rate_rps", type=click.FloatRange(min=0.1), help="Load in requests per second.")
@click.option("--image", help="Image that everything runs; the one that the documented build makes when left out.")
@click.option("--endpoint", help="OTLP/HTTP endpoint for telemetry; a receiver beside the system when left out.")
def command(
    system: str, name: str | None, seed: int, rate_rps: float | None, image: str | None, endpoint: str | None
) -> None:
    """Print SYSTEM (a name, or the path of a YAML file) as Kubernetes manifests for `kubectl apply -f`."""
    from opsassay.testbed.apps import load_system
    from opsassay.testbed.substrates.kubernetes.manifests.image import IMAGE
    from opsassay.testbed.substrates.kubernetes.manifests.system import Deployed, render

    app = load_system(system)
    deployed = Deployed(app, name or app.system, seed, rate_rps, image or IMAGE, endpoint)
    echo(render(deployed.manifests()), nl=False)
