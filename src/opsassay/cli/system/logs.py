"""opsassay system logs."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import click

from opsassay.cli.completion import RUNNING
from opsassay.cli.output import echo
from opsassay.cli.substrates import substrate_of, substrate_option
from opsassay.core.logs import LEVELS, in_words, parsed

FOLLOW_EVERY_S = 1.0


@click.command("logs")
@click.argument("system", type=RUNNING)
@click.option("--process", "only", multiple=True, help="Process to show, such as supervisor or front-0; repeatable.")
@click.option(
    "--level", type=click.Choice(LEVELS), default="debug", show_default=True, help="Least level that is shown."
)
@click.option("--follow", is_flag=True, help="Go on with what is written from now on; Ctrl-C ends it.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")
@substrate_option
def command(system: str, only: tuple[str, ...], level: str, substrate: str, *, follow: bool, as_json: bool) -> None:
    """Show what the processes of the running SYSTEM have logged, in the order of time.

    What other programs write, a database for one, has no level of its own: it counts as info.
    """
    from opsassay.core.errors import NotFoundError

    chosen, shown = substrate_of(substrate), dict[str, int]()
    written = chosen.logs(system)
    if unknown := [name for name in only if name not in written]:
        raise NotFoundError(f"process of {system} with a log", unknown[0], sorted(written))
    while True:
        for entry in merge_logs({name: text for name, text in written.items() if not only or name in only}, shown):
            if LEVELS.index(entry["level"]) >= LEVELS.index(level):
                echo(json.dumps(entry) if as_json else _format_line(entry))
        if not follow:
            return
        time.sleep(FOLLOW_EVERY_S)
        written = chosen.logs(system)


def merge_logs(text_by_process: Mapping[str, str], characters_read: dict[str, int]) -> list[dict[str, Any]]:
    """Return the new entries of all logs in order of time.

    *characters_read* holds how many characters of each log were returned before, and is moved on to its last whole
    line.
    """
    found = list[dict[str, Any]]()
    for name, text in text_by_process.items():
        whole = text.rfind("\n") + 1
        begun = characters_read.get(name, 0)
        found += _parse_entries(
            name, text[begun if begun <= len(text) else 0 : whole].splitlines()
        )  # a shorter one began anew
        characters_read[name] = whole
    return sorted(found, key=lambda entry: str(entry["time"]))


def _parse_entries(process: str, lines: Iterable[str]) -> Iterator[dict[str, Any]]:
    """Yield an entry for each line; a line of a foreign program gets the time of the line before it."""
    time_of_last = ""
    for line in lines:
        entry = parsed(line) or {"time": time_of_last, "level": "info", "event": line}
        time_of_last = entry["time"]
        yield {**entry, "process": process, "level": entry["level"] if entry["level"] in LEVELS else "error"}


def _format_line(entry: Mapping[str, Any]) -> str:
    """Return one log entry as "time level process: message"."""
    at = entry["time"][11:23] or "-"
    return f"{at:12} {entry['level']:7} {entry['process']}: {in_words(dict(entry))}"
