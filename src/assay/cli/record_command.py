"""assay record."""

from __future__ import annotations

import os
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import click

from assay.cli.output import abnormal_option, json_option, normal_option, print_json, stages


@click.command("record")
@click.argument("system")
@click.argument("fault", type=click.Path(path_type=Path))
@click.option("-o", "--output", required=True, type=click.Path(path_type=Path), help="Folder of the incident tree.")
@click.option("--on", "name", help="Record on this running system instead of a fresh one.")
@normal_option
@abnormal_option
@click.option("--warmup", "warmup_s", type=click.FloatRange(min=0), default=8.0, show_default=True, help="Warm-up, s.")
@click.option("--seed", type=int, default=0, show_default=True, help="Makes names, load and windows repeatable.")
@json_option
def command(
    system: str, fault: Path, output: Path, name: str | None, normal_s: float, abnormal_s: float, warmup_s: float,
    seed: int, *, as_json: bool,
) -> None:  # fmt: skip
    """Record one incident: SYSTEM (name or YAML file) broken by the fault of the YAML file FAULT.

    Writes OUTPUT/incidents/ID (what a solver may see) and OUTPUT/truth/ID.
    """
    from assay.errors import UserError
    from assay.model.files import load_yaml
    from assay.model.incident import FaultPlan
    from assay.telemetry.tree import Tree
    from assay.testbed.apps import load_system
    from assay.testbed.local.substrate import LocalSubstrate
    from assay.testbed.record import Schedule, record

    app, plan = load_system(system), load_yaml(fault, FaultPlan).completed()
    substrate, tree = LocalSubstrate(), Tree(output)
    with stages() as shown:
        shown.begin(f"starting {app.system}")
        if name is not None:
            running: AbstractContextManager[Any] = nullcontext(substrate.running(name))
        else:
            running = substrate.deployed(app, f"{app.system}-{os.getpid()}", seed=seed)
        with running as recorded:
            if recorded.status()["system"] != app.system:
                raise UserError(f"{name} runs another system than {app.system}; name the one that it runs.")
            schedule = Schedule(warmup_s, normal_s, abnormal_s)
            id_ = record(recorded, app, plan, tree, schedule, seed=seed, on_progress=shown.begin)
            shown.begin("finishing")
    truth = tree.truth(id_)
    bites = truth.effect is None or truth.effect.passed
    item = {
        "incident": str(tree.incident_path(id_)), "truth": str(tree.truth_path(id_)), "fault": plan.fault,
        "effect": bites, "recovered": truth.recovered,
    }  # fmt: skip
    if as_json:
        print_json("record", [item])
        return
    click.echo(f"incident  {item['incident']}\ntruth     {item['truth']}")
    acted = "was seen to act" if bites else "did not bite at this load: recorded as no_effect"
    recovered = "the system recovered" if truth.recovered else "the system did NOT recover in time"
    click.echo("Nothing was broken." if truth.effect is None else f"{plan.fault} {acted}; {recovered}.")
    for note in truth.notes:
        click.echo(f"note: {note}")
    click.echo(f"Next: `assay annotate {output}`.")
