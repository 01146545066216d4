"""opsassay status."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from opsassay.cli.output import json_option, print_json, print_table
from opsassay.cli.substrates import substrate_of, substrate_option


@click.command("status")
@substrate_option
@json_option
def command(substrate: str, *, as_json: bool) -> None:
    """Show running systems; undo and remove what a killed one left behind; show the isolation levels."""
    chosen = substrate_of(substrate)
    systems, has = chosen.status(), chosen.capabilities()
    if as_json:
        machine = {} if has.machine is None else {"machine": has.machine}
        print_json("status", systems, isolation=has.isolation, **machine)
        return
    last = "reason" if has.machine is None else "receiver"
    rows = [(s["name"], s.get("system"), s["phase"], _ready(s), s.get("fault"), s.get(last) or None) for s in systems]
    print_table(
        f"Systems on {has.place}" if has.place else "Systems", ("name", "system", "phase", "ready", "fault", last), rows
    )
    for s in systems:
        if s["phase"] == "cleared" and "processes_ended" in s:
            undone = f", undone: {', '.join(s['faults_undone'])}" if s["faults_undone"] else ""
            click.echo(f"{s['name']} had been killed: {s['processes_ended']} processes ended{undone}.")
    if has.machine is not None:
        _show_machine(has.isolation, has.machine)


def _show_machine(isolation: Mapping[str, Mapping[str, Any]], machine: Mapping[str, Any]) -> None:
    shown = [(name, "yes" if level["available"] else "no", level["reason"]) for name, level in isolation.items()]
    print_table("Isolation levels of this machine", ("level", "available", "reason"), shown)
    abilities = [
        (name, "yes" if one["available"] else "no", one["how"] or one["reason"])
        for name, one in machine["abilities"].items()
    ]
    print_table("What its kernel lends", ("ability", "available", "how, or why not"), abilities)


def _ready(system: dict[str, object]) -> str | None:
    return f"{system['ready']}/{system['replicas']}" if "ready" in system else None
