"""opsassay system faults."""

from __future__ import annotations

from typing import Any

import click

from opsassay.cli.output import echo, json_option, print_json, print_table


@click.command("faults")
@json_option
def command(*, as_json: bool) -> None:
    """List the 31 fault types: kind, parameters, and on which isolation levels this machine can inject them."""
    from opsassay.core.schema.faults import CATALOGUE
    from opsassay.testbed.substrates.local.capabilities import LEVELS, probe, refusal

    levels = probe()
    items: list[dict[str, Any]] = []
    for name, row in CATALOGUE.items():
        reasons = {level: refusal(name, level) for level in LEVELS}
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
                "injectable": {level: reason is None for level, reason in reasons.items()},
                "reason": {level: reason for level, reason in reasons.items() if reason},
            }
        )
    if as_json:
        isolation = {name: {"available": level.available, "reason": level.reason} for name, level in levels.items()}
        print_json("system faults", items, isolation=isolation)
        return
    rows = [
        (
            item["type"] + (" (emulated)" if item["emulated"] else ""),
            item["kind"],
            ", ".join(p["name"] for p in item["parameters"]) or None,
            *("yes" if item["injectable"][level] else "no" for level in LEVELS),
        )
        for item in items
    ]
    print_table("Fault types", ("type", "observable kind", "parameters", *LEVELS), rows)
    for reason in dict.fromkeys(reason for item in items for reason in item["reason"].values()):
        echo(f"no: {reason}")
