"""opsassay system check."""

from __future__ import annotations

import os
import time
from dataclasses import asdict
from typing import TYPE_CHECKING, NoReturn

import click

from opsassay.cli.completion import SYSTEM
from opsassay.cli.output import NumberRange, echo, json_option, print_json, print_table, say, stages
from opsassay.cli.substrates import fresh_option, substrate_for

if TYPE_CHECKING:
    from opsassay.core.schema.system import System


@click.command("check")
@click.argument("system", type=SYSTEM)
@click.option(
    "--seconds", type=NumberRange(5, 600), default=20.0, show_default=True, help="How long its load is watched."
)
@click.option("--rate", "rate_rps", type=NumberRange(min=0.1), help="Load in requests per second.")
@fresh_option
@json_option
@click.pass_context
def command(
    context: click.Context, system: str, seconds: float, rate_rps: float | None, substrate: str, *, as_json: bool
) -> None:
    """Start SYSTEM, watch it, stop it: say what can be seen of it and which faults can hit it. Nothing is broken.

    The namespace of generated tasks is only looked at. Exit status 1 when something does not work, each with its sentence.
    """
    from opsassay.testbed.apps import load_system
    from opsassay.testbed.recording.check import check_system

    app = load_system(system)
    if app.namespace is not None and not app.programs():
        _check_namespace(context, app.namespace.name, as_json=as_json)
    chosen, isolation = substrate_for(app, substrate)
    began = time.monotonic()
    with stages() as shown:
        shown.started(f"starting {app.system}")
        name = f"check-{os.getpid()}"
        with chosen.deployed(app, name, rate_rps=rate_rps, isolation=isolation) as running:
            ready_s = time.monotonic() - began
            shown.started("watching its load", seconds)
            found = check_system(running, app, seconds)
            shown.started(f"stopping {app.system}")
    refused = _refused(app)
    if as_json:
        items = [asdict(one) for one in found.services]
        said = {"findings": list(found.findings), "not_known": [*found.not_known, *refused]}
        print_json("system check", items, **said, ready_s=round(ready_s, 1))
    else:
        rows = [
            (one.service, one.spans, one.logs, ", ".join(one.callers) or None, len(one.faults))
            for one in found.services
        ]
        titles = ("service", "spans", "log records", "called by", "fault types")
        print_table(f"{app.system}: ready after {ready_s:.1f} s", titles, rows)
        for one in found.services:
            if one.sidecar:
                echo(
                    f"The sidecar of {one.service} ({one.sidecar}) brings {', '.join(one.by_sidecar) or 'no fault type'}."
                )
        for sentence in (*found.not_known, *refused):
            echo(sentence)
        for sentence in found.findings:
            say(sentence)
        if not found.findings:
            following = "demo --system {}" if app.namespace is None else "incident record {} FAULT.yaml -o incidents"
            echo(f"All of it works. Next: `opsassay {following.format(system)}`.")
    context.exit(1 if found.findings else 0)


def _refused(app: System) -> list[str]:
    """Return a sentence for each reason for which fault types cannot hit pods of *app*, a namespace that exists."""
    if app.namespace is None:
        return []
    from opsassay.testbed.substrates.kubernetes.actuators.mechanisms import refusals
    from opsassay.testbed.substrates.kubernetes.api.client import Api

    found = refusals(Api.connect(None, app.namespace.context), app.namespace.name)
    return [f"Not possible: {', '.join(faults)} ({reason})." for reason, faults in found.items()]


def _check_namespace(context: click.Context, name: str, *, as_json: bool) -> NoReturn:
    """Print what the namespace *name* contains, what can be broken in it and what a trial would add; then exit."""
    from opsassay.testbed.substrates.kubernetes.api.client import Api
    from opsassay.testbed.substrates.kubernetes.drawing import NO_TRIAL, draw
    from opsassay.testbed.substrates.kubernetes.manifests.system import watch_of
    from opsassay.testbed.substrates.kubernetes.scenario.attached import LISTED

    drawn = draw(Api.connect(), name)
    probes = drawn.system.namespace.probes if drawn.system.namespace is not None else {}
    findings = [
        f"{one} has {ready} of {count} replicas ready."
        for one, (ready, count) in drawn.replicas.items()
        if ready < count
    ]
    findings += [note for note in drawn.notes if note.startswith(NO_TRIAL)]
    added = [one.format(name=name, watch=watch_of(name)) for one in LISTED]
    items = [
        {"deployment": one, "ready": ready, "replicas": count, "probe": probes.get(one)}
        for one, (ready, count) in drawn.replicas.items()
    ]
    possible = [one.category for one in drawn.scenarios]
    if as_json:
        print_json("system check", items, findings=findings, possible=possible, left_out=drawn.left_out, added=added)
        context.exit(1 if findings else 0)
    print_table(
        f"The namespace {name}", ("deployment", "ready", "replicas", "asked at"), [tuple(one.values()) for one in items]
    )
    echo(f"Possible: {', '.join(possible) or 'nothing'}.")
    if drawn.left_out:
        print_table("Left out", ("class", "why"), list(drawn.left_out.items()))
    for one in added:
        echo(f"A trial adds and removes {one}.")
    for sentence in dict.fromkeys([*drawn.notes, *findings]):
        say(sentence)
    context.exit(1 if findings else 0)
