"""opsassay server verify."""

from __future__ import annotations

from pathlib import Path

import click

from opsassay.cli.output import echo, json_option, print_json
from opsassay.core.text import plural


@click.command("verify")
@click.argument("events", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--key", required=True, help="The platform's public key, as /api/events/key says it.")
@click.option("--end", help="The hash at which the chain ended when you looked last; it has to be in it.")
@json_option
@click.pass_context
def command(context: click.Context, events: Path, key: str, end: str | None, *, as_json: bool) -> None:
    """Verify that the hash chain EVENTS (index.jsonl, or copy of /api/events) is signed by --key and holds --end."""
    from opsassay.server.events import read_chain, verify_file

    report = verify_file(read_chain(events), key, end)
    if as_json:
        print_json("server verify", [], events=report.events, end=report.end, problem=report.problem)
    elif report.problem is None:
        echo(f"{plural(report.events, 'event')}, none changed; the chain ends with {report.end}.")
    else:
        echo(f"After {report.events} good events: {report.problem}.")
    context.exit(0 if report.problem is None else 1)
