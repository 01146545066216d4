"""Who operates: a scripted oracle, the built-in SRE agent, or an external agent by command and MCP."""

from __future__ import annotations

import time
from typing import Any

from opsassay.bench.domains.sre.assignment import Assignment
from opsassay.bench.domains.sre.contract import TrialAgent
from opsassay.errors import NotFoundError, OperationError
from opsassay.model.json_lines import append_line
from opsassay.model.run_folder import TRACE
from opsassay.model.scenario import Oracle, OracleStep
from opsassay.model.trajectory import ToolCall, TraceStep
from opsassay.testbed.operations.toolbox import BaseToolbox


def run_operator(agent: TrialAgent, task: Assignment, toolbox: BaseToolbox) -> None:
    """Have *agent* work on *task* with *toolbox*; an agent that fails is a result.

    Raises OpsAssayError for what is not its doing.
    """
    if (name := agent.oracle) is not None:
        oracle = task.scenario.oracles.get(name)
        if oracle is None:
            raise NotFoundError(f"oracle of {task.scenario.id}", name, task.scenario.oracles)
        play(oracle, name, task, toolbox)
    elif agent.is_outside:
        from opsassay.bench.domains.sre.outside import operate

        operate(agent, task, toolbox)
    else:
        from opsassay.bench.domains.sre.built_in import run_sre

        run_sre(agent, task, toolbox)


def play(oracle: Oracle, name: str, task: Assignment, toolbox: BaseToolbox) -> None:
    """Carry out the steps of *oracle*; raises OperationError when one of them is refused: then the script is wrong."""
    for number, step in enumerate(oracle.steps, 1):
        began_ns = time.time_ns()
        calls = (_call(step, task.fill(step.arguments), number, toolbox),) if step.verb is not None else ()
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


def _call(step: OracleStep, arguments: dict[str, Any], number: int, toolbox: BaseToolbox) -> ToolCall:
    tool = (step.verb or "").replace(" ", "_")
    outcome = toolbox.call(tool, arguments, number)
    status = "ok" if outcome.status == "ok" else "error"
    return ToolCall(tool=tool, arguments=arguments, output=outcome.output, status=status)
