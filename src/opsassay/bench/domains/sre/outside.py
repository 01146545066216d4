"""An external operator: a command that reads its task from a file and reaches the tools over MCP, sealed if possible."""

from __future__ import annotations

import json
import shutil
import tempfile
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from opsassay.agents.mcp_server import serving
from opsassay.agents.models.base import Message, Reply, ToolSpec
from opsassay.agents.record import Recorder
from opsassay.agents.sre_lint import lint
from opsassay.bench.core.commands import AGENT_INSIDE, PROMPT, SOCKETS_INSIDE, describe_tools, places_of, run_command
from opsassay.bench.domains.sre.assignment import Assignment
from opsassay.bench.domains.sre.contract import REPORT, TrialAgent
from opsassay.bench.domains.sre.desk import OpsDesk
from opsassay.bench.domains.sre.diagnosing import REPORT_DIAGNOSIS, Diagnoses
from opsassay.bench.sealing import Seal, SealLimits, sealing_refusal
from opsassay.errors import UserError
from opsassay.model.trajectory import ToolCall
from opsassay.testbed.operations.toolbox import CALLS_LIMIT, BaseToolbox, kept

LOG = "agent.log"
LOG_BYTES = 64 * 2**10


class Counter(OpsDesk):
    """The desk of a command: its calls are counted, and a diagnosis is handed in there too."""

    def __init__(self, toolbox: BaseToolbox, diagnoses: Diagnoses) -> None:
        super().__init__(toolbox)
        self._diagnoses = diagnoses
        self.calls: list[ToolCall] = []

    def specs(self, *, changing: bool = True) -> tuple[ToolSpec, ...]:
        """Return the tools, report_diagnosis the last."""
        return (*super().specs(changing=changing), REPORT_DIAGNOSIS)

    def call(self, tool: str, arguments: Mapping[str, Any], step_id: int | None = None) -> ToolCall:
        """Return the call with what came of it; all calls of a command are its one step, as far as they are kept."""
        if len(self.calls) >= CALLS_LIMIT:
            refused = f"Error: there are no more than {CALLS_LIMIT} calls."
            return ToolCall(tool=tool[:64], arguments={}, output=refused, status="error")
        own = tool == REPORT_DIAGNOSIS.name
        call = self._diagnosed(arguments) if own else super().call(tool, arguments, step_id or 1)
        self.calls.append(call)
        return call

    def _diagnosed(self, arguments: Mapping[str, Any]) -> ToolCall:
        given = {str(key): value for key, value in arguments.items()}
        told = ToolCall(tool=REPORT_DIAGNOSIS.name, arguments=kept(given), output="Taken.")
        problem = lint(told.tool, given, {told.tool: REPORT_DIAGNOSIS}, ())
        if problem is not None:
            return told.model_copy(update={"output": f"Error: {problem}", "status": "error"})
        self._diagnoses.take(given)
        return told


def operate(agent: TrialAgent, task: Assignment, toolbox: BaseToolbox) -> None:
    """Run the command of *agent*; its own end, or that of its time, is the end.

    Words of the command may name {python}, {prompt} (the task), {mcp} (a description of the server in the usual form),
    {work}, {agent}: the folder of what ``settings.files`` lists, and {kubeconfig}: on a cluster, unsealed, its own way in.
    Sealed, it sees these, the tools' socket and nothing else of the machine; where no seal can be made (or
    ``settings.sealing`` is off) it runs as a process of this user.
    """
    wanted = agent.outside.sealing
    refusal = sealing_refusal() if wanted != "off" else "switched off"
    if refusal is not None and wanted == "required":
        raise UserError(f"The agent {agent.name} is to be sealed, and no seal can be made here: {refusal}")
    sealed = refusal is None
    desk, began_ns = Counter(toolbox, Diagnoses(task)), time.time_ns()
    with tempfile.TemporaryDirectory(prefix="opsassay-op-") as made:
        folder = Path(made)
        work, files, view = folder / "work", folder / "agent", folder / "view"
        for one in (work, files, view):
            one.mkdir()
        for name, file in agent.files():
            (files / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(file, files / name)
        with serving(cast("Any", desk), folder / "tools.sock") as door:
            places = places_of(view, work, files, sealed=sealed)
            places["mcp"] = describe_tools(work, places, door, sealed=sealed)
            places["tools"] = f"{SOCKETS_INSIDE}/{door.name}" if sealed else str(door)
            places["kubeconfig"] = _lent(task.kubeconfig, work, sealed=sealed)
            (work / PROMPT).write_text(task.prompt + "\n", encoding="utf-8")
            environment = {"HOME": places["work"], "LANG": "C.UTF-8", "TZ": "UTC"}
            limits = replace(SealLimits(), wall_clock_s=task.timeout_s, output_bytes=LOG_BYTES)
            seal = Seal(view, work, {"tools": door}, {}, limits, environment, {AGENT_INSIDE: files})
            ended = run_command([word.format(**places) for word in agent.command], seal, sealed=sealed)
            if not ended.started:
                raise UserError(f"The agent {agent.name} cannot be started: {ended.reason}; check its command.")
            said = ended.stdout_tail + ended.stderr_tail
            toolbox.close()
    (task.run_dir / LOG).write_text(said, encoding="utf-8", errors="replace")
    told = {"ended": ended.reason, "sealed": sealed, "why_not": refusal}
    (task.run_dir / REPORT).write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")
    asked = [Message(role="user", content=task.prompt)]
    Recorder(task.run_dir).step(
        agent.name, asked, Reply(text=said[-LOG_BYTES:]), model=agent.model, started_ns=began_ns, ended_ns=time.time_ns(),
        calls=desk.calls,
    )  # fmt: skip


def _lent(kubeconfig: Path | None, work: Path, *, sealed: bool) -> str:
    """Return where an unsealed command finds its own way into the cluster, '' where it has none: a seal lets nobody out."""
    return "" if kubeconfig is None or sealed else str(shutil.copy(kubeconfig, work / kubeconfig.name))
