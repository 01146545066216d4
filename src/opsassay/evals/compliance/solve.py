"""Runs on compliance tasks by an oracle, a baseline, the built-in agent or a command."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from opsassay.core.schema.run import Metric
from opsassay.core.schema.tool_session import ToolSpec
from opsassay.evals.compliance.clusters.repository import FOLDER
from opsassay.evals.compliance.environment import ComplianceToolSession, WorkspaceEnvironment, session_specs
from opsassay.evals.compliance.files.submitted import collect
from opsassay.evals.compliance.files.workspace import begin
from opsassay.evals.compliance.score import grade_run
from opsassay.evals.compliance.scripts.oracles import BASELINES, ORACLES, baseline
from opsassay.evals.compliance.tasks import EXAMPLES, ComplianceTask
from opsassay.evals.runner.commands import TOOL, WORK_INSIDE
from opsassay.evals.runner.generated_run import FolderEnvironment, GeneratedRun
from opsassay.solvers.agents.asking import Asker
from opsassay.solvers.agents.ciso import ComplianceAgent
from opsassay.solvers.agents.contract import AnswerError
from opsassay.solvers.agents.limits import Meter
from opsassay.solvers.sandbox import Ended


@dataclass(frozen=True)
class ComplianceRun(GeneratedRun[ComplianceTask, ComplianceToolSession]):
    """One planned run on a compliance task."""

    kind_of_task = "compliance task"
    built_in = ComplianceAgent.name
    baselines = BASELINES

    @property
    def examples(self) -> int:
        """The number of compliant, and of violating, examples that the agent is shown."""
        return int(self.arm.knob("examples") or EXAMPLES)

    def tools(self) -> tuple[ToolSpec, ...]:
        """Return the tool specifications that the agent sees, submit last."""
        return session_specs(self.task)

    def evaluate(self, run_dir: Path) -> Mapping[str, Metric]:
        """Return the metrics of the finished run in *run_dir*."""
        return grade_run(run_dir, self.task)

    def environment(self, run_dir: Path, meter: Meter) -> WorkspaceEnvironment:
        """Return the task's workspace environment in *run_dir*; *meter* counts the usage of its tools."""
        return WorkspaceEnvironment(self.task, run_dir, meter, self.examples)

    def play(self, session: ComplianceToolSession) -> str | None:
        """Replace the workspace's files by those of the oracle or baseline; return None: no failure."""
        oracle, name = self.oracle, self.agent.name
        left = baseline(name, self.task) if oracle is None else ORACLES[self.task.task_class][oracle][0](self.task)
        session.replace_files(left.items())
        return None

    def conversation(self, asker: Asker, session: ComplianceToolSession) -> tuple[ComplianceAgent, str]:
        """Return the built-in agent, which asks its model by *asker*, and its first message."""
        return ComplianceAgent(
            asker, session, session.specs(), session.problem
        ), f"{self.task.goal}\n{session.places()}"

    def prompt(self, places: Mapping[str, str], *, with_tools: bool) -> str:
        """Return the goal with the paths *places* of examples and workspace and, *with_tools*, the tools' names."""
        said = [self.task.goal]
        if self.examples:
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

    def answer_place(self, work: Path, *, sealed: bool) -> str:
        """Create an external agent's workspace in *work*; return its path, as the sandbox has it if *sealed*."""
        begin(self.task.files(0), work)
        place = WORK_INSIDE if sealed else str(work)
        return f"{place}/{FOLDER}" if self.task.collector is None else place

    def take(self, end: Ended, work: Path, session: ComplianceToolSession) -> str | None:
        """Return why the external agent failed, by how its process ended; None for success. *work* is not read."""
        del work, session
        return end.reason if not end.started or end.limit or end.exit_code != 0 else None

    def collect(
        self, environment: FolderEnvironment[ComplianceToolSession], session: ComplianceToolSession
    ) -> str | None:
        """Copy the answer files from the workspace to the run folder; return why that failed, else None."""
        by_tools = session.is_submitted or self.command is None
        try:
            collect(environment.folder / ("workspace" if by_tools else "work"), environment.run_dir, self.task)
        except AnswerError as refused:
            return str(refused)
        return None
