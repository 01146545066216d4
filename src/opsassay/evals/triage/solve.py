"""Runs on alert storms by an oracle, a baseline, the built-in agent or a command."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from opsassay.core.schema.run import Metric
from opsassay.core.schema.tool_session import ToolSpec
from opsassay.evals.runner.json_answers import JsonRun
from opsassay.evals.triage.alerts.answers import BASELINES, oracle_answer
from opsassay.evals.triage.environment import ALERTS_FILE, StormEnvironment, StormToolSession, session_specs
from opsassay.evals.triage.score import grade_answer
from opsassay.evals.triage.tasks import Storm
from opsassay.solvers.agents.asking import Asker
from opsassay.solvers.agents.limits import Meter
from opsassay.solvers.agents.tool_sessions import SUBMIT
from opsassay.solvers.agents.triage import TriageAgent
from opsassay.telemetry.datapack import Datapack


@dataclass(frozen=True)
class StormRun(JsonRun[Storm, StormToolSession]):
    """One planned run on a storm; *pack* is its telemetry if it is of one recording."""

    kind_of_task = "storm"
    built_in = TriageAgent.name
    baselines = tuple(BASELINES)
    pack: Datapack | None = None

    def tools(self) -> tuple[ToolSpec, ...]:
        """Return the tool specifications that the agent sees, submit last."""
        return session_specs(with_telemetry=self.pack is not None)

    def evaluate(self, run_dir: Path) -> Mapping[str, Metric]:
        """Return the metrics of the finished run in *run_dir*."""
        return grade_answer(run_dir, self.task)

    def environment(self, run_dir: Path, meter: Meter) -> StormEnvironment:
        """Return the storm's environment in *run_dir*; *meter* counts the usage of its tools."""
        return StormEnvironment(self.task, self.pack, run_dir, meter)

    def play(self, session: StormToolSession) -> str | None:
        """Submit the answer of the oracle or baseline in *session*; return None, since it always has one."""
        given = BASELINES[self.agent.name](self.task) if self.oracle is None else oracle_answer(self.oracle, self.task)
        session.call(SUBMIT, given.as_answer())
        return None

    def conversation(self, asker: Asker, session: StormToolSession) -> tuple[TriageAgent, str]:
        """Return the built-in triage agent, which asks its model by *asker*, and its first message."""
        return TriageAgent(asker, session, session.specs(), session.problem_of), self.task.goal

    def prompt(self, places: Mapping[str, str], *, with_tools: bool) -> str:
        """Return the prompt: the storm, the paths *places* of telemetry and answer and, *with_tools*, how to use tools."""
        said = [self.task.goal, f"Alerts and calls as JSON are in {places['view']}/{ALERTS_FILE}."]
        if self.pack is not None:
            said.append("The telemetry is next to it: parquet files with times in UTC.")
        if with_tools:
            said.append("The tools of the MCP server `opsassay` look at it; hand in the answer with submit.")
        return "\n".join(
            [*said, f"Write the answer to {places['answer']}" + (", or submit it.\n" if with_tools else ".\n")]
        )
