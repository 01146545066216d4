"""opsassay incident export."""

from __future__ import annotations

from pathlib import Path

import click

from opsassay.cli.left_out import first_left_out, say_left_out
from opsassay.cli.output import FOLDER, echo, json_option, print_json
from opsassay.core.text import plural

_PATH = click.Path(path_type=Path)


@click.command("export")
@click.argument("tree", type=_PATH)
@click.option("-o", "--output", required=True, type=FOLDER, help="Folder of the public-form datapacks.")
@json_option
def command(tree: Path, output: Path, *, as_json: bool) -> None:
    """Write every incident of TREE and its truth as a folder in the public form; the folder's name reveals the answer."""
    from opsassay.core.errors import UserError
    from opsassay.telemetry.public import export_public
    from opsassay.telemetry.tree import Tree

    source = Tree(tree)
    if not source.ids():
        raise UserError(
            f"{tree} holds no incidents; give a folder made by `opsassay incident record` or `opsassay incident import`."
        )
    folders = export_public(source, output)
    if as_json:
        print_json("incident export", [{"datapack": str(folder)} for folder in folders])
    else:
        echo("\n".join(str(folder) for folder in folders))


@click.command("harbor")
@click.argument("tree", type=_PATH, required=False)
@click.option(
    "--scenario", "scenarios", multiple=True, metavar="NAME", help="A scenario, its file, or `all`; repeat for more."
)
@click.option("-o", "--output", required=True, type=FOLDER, help="New folder of the tasks.")
@click.option(
    "--install", metavar="WHAT", help="A wheel of OpsAssay, or what pip fetches; the one that runs when left out."
)
@json_option
def harbor(tree: Path | None, scenarios: tuple[str, ...], output: Path, install: str | None, *, as_json: bool) -> None:
    """Write Harbor tasks for incidents of TREE with a truth, or live --scenario; --install: the OpsAssay they contain."""
    from opsassay.core.errors import UserError
    from opsassay.evals.runner.harbor import container_install

    if (tree is None) == (not scenarios):
        raise UserError("Name what becomes tasks: the folder of incidents TREE, or --scenario NAME.")
    ours = container_install(install, "data" if tree is not None else "testbed,agents,apis")
    left_out: list[tuple[Path, str]] = []
    if tree is not None:
        from opsassay.evals.diagnosis.harnesses.harbor import write_tasks
        from opsassay.telemetry.tree import resolve

        cases, note = resolve(tree), lambda name, why: left_out.append((tree / name, why))
        tasks, what = write_tasks(cases, output, ours, note), f"{tree} holds no incident"
    else:
        from opsassay.evals.remediation.harbor.tasks import write_scenario_tasks
        from opsassay.evals.remediation.plan import scenarios_named

        note = lambda name, why: left_out.append((Path(name), why))  # noqa: E731
        tasks = write_scenario_tasks(scenarios_named(scenarios), output, ours, note)
        what = "No scenario is named"
    if not tasks:
        raise UserError(f"{what} that can be a task{first_left_out(left_out)}")
    say_left_out(left_out)
    if as_json:
        print_json("incident export harbor", [{"task": task.name, "path": str(task)} for task in tasks], output=output)
    else:
        echo(f"{plural(len(tasks), 'task')} of Harbor: {output}")


@click.command("dataset")
@click.argument("suite", type=_PATH)
@click.option("-o", "--output", required=True, type=FOLDER, help="New folder of the data set.")
@click.option(
    "--license", "license_", default="other", show_default=True, help="Licence in the card, as the Hub names it."
)
@click.option("--without-truth", is_flag=True, help="Leave the truth here; others then cannot grade.")
@json_option
def dataset(suite: Path, output: Path, license_: str, *, without_truth: bool, as_json: bool) -> None:
    """Write SUITE, or any tree of incidents, as a data set for the Hugging Face Hub, --without-truth or with it."""
    from opsassay.annotation.suites.publish import write_data_set
    from opsassay.evals.diagnosis.tasks import open_suite

    cases = [case for case, _ in open_suite(suite)]
    incidents = write_data_set(cases, suite, output, license_=license_, with_truth=not without_truth)
    if as_json:
        print_json("incident export dataset", [{"incidents": incidents, "truth": not without_truth}], output=output)
    else:
        echo(f"{plural(incidents, 'incident')} {'without' if without_truth else 'with'} their truth: {output}")
