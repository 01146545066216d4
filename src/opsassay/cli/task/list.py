"""opsassay task list."""

from __future__ import annotations

from itertools import groupby
from pathlib import Path

import click

from opsassay.cli.output import json_option, print_json, print_tables


@click.command("list")
@click.argument("paths", nargs=-1, type=click.Path(exists=True, path_type=Path), metavar="[PATH]...")
@click.option("--domain", help="Tasks of this domain alone, such as diagnosis or sre.")
@json_option
def command(paths: tuple[Path, ...], domain: str | None, *, as_json: bool) -> None:
    """List every task: the scenarios that ship, and the incidents and scenarios at PATH (suites, folders, files)."""
    from opsassay.core.errors import UserError
    from opsassay.evals.runner.domain import DOMAINS, domain_named
    from opsassay.evals.runner.tables import ResultTable

    chosen = [domain] if domain is not None else DOMAINS.names()
    tasks = [task for name in chosen for task in domain_named(name).tasks(paths)]
    if paths and len(tasks) == sum(1 for name in chosen for _ in domain_named(name).tasks(())):
        named = f"{', '.join(str(path) for path in paths)} {'holds' if len(paths) == 1 else 'hold'}"
        of = f" of {domain}" if domain else ""
        raise UserError(f"{named} no task{of}; give a suite, a folder of incidents, or the YAML of a scenario.")
    if as_json:
        items = [task.model_dump(mode="json", by_alias=True) for task in tasks]
        print_json("task list", items)
        return
    columns = ("id", "class", "stratum", "complexity", "oracles")
    ordered = sorted(tasks, key=lambda t: (t.domain, t.stratum or "", t.complexity or 0.0, t.id))
    for name, group in groupby(ordered, key=lambda t: t.domain):
        rows = [(t.id, t.task_class, t.stratum, t.complexity and f"{t.complexity:.2f}", len(t.oracles)) for t in group]
        print_tables([ResultTable(f"Tasks of {name}", columns, tuple(rows))])
