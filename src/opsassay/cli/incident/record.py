"""opsassay incident record."""

from __future__ import annotations

import os
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

import click

from opsassay.cli.completion import RUNNING, SYSTEM
from opsassay.cli.output import FOLDER, NumberRange, echo, json_option, otlp_option, print_json, stages, window_options
from opsassay.cli.substrates import fresh_option, substrate_for

if TYPE_CHECKING:
    from opsassay.testbed.core.substrate import RunningSystem


@click.command("record")
@click.argument("system", type=SYSTEM)
@click.argument("fault", type=click.Path(path_type=Path))
@click.option("-o", "--output", required=True, type=FOLDER, help="Folder of the incident tree.")
@click.option("--on", "name", type=RUNNING, help="Record on this running system instead of a fresh one.")
@window_options(60.0)
@click.option("--warmup", "warmup_s", type=NumberRange(min=0), default=8.0, show_default=True, help="Warm-up, s.")
@click.option(
    "--like",
    type=click.Path(path_type=Path),
    help="truth.json of a recording; names, load and windows are drawn as there.",
)
@fresh_option
@otlp_option
@json_option
def command(
    system: str, fault: Path, output: Path, name: str | None, normal_s: float, abnormal_s: float, warmup_s: float,
    like: Path | None, substrate: str, otlp: str | None, *, as_json: bool,
) -> None:  # fmt: skip
    """Record one incident: SYSTEM (name or YAML file) broken by the fault of the YAML file FAULT.

    Writes OUTPUT/incidents/ID (what a solver may see) and OUTPUT/truth/ID. --on: a running system to use instead of a
    fresh one. --like: a truth.json; pod names, load and windows' ends are drawn with the secret in it. With --otlp all
    telemetry goes to a receiver too, while it is recorded.
    """
    from opsassay.core.draws import derived_seed, new_secret
    from opsassay.core.errors import UserError
    from opsassay.core.schema.files import load_yaml
    from opsassay.core.schema.incident import FaultPlan, Truth
    from opsassay.telemetry.tree import Tree, read_noun
    from opsassay.testbed.apps import load_system
    from opsassay.testbed.recording.record import Schedule, check_output, record

    app, plan = load_system(system), load_yaml(fault, FaultPlan)
    secret = new_secret() if like is None else read_noun(Truth, like).secret
    if not secret:
        raise UserError(f"{like} holds no secret, since it was imported or recorded long ago; leave --like out.")
    chosen, isolation = substrate_for(app, substrate)
    tree = Tree(output)
    running = None if name is None else chosen.running(name)
    if running is None:
        chosen.require(app, plan, isolation, source=fault)
    else:
        running.require(plan, source=fault)
    check_output(tree)
    with stages() as shown:
        shown.started(f"starting {app.system}")
        fresh: AbstractContextManager[RunningSystem | None] = nullcontext(running)
        if running is None:
            fresh = chosen.deployed(
                app, f"{app.system}-{os.getpid()}", seed=derived_seed(secret, "system"), isolation=isolation
            )
        with fresh as recorded:
            assert recorded is not None
            if recorded.status().system != app.system:
                raise UserError(f"{name} runs another system than {app.system}; name the one that it runs.")
            schedule = Schedule(warmup_s, normal_s, abnormal_s)
            id_ = record(recorded, app, plan, tree, schedule, secret=secret, otlp=otlp, progress=shown)
            shown.started("finishing")
    truth = tree.truth(id_)
    affected = truth.affected()
    item = {
        "incident": str(tree.incident_path(id_)), "truth": str(tree.truth_path(id_)), "fault": plan.name,
        "effect": all(one.acted for one in affected), "recovered": truth.recovered,
        "faults": [{"fault": one.fault.type, "on": one.fault.place, "effect": one.acted} for one in affected],
        "notes": list(truth.notes),
    }  # fmt: skip
    if as_json:
        print_json("incident record", [item])
        return
    echo(f"incident  {item['incident']}\ntruth     {item['truth']}")
    for fault_, _, acted in affected:
        seen = "was seen to act" if acted else "did not bite at this load: recorded as no_effect"
        echo(f"{fault_.type} on {fault_.place} {seen}.")
    recovered = "The system recovered." if truth.recovered else "The system did NOT recover in time."
    echo(recovered if affected else "Nothing was broken.")
    for note in truth.notes:
        echo(f"note: {note}")
    echo(f"Next: `opsassay incident annotate {output}`.")
