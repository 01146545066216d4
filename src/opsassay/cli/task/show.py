"""opsassay task show."""

from __future__ import annotations

import click

from opsassay.cli.completion import SCENARIO
from opsassay.cli.output import echo


@click.command("show")
@click.argument("name", type=SCENARIO)
def command(name: str) -> None:
    """Print the scenario NAME as YAML, one that is generated from code as well: as a file that can be changed."""
    import yaml

    from opsassay.testbed.scenarios import load_scenario

    payload = load_scenario(name).model_dump(mode="json", by_alias=True, exclude_defaults=True)
    echo(yaml.safe_dump(payload, sort_keys=False, allow_unicode=True, width=120).rstrip())
