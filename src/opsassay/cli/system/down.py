"""opsassay system down."""

from __future__ import annotations

import click

from opsassay.cli.completion import RUNNING
from opsassay.cli.output import echo, say
from opsassay.cli.substrates import substrate_of, substrate_option


@click.command("down")
@click.argument("names", type=RUNNING, nargs=-1)
@click.option("--all", "everything", is_flag=True, help="Stop every running system of this machine.")
@substrate_option
def command(names: tuple[str, ...], substrate: str, *, everything: bool) -> None:
    """Stop the running systems NAMES and remove all that belongs to them."""
    from opsassay.core.errors import UserError

    chosen = substrate_of(substrate)
    if chosen.shared and (not names or everything):
        raise UserError("A cluster may be others' too: name the systems to stop; `opsassay system status` lists them.")
    running = () if chosen.shared else chosen.names()
    if not names and not everything and len(running) > 1:
        raise UserError(f"Several systems are running ({', '.join(running)}); name one, or use --all.")
    for name in names or running:
        left = chosen.remove(name)
        echo(f"{name} is down.")
        for sentence in left:
            say(sentence)
    if not names and not running:
        echo("No system is running.")
