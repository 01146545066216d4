"""opsassay down."""

from __future__ import annotations

from typing import Literal

import click

from opsassay.cli.output import say
from opsassay.cli.substrates import cluster_option, substrate_of


@click.command("down")
@click.argument("names", nargs=-1)
@click.option("--all", "everything", is_flag=True, help="Stop every running system of this machine.")
@cluster_option
def command(names: tuple[str, ...], isolation: Literal["kubernetes"] | None, *, everything: bool) -> None:
    """Stop the running systems NAMES and remove all that belongs to them."""
    from opsassay.errors import UserError

    if not isolation:
        _stop_here(names, everything=everything)
        return
    if not names or everything:
        raise UserError("A cluster may be others' too: name the systems to stop; `opsassay status` lists them.")
    for name in names:
        substrate_of(isolation).remove(name)
        click.echo(f"{name} is down.")


def _stop_here(names: tuple[str, ...], *, everything: bool) -> None:
    from opsassay.errors import UserError
    from opsassay.testbed.core.state import all_states
    from opsassay.testbed.kernel.namespaces import who_is_in
    from opsassay.testbed.substrates.local.substrate import LocalSubstrate, network_rooms

    states = {state.name: state for state in all_states() if state.running()}
    running = list(states)
    if not names and not everything and len(running) > 1:
        raise UserError(f"Several systems are running ({', '.join(running)}); name one, or use --all.")
    chosen = names or tuple(running)
    for name in chosen:
        rooms = network_rooms(states[name]) if name in states else ()
        LocalSubstrate().remove(name)
        click.echo(f"{name} is down.")
        for pid, stranger in who_is_in(rooms):
            say(
                f"Process {pid} ({stranger}), which OpsAssay did not start, keeps a network namespace of {name}; end it."
            )
    if not chosen:
        click.echo("No system is running.")
