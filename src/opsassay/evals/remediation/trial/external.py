"""An external operator: a command that reads its task from a file and calls tools over MCP, sandboxed if possible."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from opsassay.core.errors import UserError
from opsassay.core.schema.tool_session import ToolSpec
from opsassay.core.schema.trajectory import ToolCall
from opsassay.evals.remediation.trial.contract import REPORT, TrialAgent
from opsassay.evals.remediation.trial.operators import REPORT_DIAGNOSIS, Assignment, Diagnoses
from opsassay.evals.runner.commands import refusal_to_seal
from opsassay.evals.runner.external_agents import APIS, ExternalAgent, ExternalTask, output_of, run_outside
from opsassay.evals.runner.run import reading_what_was_left
from opsassay.solvers.agents.limits import Limits, Meter
from opsassay.solvers.agents.prompts import apis_prompt
from opsassay.solvers.agents.sre_lint import lint
from opsassay.testbed.operations.tool_session import CALLS_LIMIT, OperatorToolSession, recorded_arguments

if TYPE_CHECKING:
    from opsassay.telemetry.backends.serving import ApiServer

LOG = "agent.log"


class CommandToolSession:
    """The tools of *session* for a command, plus one to report a diagnosis; calls are counted and recorded."""

    def __init__(self, session: OperatorToolSession, diagnoses: Diagnoses, meter: Meter | None = None) -> None:
        self._session, self._diagnoses, self._meter = session, diagnoses, meter or Meter(Limits())
        self.calls: list[ToolCall] = []

    def specs(self) -> tuple[ToolSpec, ...]:
        """Return the tool specifications that the agent sees, report_diagnosis last."""
        return (*self._session.specs(), REPORT_DIAGNOSIS)

    def call(self, tool: str, arguments: Mapping[str, Any], step_id: int | None = None) -> ToolCall:
        """Carry out one tool call as part of step *step_id* (None: 1); return it with its output."""
        if len(self.calls) >= CALLS_LIMIT:
            refused = f"Error: there are no more than {CALLS_LIMIT} calls."
            return ToolCall(tool=tool[:64], arguments={}, output=refused, status="error")
        own = tool == REPORT_DIAGNOSIS.name
        if not own and (refusal := self._why_no_more_calls()) is not None:
            return ToolCall(tool=tool[:64], arguments={}, output=refusal, status="error")
        call = self._take_diagnosis(arguments) if own else self._session.call(tool, arguments, step_id or 1)
        self.calls.append(call)
        return call

    def _why_no_more_calls(self) -> str | None:
        """Count the next call and return None, or return why a limit on calls forbids it."""
        meter = self._meter
        if "tool_calls" in meter.limits.model_fields_set and meter.tool_calls >= meter.limits.tool_calls:
            meter.note("tool_calls")
            return f"Error: the hard cap of {meter.limits.tool_calls} tool calls is reached."
        meter.tool_calls += 1
        return None

    def _take_diagnosis(self, arguments: Mapping[str, Any]) -> ToolCall:
        """Record the agent's diagnosis; return the call, with an error if *arguments* are invalid."""
        given = {str(key): value for key, value in arguments.items()}
        call = ToolCall(tool=REPORT_DIAGNOSIS.name, arguments=recorded_arguments(given), output="Taken.")
        problem = lint(call.tool, given, {call.tool: REPORT_DIAGNOSIS}, ())
        if problem is not None:
            return call.model_copy(update={"output": f"Error: {problem}", "status": "error"})
        self._diagnoses.take(given)
        return call


def operate(agent: TrialAgent, task: Assignment, session: OperatorToolSession) -> None:
    """Run the command of *agent* until it ends or its time is up.

    It gets what every external agent gets: its files, its tools, a model if it needs one, limits, and the sandbox. Its
    arguments may also contain {tools}, the tools' socket, and {kubeconfig}: on a cluster, without sandbox, its own
    access. Raises UserError when a required sandbox cannot be made.
    """
    outside = agent.outside()
    refusal = refusal_to_seal(agent.sealing, remote=agent.remote)
    if refusal is not None and agent.sealing == "required":
        raise UserError(f"The agent {agent.solver_name} is to be sealed, and no seal can be made here: {refusal}")
    sealed = refusal is None
    meter = Meter(agent.limits(task.timeout_s), agent.own_settings.price)
    tools = CommandToolSession(session, Diagnoses(task, session), meter)
    with tempfile.TemporaryDirectory(prefix="opsassay-op-") as made:
        folder = Path(made)
        (folder / "view").mkdir()
        handed = ExternalTask(
            folder / "view",
            lambda places: "\n\n".join((task.prompt, *apis_prompt(places))) + "\n",
            tools,
            apis=_apis_for(outside, session),
            further=lambda work, is_sealed: {
                "kubeconfig": _copy_kubeconfig(session.kubeconfig, work, sealed=is_sealed)
            },
        )
        with reading_what_was_left():
            ended = run_outside(outside, handed, folder, task.run_dir, meter, sealed=sealed)
        session.close()
    if not ended.started:
        raise UserError(f"The agent {agent.solver_name} cannot be started: {ended.reason}; check its command.")
    (task.run_dir / LOG).write_text(output_of(ended) + "\n", encoding="utf-8", errors="replace")
    report = {
        "ended": ended.reason, "sealed": sealed, "why_not": refusal, "spent": meter.spent(), "limits_hit": meter.hit,
    }  # fmt: skip
    (task.run_dir / REPORT).write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")


def _apis_for(outside: ExternalAgent, session: OperatorToolSession) -> ApiServer | None:
    """Return the telemetry APIs of *session*; None if *outside* needs none or the system sends no telemetry."""
    if APIS not in outside.needs or session.view is None:
        return None
    from opsassay.evals.remediation.trial.live_apis import live_apis

    return live_apis(session.view, session.watch)


def _copy_kubeconfig(kubeconfig: Path | None, work: Path, *, sealed: bool) -> str:
    """Copy the kubeconfig into *work* for a command without sandbox; return its path, '' if sealed or None."""
    return "" if kubeconfig is None or sealed else str(shutil.copy(kubeconfig, work / kubeconfig.name))
