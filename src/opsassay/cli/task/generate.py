"""opsassay task generate."""

from __future__ import annotations

from pathlib import Path

import click

from opsassay.cli.output import FOLDER, echo, json_option, print_json, print_table, say

PLAN = """# Questions over your own costs: opsassay run {folder}/plan.yaml -o costs
domain: finops
own: .
agents: ["oracle:*", constant, chance]
"""


@click.command("generate")
@click.option(
    "--cost", "files", multiple=True, required=True, metavar="FILE",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="Export by FOCUS 1.0 to 1.3, CSV or Parquet; several times for several files.",
)  # fmt: skip
@click.option("-o", "--output", required=True, type=FOLDER, help="Folder of the tasks, which must not exist.")
@click.option("--currency", help="BillingCurrency whose rows are asked about; the only one when left out.")
@click.option("--tag", help="Key of the tag that names an application; the most frequent when left out.")
@click.option("-n", "count", type=click.IntRange(1, 100), default=1, show_default=True, help="Tasks of each question.")
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Draws windows and names.")
@json_option
def command(
    files: tuple[Path, ...], output: Path, currency: str | None, tag: str | None, count: int, seed: int, *, as_json: bool
) -> None:  # fmt: skip
    """Make cost tasks of your own export: the same questions, keys computed in two ways that must agree.

    The folder gets the charges, the tasks and a plan of their runs. It holds the truth: keep it away from agents.
    """
    from opsassay.core.errors import UserError
    from opsassay.evals.cost.focus.export import read_export
    from opsassay.evals.cost.insight.own_costs import keep_export
    from opsassay.evals.cost.tasks import generate_own
    from opsassay.telemetry.content import whole_folder

    with whole_folder(output) as partial:
        export = read_export(files, currency, tag)
        tasks, left_out = generate_own(keep_export(export, partial), seed, count)
        if not tasks:
            why = "; ".join(f"{name}: {reason}" for name, reason in left_out.items())
            raise UserError(f"These charges answer no question ({why}); export more days.")
        for task in tasks:
            task.keep(partial)
        (partial / "plan.yaml").write_text(PLAN.format(folder=output), encoding="utf-8")
    items = [
        {
            "id": one.id, "stratum": one.body.stratum, "goal": one.body.goal, "oracles": list(one.body.oracles),
            "commitment": one.commitment,
        }
        for one in tasks
    ]  # fmt: skip
    if as_json:
        print_json("task generate", items, left_out=left_out, notes=list(export.notes))
        return
    for note in export.notes:
        say(f"Note: {note}.")
    print_table(
        "Tasks", ("task", "stratum", "goal"), [(i["id"], i["stratum"], str(i["goal"]).split("\n")[0]) for i in items]
    )
    if left_out:
        print_table("Questions that these costs do not answer", ("question", "why"), list(left_out.items()))
    echo(f"{len(tasks)} tasks on {len(export.rows)} charges in {export.currency}.")
    say(f"Next: `opsassay run {output}/plan.yaml -o costs`.")
