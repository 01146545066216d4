"""Who is let in to repair: a scripted oracle, the built-in SRE agent, or an external agent by command and MCP."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from assay.bench.trials.contract import TRACE, TrialAgent, append_line
from assay.errors import NotFoundError, OperationError, UserError
from assay.model.scenario import Oracle, OracleStep, Scenario
from assay.model.trajectory import ToolCall, TraceStep
from assay.testbed.ops.tools import Toolbox

SRE = "sre"


@dataclass(frozen=True)
class Task:
    """What an operator is told, for how long it may work, and where it writes."""

    scenario: Scenario
    prompt: str
    timeout_s: float
    seed: int
    run_dir: Path


def let_in(agent: TrialAgent, task: Task, toolbox: Toolbox) -> None:
    """Let *agent* work on *task* with *toolbox*; an agent that fails is a result.

    Raises AssayError for what is not its doing.
    """
    if (name := agent.oracle) is not None:
        oracle = task.scenario.oracles.get(name)
        if oracle is None:
            raise NotFoundError(f"oracle of {task.scenario.id}", name, task.scenario.oracles)
        play(oracle, name, task, toolbox)
    elif agent.command:
        run_command(agent, task, toolbox)
    elif agent.name == SRE:
        from assay.bench.trials.built_in import run_sre

        run_sre(agent, task, toolbox)
    else:
        raise UserError(f"There is no operator {agent.name!r}; use oracle:NAME, {SRE}, or give a command.")


def play(oracle: Oracle, name: str, task: Task, toolbox: Toolbox) -> None:
    """Carry out the steps of *oracle*; raises OperationError when one of them is refused: then the script is wrong."""
    for number, step in enumerate(oracle.steps, 1):
        began_ns = time.time_ns()
        calls = (_call(step, number, toolbox),) if step.verb is not None else ()
        append_line(
            task.run_dir / TRACE,
            TraceStep(
                step_id=number,
                agent_id=f"oracle-{name}",
                agent_name=f"oracle:{name}",
                input_context=task.prompt if number == 1 else "",
                output_content=oracle.description if number == 1 else "",
                tool_logs=calls,
                started_at=began_ns,
                ended_at=time.time_ns(),
                kind="tool" if calls else "plain",
            ),
        )
        for call in calls:
            if call.status != "ok":
                raise OperationError(f"Step {number} of oracle {name} of {task.scenario.id} failed: {call.output}")
        time.sleep(step.wait_s)


def _call(step: OracleStep, number: int, toolbox: Toolbox) -> ToolCall:
    tool = (step.verb or "").replace(" ", "_")
    outcome = toolbox.call(tool, step.arguments, number)
    status = "ok" if outcome.status == "ok" else "error"
    return ToolCall(tool=tool, arguments=step.arguments, output=outcome.output, status=status)


def run_command(agent: TrialAgent, task: Task, toolbox: Toolbox) -> None:
    """Run an external agent: it reads its task from a file and reaches the tools over MCP on a Unix socket, nothing else.

    ``ASSAY_TASK`` names the file, ``ASSAY_MCP_SOCKET`` the socket. Its output is kept; its end, or its time's, is the end.
    """
    from assay.bench.trials.mcp_door import serving

    told = task.run_dir / "task.txt"
    told.write_text(task.prompt + "\n", encoding="utf-8")
    with serving(toolbox) as door, (task.run_dir / "agent.log").open("wb") as log:
        environment = {"PATH": os.environ.get("PATH", ""), "HOME": str(task.run_dir), "LANG": "C.UTF-8"}
        environment |= {"ASSAY_TASK": str(told.absolute()), "ASSAY_MCP_SOCKET": str(door), "ASSAY_SEED": str(task.seed)}
        try:
            process = subprocess.Popen(
                agent.command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment, cwd=task.run_dir,
                start_new_session=True,
            )  # fmt: skip
        except OSError as error:
            raise UserError(
                f"The agent {agent.name} cannot be started: {error.strerror}; check its command."
            ) from error
        try:
            process.wait(task.timeout_s)
            status = process.returncode
        except subprocess.TimeoutExpired:
            status = None
        finally:
            toolbox.close()
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    ended = {"status": status, "timed_out": status is None}
    (task.run_dir / "agent.json").write_text(json.dumps(ended) + "\n", encoding="utf-8")
