"""opsassay system render."""

from __future__ import annotations

import click

from opsassay.cli.completion import SYSTEM
from opsassay.cli.output import NumberRange, echo


@click.command("render")
@click.argument("system", type=SYSTEM)
@click.option("--name", help="Namespace of the instance; the system's own name when left out.")
@click.option("--seed", type=int, default=0, show_default=True, help="Makes the load repeatable.")
@click.option("--rate", "rate_rps", type=NumberRange(min=0.1), help="Load in requests per second.")
@click.option("--image", help="Image that everything runs; the one that the documented build makes when left out.")
@click.option("--endpoint", help="OTLP/HTTP endpoint for telemetry; a receiver with the system when left out.")
def command(
    system: str, name: str | None, seed: int, rate_rps: float | None, image: str | None, endpoint: str | None
) -> None:
    """Print SYSTEM (a name or YAML file), with a load of --rate requests/s, as manifests for `kubectl apply -f`."""
    from opsassay.testbed.apps import load_system
    from opsassay.testbed.substrates.kubernetes.manifests.image import IMAGE
    from opsassay.testbed.substrates.kubernetes.manifests.system import Deployed, render, require_own_runtime

    app = load_system(system)
    require_own_runtime(app)
    deployed = Deployed(app, name or app.system, seed, rate_rps, image or IMAGE, endpoint)
    echo(render(deployed.manifests()), nl=False)


@click.command("worker")
@click.option("--server", required=True, help="Where agents that run elsewhere reach the platform: http://HOST:PORT.")
@click.option("--replicas", type=click.IntRange(0), default=4, show_default=True, help="Pods.")
@click.option(
    "-j", "--jobs", type=click.IntRange(1, 64), default=1, show_default=True, help="Cells side by side in a pod."
)
@click.option("--namespace", default="default", show_default=True, help="Namespace of the pods.")
@click.option("--image", help="Image that they run; the one of the Dockerfile at the root when left out.")
@click.option("--claim", default="opsassay-state", show_default=True, help="Volume claim of the platform's folder.")
@click.option(
    "--secret", default="opsassay", show_default=True, help="Secret with the database's address as `database`."
)
@click.option("--domain", "domains", multiple=True, help="Take cells of this domain alone; repeat for more.")
def worker(
    server: str,
    replicas: int,
    jobs: int,
    namespace: str,
    image: str | None,
    claim: str,
    secret: str,
    domains: tuple[str, ...],
) -> None:
    """Print a Deployment of `opsassay server worker` for --server: --replicas pods, each with --jobs runs at a time."""
    from opsassay.evals.runner.domain import domain_named
    from opsassay.server.manifests import IMAGE, WorkerDeployment
    from opsassay.testbed.substrates.kubernetes.manifests.system import render

    names = tuple(domain_named(name).name for name in domains)
    deployment = WorkerDeployment(image or IMAGE, server, replicas, jobs, namespace, claim, secret, names)
    echo(render([deployment.manifest()]), nl=False)
