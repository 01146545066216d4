"""Runs on cost data by an oracle, a baseline, the built-in agent or a command."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from opsassay.core.schema.run import Metric
from opsassay.core.schema.tool_session import ToolSpec
from opsassay.evals.cost.environment import DIALECT, CostTablesEnvironment, CostToolSession, looking_specs, submit_spec
from opsassay.evals.cost.score import grade_answer
from opsassay.evals.cost.scripts import oracles
from opsassay.evals.cost.tasks import CostTask
from opsassay.evals.runner.draws import Draws
from opsassay.evals.runner.json_answers import JsonRun
from opsassay.solvers.agents.asking import Asker
from opsassay.solvers.agents.finops import FinopsAgent
from opsassay.solvers.agents.limits import Meter
from opsassay.solvers.agents.tool_sessions import SUBMIT


@dataclass(frozen=True)
class CostRun(JsonRun[CostTask, CostToolSession]):
    """One planned run on cost data."""

    kind_of_task = "cost task"
    built_in = FinopsAgent.name
    baselines = tuple(oracles.BASELINES)

    def tools(self) -> tuple[ToolSpec, ...]:
        """Return the tool specifications that the agent sees, submit last."""
        return (*looking_specs(), submit_spec(self.task))

    def evaluate(self, run_dir: Path) -> Mapping[str, Metric]:
        """Return the metrics of the finished run in *run_dir*."""
        return grade_answer(run_dir, self.task)

    def environment(self, run_dir: Path, meter: Meter) -> CostTablesEnvironment:
        """Return the task's environment in *run_dir*; *meter* counts the usage of its tools."""
        return CostTablesEnvironment(self.task, run_dir, meter)

    def play(self, session: CostToolSession) -> str | None:
        """Submit the answer of the oracle or baseline in *session*; return the reason when it has none, else None."""
        if self.oracle is not None:
            oracles.play(self.oracle, self.task, session)
            return None
        draws = Draws(self.seed, "baseline", self.task.commitment)
        answer = oracles.BASELINES[self.agent.name](self.task.body, draws)
        if answer is None:
            return "a detector has no answer to a question"
        session.call(SUBMIT, answer)
        return None

    @property
    def goal(self) -> str:
        """The text of the task; in the variant ``terse`` without its conventions, such as the charges that count."""
        body = self.task.body
        return body.terse_goal if self.arm.knob("prompt") == "terse" else body.goal

    def conversation(self, asker: Asker, session: CostToolSession) -> tuple[FinopsAgent, str]:
        """Return the built-in FinOps agent, which asks its model by *asker*, and its first message."""
        agent = FinopsAgent(asker, session, session.specs(), session.problem_of)
        return agent, self.goal

    def prompt(self, places: Mapping[str, str], *, with_tools: bool) -> str:
        """Return the question with the paths *places* of the tables and, *with_tools*, how to use the tools."""
        tools = "The tools of the MCP server `opsassay` look at the tables; hand in the answer with submit.\n"
        files = f"The tables are parquet files in {places['view']}, described in its schema.md.\n"
        written = f"Write the answer to {places['answer']}" + (", or submit it.\n" if with_tools else ".\n")
        return f"{self.goal}\n{tools if with_tools else ''}{files}SQL is {DIALECT}.\n{written}"

    def further_usage(self, session: CostToolSession) -> Mapping[str, float]:
        """Return "missed_names": the number of statements that named a missing table or column."""
        return {"missed_names": float(session.tools.misses)}
