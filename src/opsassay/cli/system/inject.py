"""opsassay system inject."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from opsassay.cli.completion import RUNNING
from opsassay.cli.output import NumberRange, json_option, print_json, say
from opsassay.cli.substrates import substrate_of, substrate_option
from opsassay.core.text import number_text

if TYPE_CHECKING:
    from opsassay.testbed.core.event import InjectionEvent


@click.command("inject")
@click.argument("fault", type=click.Path(path_type=Path))
@click.option("--on", "name", type=RUNNING, help="The running system; needed only when there are several.")
@click.option("--duration", "duration_s", type=NumberRange(min=0.1), help="Seconds; the file's own when left out.")
@substrate_option
@json_option
def command(fault: Path, name: str | None, duration_s: float | None, substrate: str, *, as_json: bool) -> None:
    """Inject the fault of the YAML file FAULT into a running system (--on); undo it after --duration or on Ctrl-C."""
    from opsassay.core.errors import LostError, UserError
    from opsassay.core.schema.files import load_yaml
    from opsassay.core.schema.incident import FaultPlan

    plan = load_yaml(fault, FaultPlan)
    if duration_s:
        plan = plan.model_copy(update={"duration_s": duration_s})
    chosen = substrate_of(substrate)
    running = chosen.names() if name is None else []
    if name is None and len(running) != 1:
        found = (
            f"several systems are running ({', '.join(running)}); choose with --on"
            if running
            else "no system is running"
        )
        raise UserError(
            f"Cannot tell where to inject: {found}; start one with `opsassay system up SYSTEM`."
            if not running
            else f"{found}."
        )
    system = chosen.running(running[0] if name is None else name)
    system.require(plan, source=fault)
    events: list[InjectionEvent] = []
    for event in system.inject(plan):
        events.append(event)
        say(f"opsassay: {_describe_event(event)}")
    last = events[-1] if events else None
    if last is None or last["event"] != "done":
        raise LostError("The injection ended without a result; see `opsassay system status`.")
    for note in last["notes"]:
        say(f"opsassay: note: {note}")
    if as_json:
        print_json("system inject", [dict(event) for event in events])


def _describe_event(event: InjectionEvent) -> str:
    """Return one sentence on a step of the injection: applied, effect seen or not, undone, recovered."""
    if event["event"] == "done":
        return "recovered" if event["recovered"] else "NOT recovered within the limit; see `opsassay system status`"
    place = event.get("service") or event.get("host")
    whose = event["fault"] + (f" on {place}" if place else "")
    if event["event"] == "effect":
        verb = "bites" if event["passed"] else "shows no effect"
        before, after = number_text(event["before"]), number_text(event["after"])
        return f"{whose} {verb}: {event['signature']} before {before}, now {after}"
    return f"{whose} {event['event']}"
