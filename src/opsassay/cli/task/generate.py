"""opsassay task generate."""

from __future__ import annotations

import json
from pathlib import Path

import click

from opsassay.cli.output import FOLDER, echo, json_option, print_json, print_table, say

PLAN = """# Tasks on your own costs: opsassay run {folder}/plan.yaml -o costs
domain: finops
own: .
agents: ["oracle:*", constant, chance]
"""


TRIALS = """# Trials in the namespace {name}: opsassay run trials {folder}/plan.yaml -o trials
scenarios: [{files}]
agents: ["oracle:*"]
cluster: {cluster}
"""


@click.command("generate")
@click.option(
    "--cost",
    "files",
    multiple=True,
    metavar="FILE",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="Export by FOCUS 1.0 to 1.3, CSV or Parquet; several times for several files.",
)
@click.option("--namespace", metavar="NAME", help="Namespace of a cluster whose deployments are broken and repaired.")
@click.option("-o", "--output", required=True, type=FOLDER, help="Folder of the tasks, which must not exist.")
@click.option("--currency", help="BillingCurrency whose rows are asked about; the only one when left out.")
@click.option("--tag", help="Key of the tag that names an application; the most frequent when left out.")
@click.option(
    "-n",
    "--count",
    type=click.IntRange(1, 100),
    default=1,
    show_default=True,
    help="Tasks of each question, or scenarios of each class.",
)
@click.option(
    "--seed", type=click.IntRange(0), default=0, show_default=True, help="Draws windows and names, or deployments."
)
@click.option(
    "--kubeconfig",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="With --namespace: the cluster; kubectl's own choice when left out.",
)
@click.option("--context", "kube_context", metavar="NAME", help="With --namespace: the current one when left out.")
@json_option
def command(
    files: tuple[Path, ...], namespace: str | None, output: Path, currency: str | None, tag: str | None, count: int,
    seed: int, kubeconfig: Path | None, kube_context: str | None, *, as_json: bool,
) -> None:  # fmt: skip
    """Generate tasks from your own data: cost tasks from a FOCUS export, or remediation scenarios from a namespace.

    The folder gets the tasks, --count of each question or scenario class, and a plan of their runs. It holds the truth:
    keep it away from agents. --currency and --tag select cost rows; --kubeconfig and --context the cluster.
    """
    from opsassay.core.errors import UserError

    if bool(files) == (namespace is not None):
        raise UserError("Give either --cost FILE or --namespace NAME.")
    if namespace is not None:
        _generate_from_namespace(namespace, output, count, seed, kubeconfig, kube_context, as_json=as_json)
    else:
        _generate_from_costs(files, output, currency, tag, count, seed, as_json=as_json)


def _generate_from_namespace(
    name: str, output: Path, count: int, seed: int, kubeconfig: Path | None, context: str | None, *, as_json: bool
) -> None:
    """Draw *count* scenarios a class from the Kubernetes namespace *name*; write them, its system and a plan."""
    import yaml

    from opsassay.core.errors import UserError
    from opsassay.telemetry.content import whole_folder
    from opsassay.testbed.substrates.kubernetes.api.client import Api
    from opsassay.testbed.substrates.kubernetes.drawing import draw

    file = output / "system.yaml"
    drawn = draw(Api.connect(kubeconfig, context), name, seed=seed, per_class=count, system_file=str(file))
    if not drawn.scenarios:
        raise UserError(f"Nothing can be broken in {name}: {'; '.join(dict.fromkeys(drawn.left_out.values()))}.")
    cluster = {"kubeconfig": str(kubeconfig.resolve()) if kubeconfig else None, "context": context}
    with whole_folder(output) as partial:
        written = {file.name: drawn.system, **{f"{one.id}.yaml": one for one in drawn.scenarios}}
        for target, noun in written.items():
            content = noun.model_dump(mode="json", by_alias=True, exclude_defaults=True)
            (partial / target).write_text(yaml.safe_dump(content, sort_keys=False, width=120), encoding="utf-8")
        given = json.dumps({key: value for key, value in cluster.items() if value})
        scenarios = ", ".join(f"{one.id}.yaml" for one in drawn.scenarios)
        plan = TRIALS.format(name=name, folder=output, files=scenarios, cluster=given)
        (partial / "plan.yaml").write_text(plan, encoding="utf-8")
    rows = [(one.id, one.description, one.verification.committed_depth) for one in drawn.scenarios]
    if as_json:
        items = [dict(zip(("id", "description", "depth"), row, strict=True)) for row in rows]
        print_json("task generate", items, left_out=drawn.left_out, notes=list(drawn.notes))
        return
    for note in drawn.notes:
        say(f"Note: {note}")
    print_table("Scenarios", ("scenario", "what is broken", "depth"), rows)
    if drawn.left_out:
        print_table("Classes that are left out", ("class", "why"), list(drawn.left_out.items()))
    echo(f"{len(rows)} scenarios in {name}; the server has tried each trigger and its undo, and nothing was changed.")
    trials = f"opsassay run trials {output}/plan.yaml -o trials"
    say(f"Next: `opsassay system check {file}`, then `{trials}`.")


def _generate_from_costs(
    files: tuple[Path, ...],
    output: Path,
    currency: str | None,
    tag: str | None,
    count: int,
    seed: int,
    *,
    as_json: bool,
) -> None:
    """Write *count* tasks of each question on the FOCUS exports *files*, with *currency* and *tag*, to *output*."""
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
        print_table("Tasks that these costs do not give", ("task", "why"), list(left_out.items()))
    echo(f"{len(tasks)} tasks on {len(export.rows)} charges in {export.currency}.")
    say(f"Next: `opsassay run {output}/plan.yaml -o costs`.")
