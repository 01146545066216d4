"""opsassay methods."""

from __future__ import annotations

import click

from opsassay.cli.output import json_option, print_json, print_table


@click.command("methods")
@json_option
def command(*, as_json: bool) -> None:
    """List the methods that `opsassay diagnose` knows, where each comes from, and what it costs."""
    from opsassay.methods.base import METHODS, method_named

    methods = [method_named(name) for name in METHODS.names()]
    items = [
        {"method": m.name, "source": m.source, "cost": m.cost, "configuration": dict(m.configuration)} for m in methods
    ]
    if as_json:
        print_json("methods", items)
    else:
        print_table("Methods", ("method", "source", "cost"), [(m.name, m.source, m.cost) for m in methods])
