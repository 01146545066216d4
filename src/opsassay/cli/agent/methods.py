"""opsassay agent methods."""

from __future__ import annotations

from typing import Any

import click

from opsassay.cli.output import json_option, print_json, print_table


@click.command("methods")
@json_option
def command(*, as_json: bool) -> None:
    """List the methods that `opsassay run diagnose` knows, where each comes from, what it costs, and what can be set."""
    from opsassay.solvers.methods.base import METHODS, class_named, method_named
    from opsassay.solvers.methods.parameters import declared_parameters

    items: list[dict[str, Any]] = []
    for method in map(method_named, METHODS.names()):
        declared = declared_parameters(class_named(method.name))
        parameters = {name: one.plain(one.default) for name, one in declared.items()}
        items.append(
            {
                "method": method.name, "source": method.source, "cost": method.cost,
                "configuration": dict(method.configuration), "parameters": parameters,
            }
        )  # fmt: skip
    if as_json:
        print_json("agent methods", items)
    else:
        rows = [(i["method"], i["source"], i["cost"], _format_parameters(i["parameters"])) for i in items]
        print_table("Methods", ("method", "source", "cost", "parameters"), rows)


def _format_parameters(parameters: dict[str, Any]) -> str:
    """Return *parameters* (name to default) as "name=default, ..."; the bare name for None, nothing for ""."""
    given = ((name, value) for name, value in parameters.items() if value != "")
    return ", ".join(name if value is None else f"{name}={value}" for name, value in given)
