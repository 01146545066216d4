"""opsassay task itbench."""

from __future__ import annotations

from pathlib import Path

import click

from opsassay.cli.output import json_option, print_json, print_table, print_tables


@click.command("itbench")
@click.argument("folder", type=click.Path(exists=True, file_okay=False, path_type=Path))
@json_option
def command(folder: Path, *, as_json: bool) -> None:
    """Read ITBench's public compliance examples in FOLDER; show what their evaluators accept wrongly."""
    from opsassay.evals.compliance.itbench.reading import read_examples
    from opsassay.evals.compliance.itbench.rego_answers import by_engine
    from opsassay.evals.compliance.itbench.table import accepted_wrongly
    from opsassay.solvers.sandbox import sealing_refusal

    examples = read_examples(folder)
    table = accepted_wrongly(examples, None if sealing_refusal() else by_engine)
    if as_json:
        items = [
            {"id": one.folder, "class": one.task_class, "goal": one.goal, "evaluator": one.evaluator_is}
            for one in examples.each()
        ]
        print_json("task itbench", items, table=table.as_item())
        return
    rows = [(one.folder, one.task_class, one.title, one.evaluator_is) for one in examples.each()]
    print_table("ITBench's public compliance examples", ("id", "class", "goal", "evaluator"), rows)
    print_tables([table])
