"""opsassay trace redact."""

from __future__ import annotations

from pathlib import Path

import click

from opsassay.cli.output import FILE, json_option, print_json, print_table


@click.command("redact")
@click.argument("path", type=click.Path(path_type=Path))
@click.option("-o", "--output", type=FILE, required=True, help="File to write the redacted trace to.")
@click.option(
    "--config",
    type=click.Path(path_type=Path),
    help="YAML of what to redact; paths, e-mails, keys and addresses when left out.",
)
@json_option
def command(path: Path, output: Path, config: Path | None, *, as_json: bool) -> None:
    """Write a copy of the trace at PATH, redacted by --config or the defaults; report what each step lost."""
    from opsassay.core.schema.files import load_yaml
    from opsassay.solvers.proxy.formats import read_one
    from opsassay.solvers.proxy.formats.export import write_trace
    from opsassay.solvers.proxy.redaction import RedactionRules, redact_trace

    rules = load_yaml(config, RedactionRules) if config else RedactionRules()
    clean, report = redact_trace(read_one(path), rules)
    write_trace(clean, output, "json")
    items = [row.model_dump() for row in report]
    if as_json:
        print_json("trace redact", items, output=output)
    else:
        rows = [(row.kind, row.count, row.distinct, ", ".join(map(str, row.steps)) or "metadata") for row in report]
        print_table(f"Redacted in {output}", ("kind", "occurrences", "distinct", "steps"), rows)
