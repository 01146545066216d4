"""opsassay system faults."""

from __future__ import annotations

from typing import Any

import click

from opsassay.cli.completion import SYSTEM
from opsassay.cli.output import echo, json_option, print_json, print_table


@click.command("faults")
@click.option("--system", type=SYSTEM, help="System by name or file: which of its services each type can hit.")
@json_option
def command(system: str | None, *, as_json: bool) -> None:
    """List the 31 fault types: kind, parameters, and on which isolation levels this machine can inject them.

    With --system: into which of its services; nothing is started. Each reason is printed once, with the first fault that
    it refuses.
    """
    from opsassay.core.schema.faults import CATALOGUE
    from opsassay.testbed.substrates.local.capabilities import probe

    reasons = _by_level() if system is None else _by_service(system)
    items: list[dict[str, Any]] = []
    for name, row in CATALOGUE.items():
        items.append(
            {
                "type": name,
                "kind": row.kind.value,
                "category": row.category.value,
                "layer": row.layer.value,
                "levels": [level.value for level in row.levels],
                "channel": row.channel.value,
                "actuator": row.actuator.value,
                "emulated": row.emulated_on_local,
                "parameters": [p.model_dump(exclude_none=True) for p in row.parameters],
                "injectable": {place: reason is None for place, reason in reasons[name].items()},
                "reason": {place: reason for place, reason in reasons[name].items() if reason},
            }
        )
    places = list(reasons[items[0]["type"]])
    if as_json:
        isolation = {name: {"available": level.available, "reason": level.reason} for name, level in probe().items()}
        print_json("system faults", items, isolation=isolation)
        return
    rows = [
        (
            item["type"] + (" (emulated)" if item["emulated"] else ""),
            item["kind"],
            ", ".join(p["name"] for p in item["parameters"]) or None,
            *("yes" if item["injectable"][place] else "no" for place in places),
        )
        for item in items
    ]
    print_table("Fault types", ("type", "observable kind", "parameters", *places), rows)
    first: dict[str, str] = {}
    for item in items:
        for place, reason in item["reason"].items():
            first.setdefault(reason.replace(item["type"], "").replace(place, ""), reason)
    for reason in first.values():
        echo(f"no: {reason}")


def _by_level() -> dict[str, dict[str, str | None]]:
    """Return {fault type: {isolation level: why this machine cannot inject it there, None when it can}}."""
    from opsassay.core.schema.faults import CATALOGUE
    from opsassay.testbed.substrates.local.capabilities import LEVELS, refusal

    return {name: {level: refusal(name, level) for level in LEVELS} for name in CATALOGUE}


def _by_service(name: str) -> dict[str, dict[str, str | None]]:
    """Return {fault type: {service: why it cannot be injected there, None when it can}} for the system *name*."""
    from opsassay.cli.substrates import HERE, substrate_for
    from opsassay.core.errors import NotFoundError, RefusedError
    from opsassay.core.schema.faults import CATALOGUE
    from opsassay.core.schema.incident import FaultPlan
    from opsassay.testbed.apps import load_system

    app = load_system(name)
    chosen, level = substrate_for(app, HERE)
    found: dict[str, dict[str, str | None]] = {}
    for fault in CATALOGUE:
        for service in app.services:
            try:
                chosen.require(app, FaultPlan.model_validate({"fault": fault, "target": {"service": service}}), level)
            except (NotFoundError, RefusedError) as error:
                found.setdefault(fault, {})[service] = str(error)
            else:
                found.setdefault(fault, {})[service] = None
    return found
