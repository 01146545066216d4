"""Runs on cost data: an oracle, a baseline, the built-in agent or a command answers one question about its tables."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from opsassay.core.schema.run import Metric
from opsassay.core.schema.tool_session import ToolSpec
from opsassay.evals.cost.answers.contract import ANSWER, read_object
from opsassay.evals.cost.environment import (
    DIALECT,
    CostTablesEnvironment,
    CostToolSession,
    looking_specs,
    problem_of,
    require_answer,
    submit_spec,
)
from opsassay.evals.cost.score import grade_answer
from opsassay.evals.cost.scripts import oracles
from opsassay.evals.cost.tasks import CostTask
from opsassay.evals.runner.commands import WORK_INSIDE
from opsassay.evals.runner.draws import Draws
from opsassay.evals.runner.generated_run import FolderEnvironment, GeneratedRun
from opsassay.evals.runner.run import MAX_ANSWER_BYTES
from opsassay.solvers.agents.asking import Asker
from opsassay.solvers.agents.contract import AnswerError
from opsassay.solvers.agents.finops import FinopsAgent
from opsassay.solvers.agents.limits import Meter
from opsassay.solvers.agents.tool_sessions import SUBMIT
from opsassay.solvers.sandbox import Ended


@dataclass(frozen=True)
class CostRun(GeneratedRun[CostTask, CostToolSession]):
    """One run of one solver on one task on cost data."""

    kind_of_task = "cost task"
    built_in = FinopsAgent.name
    baselines = tuple(oracles.BASELINES)

    def tools(self) -> tuple[ToolSpec, ...]:
        """Return the specifications of the tools over the tables, submit last."""
        return (*looking_specs(), submit_spec(self.task))

    def evaluate(self, run_dir: Path) -> Mapping[str, Metric]:
        """Return the metrics of the run in *run_dir*."""
        return grade_answer(run_dir, self.task)

    def environment(self, run_dir: Path, meter: Meter) -> CostTablesEnvironment:
        """Return the environment with the tables of the task."""
        return CostTablesEnvironment(self.task, run_dir, meter)

    def play(self, session: CostToolSession) -> str | None:
        """Submit the answer of the oracle or baseline; return why there is none."""
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
        """The text of the task; in the arm ``terse`` without its conventions."""
        body = self.task.body
        return body.terse_goal if self.arm.knob("prompt") == "terse" else body.goal

    def conversation(self, asker: Asker, session: CostToolSession) -> tuple[FinopsAgent, str]:
        """Return the FinOps agent and its first message, the question."""
        agent = FinopsAgent(asker, session, session.specs(), lambda given: problem_of(self.task, given))
        return agent, self.goal

    def prompt(self, places: Mapping[str, str], *, with_tools: bool) -> str:
        """Return the question with the paths of the tables and, with *with_tools*, of the tools."""
        tools = "The tools of the MCP server `opsassay` look at the tables; hand in the answer with submit.\n"
        files = f"The tables are parquet files in {places['view']}, described in its schema.md.\n"
        written = f"Write the answer to {places['answer']}" + (", or submit it.\n" if with_tools else ".\n")
        return f"{self.goal}\n{tools if with_tools else ''}{files}SQL is {DIALECT}.\n{written}"

    def answer_place(self, work: Path, *, sealed: bool) -> str:
        """Return the path of the answer file."""
        return f"{WORK_INSIDE if sealed else work}/{ANSWER}"

    def take(self, end: Ended, work: Path, session: CostToolSession) -> str | None:
        """Accept the external agent's answer: submitted, else in the file, else printed; return why there is none."""
        if session.answer is not None:
            return None
        if not end.started or (end.limit is None and end.exit_code != 0):
            return end.reason
        file = work / ANSWER
        if file.is_file() and not file.is_symlink():
            if file.stat().st_size > MAX_ANSWER_BYTES:
                return f"the answer is larger than {MAX_ANSWER_BYTES} bytes"
            return self._take_text(session, file.read_bytes())
        return end.reason if end.limit else self._take_text(session, end.stdout_tail)

    def _take_text(self, session: CostToolSession, text: str | bytes) -> str | None:
        """Keep the answer if it is by the contract; return what is wrong with it, else None."""
        try:
            given = read_object(text)
            require_answer(self.task, given)
        except AnswerError as error:
            return f"no answer by the contract: {error}"
        session.answer = given
        return None

    def collect(self, environment: FolderEnvironment[CostToolSession], session: CostToolSession) -> str | None:
        """Write the answer into the run folder; return why there is none."""
        if session.answer is None:
            return session.last_error()
        text = json.dumps(session.answer, indent=1, ensure_ascii=False)
        (environment.run_dir / ANSWER).write_text(f"{text}\n", encoding="utf-8")
        return None

    def further_usage(self, session: CostToolSession) -> Mapping[str, float]:
        """Return the number of statements that named a missing table or column."""
        return {"missed_names": float(session.tools.misses)}
