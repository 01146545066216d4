"""Who operates: a scripted oracle, the built-in SRE agent, or an external agent by command and MCP."""

from __future__ import annotations

import threading
import time

from opsassay.core.errors import OperationError
from opsassay.core.schema.json_lines import append_line
from opsassay.core.schema.run_folder import TRACE
from opsassay.core.schema.scenario import OracleStep
from opsassay.core.schema.trajectory import ToolCall, TraceStep
from opsassay.evals.remediation.assignment import Assignment
from opsassay.evals.remediation.contract import TrialAgent
from opsassay.evals.remediation.controls import REPORT, ControlScript, Script, script_of
from opsassay.evals.remediation.diagnosing import Diagnoses
from opsassay.testbed.operations.toolbox import BaseToolbox

BEGUN_S = 0.2
"""How long after a call has come in whoever leaves at once is gone: its arguments have been looked at by then."""


def run_operator(agent: TrialAgent, task: Assignment, toolbox: BaseToolbox) -> None:
    """Have *agent* work on *task* with *toolbox*; an agent that fails is a result.

    Raises OpsAssayError for what is not its doing.
    """
    if (name := agent.oracle) is not None:
        play(script_of(task.scenario, name), name, task, toolbox)
    elif agent.is_outside:
        from opsassay.evals.remediation.external_agents import operate

        operate(agent, task, toolbox)
    else:
        from opsassay.evals.remediation.built_in import run_sre

        run_sre(agent, task, toolbox)


def play(oracle: Script, name: str, task: Assignment, toolbox: BaseToolbox) -> None:
    """Carry out the steps of *oracle*; raises OperationError when one of them is refused: then the script is wrong.

    One that leaves at once does not wait for what comes of its last step.
    """
    for number, step in enumerate(oracle.steps, 1):
        began_ns = time.time_ns()
        leaves = isinstance(oracle, ControlScript) and oracle.leaves and number == len(oracle.steps)
        carry_out = _begin if leaves else _call
        calls = (carry_out(step, task, number, toolbox),) if step.verb is not None else ()
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
            if call.status == "error":
                raise OperationError(f"Step {number} of oracle {name} of {task.scenario.id} failed: {call.output}")
        time.sleep(step.wait_s)


def _call(step: OracleStep, task: Assignment, number: int, toolbox: BaseToolbox) -> ToolCall:
    tool, arguments = (step.verb or "").replace(" ", "_"), task.fill(step.arguments)
    if step.verb == REPORT:
        Diagnoses(task).take(arguments)
        return ToolCall(tool=tool, arguments=arguments, output="Taken.")
    outcome = toolbox.call(tool, arguments, number)
    status = "ok" if outcome.status == "ok" else "error"
    return ToolCall(tool=tool, arguments=arguments, output=outcome.output, status=status)


def _begin(step: OracleStep, task: Assignment, number: int, toolbox: BaseToolbox) -> ToolCall:
    """Have the call begun, by a thread that goes on with it when the script has ended."""
    calls = toolbox.calls
    threading.Thread(target=_call, args=(step, task, number, toolbox), name="left", daemon=True).start()
    while toolbox.calls == calls:
        time.sleep(0.01)
    time.sleep(BEGUN_S)
    tool = (step.verb or "").replace(" ", "_")
    return ToolCall(tool=tool, arguments=task.fill(step.arguments), output="", status="unanswered")
