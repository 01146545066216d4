"""Show what the evaluators of ITBench's compliance examples accept wrongly.

Run: ``python -m benchmarks.papers.itbench_compliance FOLDER``.
"""

from __future__ import annotations

import sys
from pathlib import Path

import click

from opsassay.cli.output import json_option, print_json, print_table, print_tables
from opsassay.solvers.sandbox import sealing_refusal

from ..running import run
from .reading import read_examples
from .rego_answers import by_engine
from .table import accepted_wrongly


@click.command("itbench_compliance")
@click.argument("folder", type=click.Path(exists=True, file_okay=False, path_type=Path))
@json_option
def command(folder: Path, *, as_json: bool) -> None:
    """Read ITBench's public compliance examples in FOLDER; show what their evaluators accept wrongly."""
    examples = read_examples(folder)
    table = accepted_wrongly(examples, None if sealing_refusal() else by_engine)
    if as_json:
        items = [
            {"id": one.folder, "class": one.task_class, "goal": one.goal, "evaluator": one.evaluator_is}
            for one in examples.each()
        ]
        print_json("itbench_compliance", items, table=table.as_item())
        return
    rows = [(one.folder, one.task_class, one.title, one.evaluator_is) for one in examples.each()]
    print_table("ITBench's public compliance examples", ("id", "class", "goal", "evaluator"), rows)
    print_tables([table])


if __name__ == "__main__":
    sys.exit(run(command))
