"""opsassay trace convert."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from opsassay.cli.output import FILE, echo, json_option, print_json, print_table
from opsassay.core.errors import UserError

if TYPE_CHECKING:
    from opsassay.core.schema.trajectory import Trace


@click.command("convert")
@click.argument("path", type=click.Path(path_type=Path))
@click.option("-o", "--output", type=FILE, help="File to write; a summary is printed when left out.")
@click.option(
    "--to",
    "form",
    type=click.Choice(["json", "otel", "atif"]),
    default="json",
    show_default=True,
    help="Form of the file.",
)
@click.option("--hashes", is_flag=True, help="Write hashes instead of all inputs and outputs.")
@json_option
def command(path: Path, output: Path | None, form: str, *, hashes: bool, as_json: bool) -> None:
    """Convert PATH into a trace in the form --to (json, otel, atif); --hashes replaces inputs and outputs.

    It may be a recorded session, a trace, OpenTelemetry spans, or a file of ATIF, inspect_ai, AutoGen, SWE-agent,
    Who&When or TraceElephant.
    """
    from opsassay.solvers.proxy.formats import read_one
    from opsassay.solvers.proxy.formats.export import write_trace
    from opsassay.solvers.proxy.redaction import hashed

    skipped: list[str] = []
    found = hashed(read_one(path, skipped)) if hashes else read_one(path, skipped)
    if not found.steps:
        raise UserError(f"{path} holds no step of an agent, so there is no trace to convert; give another file.")
    if output is not None:
        write_trace(found, output, form)
    if as_json:
        print_json(
            "trace convert",
            [_step_as_json(step) for step in found.steps],
            system=found.system_name,
            output=output,
            skipped=skipped,
        )
    else:
        _print_steps(found)
        for note in skipped:
            echo(f"Note: {note}.")
        written = f"Written: {output}. " if output is not None else ""
        echo(
            f"{written}Next: `opsassay trace blame view {output or path} -o trace.html`, "
            f"`opsassay trace blame {output or path}`."
        )


def _step_as_json(step: Any) -> dict[str, Any]:
    """Return one step of a trace as an item of JSON, without its texts."""
    return {
        "step_id": step.step_id,
        "agent_name": step.agent_name,
        "kind": step.kind,
        "tools": [call.tool for call in step.tool_logs],
        "usage": step.usage,
        "finish_reason": step.finish_reason,
        "error": step.error,
    }


def _print_steps(trace: Trace) -> None:
    """Print one row for each step of *trace*: agent, kind, tools, tokens, output."""
    rows = [
        (s.step_id, s.agent_name, s.kind, ", ".join(c.tool for c in s.tool_logs) or None,
         s.usage.get("input_tokens", 0) + s.usage.get("output_tokens", 0) or None,
         s.error or " ".join(s.output_content.split())[:60] or s.finish_reason)
        for s in trace.steps
    ]  # fmt: skip
    print_table(f"Trace of {trace.system_name}", ("step", "agent", "kind", "tools", "tokens", "output"), rows)
