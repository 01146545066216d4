"""opsassay status."""

from __future__ import annotations

from typing import Literal

import click

from opsassay.cli.output import json_option, print_json, print_table
from opsassay.cli.substrates import cluster_option, substrate_of


@click.command("status")
@cluster_option
@json_option
def command(isolation: Literal["kubernetes"] | None, *, as_json: bool) -> None:
    """Show running systems; undo and remove what a killed one left behind; show the isolation levels."""
    if isolation:
        _show_cluster(isolation, as_json=as_json)
    else:
        _show_machine(as_json=as_json)


def _show_cluster(isolation: Literal["kubernetes"], *, as_json: bool) -> None:
    substrate = substrate_of(isolation)
    levels, systems = substrate.capabilities(), substrate.status()
    if as_json:
        print_json("status", systems, isolation=levels)
        return
    columns = ("name", "system", "phase", "ready", "fault", "reason")
    rows = [(s["name"], s.get("system"), s["phase"], _ready(s), s.get("fault"), s["reason"] or None) for s in systems]
    print_table(f"Systems on {levels[isolation]['context']}", columns, rows)


def _show_machine(*, as_json: bool) -> None:
    from opsassay.testbed.substrates.local.capabilities import machine
    from opsassay.testbed.substrates.local.substrate import LocalSubstrate

    substrate = LocalSubstrate()
    systems, levels = substrate.status(), substrate.capabilities()
    if as_json:
        print_json("status", systems, isolation=levels, machine=machine().as_dict())
        return
    rows = [(s["name"], s.get("system"), s["phase"], _ready(s), s.get("fault"), s.get("receiver")) for s in systems]
    print_table("Systems", ("name", "system", "phase", "ready", "fault", "receiver"), rows)
    for s in systems:
        if s["phase"] == "cleared":
            undone = f", undone: {', '.join(s['faults_undone'])}" if s["faults_undone"] else ""
            click.echo(f"{s['name']} had been killed: {s['processes_ended']} processes ended{undone}.")
    shown = [(name, "yes" if level["available"] else "no", level["reason"]) for name, level in levels.items()]
    print_table("Isolation levels of this machine", ("level", "available", "reason"), shown)
    lent = [(name, "yes" if a.available else "no", a.how or a.reason) for name, a in machine().abilities.items()]
    print_table("What its kernel lends", ("ability", "available", "how, or why not"), lent)


def _ready(system: dict[str, object]) -> str | None:
    return f"{system['ready']}/{system['replicas']}" if "ready" in system else None
