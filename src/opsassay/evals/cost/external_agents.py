"""An external agent on cost data: a command that reads its task from a file and reaches the tools by MCP, or the files."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from opsassay.evals.cost.answers import ANSWER
from opsassay.evals.cost.tool_session import DIALECT, CostToolSession
from opsassay.evals.runner.attempt import MAX_ANSWER_BYTES
from opsassay.evals.runner.commands import WORK_INSIDE
from opsassay.evals.runner.external_agents import ExternalAgent, ExternalTask, output_of, run_outside
from opsassay.evals.runner.store import LOG
from opsassay.solvers.agents.command import CommandAgent
from opsassay.solvers.agents.limits import Meter

if TYPE_CHECKING:
    from opsassay.evals.cost.job import CostJob


def answer_outside(
    command: CommandAgent,
    job: CostJob,
    desk: CostToolSession,
    meter: Meter,
    folder: Path,
    run_dir: Path,
    *,
    sealed: bool,
) -> str | None:
    """Run the command and take what it handed in: by submit, else its answer file, else what it printed.

    Returns why there is no answer.
    """
    with_tools = "mcp" in command.file.needs

    def prompt(places: Mapping[str, str]) -> str:
        tools = "The tools of the MCP server `opsassay` look at the tables; hand in the answer with submit.\n"
        files = f"The tables are parquet files in {places['view']}, described in its schema.md.\n"
        written = f"Write the answer to {places['answer']}" + (", or submit it.\n" if with_tools else ".\n")
        return f"{job.task.body.goal}\n{tools if with_tools else ''}{files}SQL is {DIALECT}.\n{written}"

    task = ExternalTask(
        folder / "view",
        prompt,
        desk if with_tools else None,
        further=lambda work, is_sealed: {"answer": f"{WORK_INSIDE if is_sealed else work}/{ANSWER}"},
    )
    end = run_outside(ExternalAgent.of(command, job.agent.model), task, folder, run_dir, meter, sealed=sealed)
    if said := output_of(end):
        (run_dir / LOG).write_text(said + "\n", encoding="utf-8", errors="replace")
    if desk.answer is not None:
        return None
    if not end.started or (end.limit is None and end.exit_code != 0):
        return end.reason
    file = folder / "work" / ANSWER
    if file.is_file() and not file.is_symlink():
        if file.stat().st_size > MAX_ANSWER_BYTES:
            return f"the answer is larger than {MAX_ANSWER_BYTES} bytes"
        return job.take(desk, file.read_bytes())
    return end.reason if end.limit else job.take(desk, end.stdout_tail)
