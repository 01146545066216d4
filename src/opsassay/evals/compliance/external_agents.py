"""An external agent on a compliance task: a command with a workspace of its own, and the tools by MCP or as commands."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from opsassay.evals.compliance.answers import place
from opsassay.evals.compliance.repository import FOLDER
from opsassay.evals.compliance.tool_session import ComplianceToolSession
from opsassay.evals.compliance.workspace import begin
from opsassay.evals.runner.commands import TOOL, WORK_INSIDE
from opsassay.evals.runner.external_agents import ExternalAgent, ExternalTask, output_of, run_outside
from opsassay.evals.runner.store import LOG
from opsassay.solvers.agents.command import CommandAgent
from opsassay.solvers.agents.limits import Meter

if TYPE_CHECKING:
    from opsassay.evals.compliance.job import ComplianceJob


def work_outside(
    command: CommandAgent,
    job: ComplianceJob,
    desk: ComplianceToolSession,
    meter: Meter,
    folder: Path,
    run_dir: Path,
    *,
    sealed: bool,
) -> str | None:
    """Run the command in a workspace in *folder*; return what went wrong, as far as it is known."""
    task, with_tools, view = job.task, "mcp" in command.file.needs, folder / "view"
    view.mkdir()
    place(task.files(job.examples).items(), view)

    def further(work: Path, is_sealed: bool) -> dict[str, str]:
        begin(task.files(0), work)
        place = WORK_INSIDE if is_sealed else str(work)
        return {"answer": f"{place}/{FOLDER}" if task.collector is None else place}

    def prompt(places: Mapping[str, str]) -> str:
        said = [task.goal]
        if job.examples:
            said.append(f"Examples of what complies and of what violates are in {places['view']}.")
        said.append(
            f"Your workspace is {places['work']}, a git repository. Leave what is asked for in {places['answer']}/, those "
            "policies that you do not change too."
        )
        if with_tools:
            said.append(
                f"The tools of the MCP server `opsassay`, and `python3 {TOOL}` in your workspace, run what you write. They "
                "have a workspace of their own, and when you call submit, that one is handed in."
            )
        return "\n".join(said) + "\n"

    outside = ExternalTask(view, prompt, desk if with_tools else None, further)
    end = run_outside(ExternalAgent.of(command, job.agent.model), outside, folder, run_dir, meter, sealed=sealed)
    if said := output_of(end):
        (run_dir / LOG).write_text(said + "\n", encoding="utf-8", errors="replace")
    return end.reason if not end.started or end.limit or end.exit_code != 0 else None
