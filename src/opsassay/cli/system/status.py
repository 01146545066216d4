"""opsassay system status."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from opsassay.cli.output import echo, json_option, print_json, print_table
from opsassay.cli.substrates import substrate_of, substrate_option

if TYPE_CHECKING:
    from opsassay.testbed.core.status import SystemStatus


@click.command("status")
@substrate_option
@json_option
def command(substrate: str, *, as_json: bool) -> None:
    """Show running systems; undo and remove what a killed one left behind; show the isolation levels."""
    chosen = substrate_of(substrate)
    systems, has = chosen.status(), chosen.capabilities()
    if as_json:
        machine = {} if has.machine is None else {"machine": has.machine}
        print_json("system status", [s.payload() for s in systems], isolation=has.isolation, **machine)
        return
    last = "reason" if has.machine is None else "receiver"
    rows = [
        (s.name, s.system, s.phase, _format_ready(s), s.fault, s.reason or None if has.machine is None else s.receiver)
        for s in systems
    ]
    print_table(
        f"Systems on {has.place}" if has.place else "Systems", ("name", "system", "phase", "ready", "fault", last), rows
    )
    for s in systems:
        if s.processes_ended is not None:
            undone = f", undone: {', '.join(s.faults_undone)}" if s.faults_undone else ""
            echo(f"{s.name} had been killed: {s.processes_ended} processes ended{undone}.")
    if has.machine is not None:
        _show_machine(has.isolation, has.machine)


def _show_machine(isolation: Mapping[str, Mapping[str, Any]], machine: Mapping[str, Any]) -> None:
    """Print two tables: the isolation levels of this machine, and what its kernel can do."""
    shown = [(name, "yes" if level["available"] else "no", level["reason"]) for name, level in isolation.items()]
    print_table("Isolation levels of this machine", ("level", "available", "reason"), shown)
    abilities = [
        (name, "yes" if one["available"] else "no", one["how"] or one["reason"])
        for name, one in machine["abilities"].items()
    ]
    print_table("What its kernel lends", ("ability", "available", "how, or why not"), abilities)


def _format_ready(system: SystemStatus) -> str | None:
    """Return "ready/all" replicas of *system*, None when nothing is known."""
    return None if system.ready is None else f"{system.ready}/{system.replicas}"
