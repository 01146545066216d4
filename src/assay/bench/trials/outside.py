"""An external operator: a command that reads its task from a file and reaches the tools over MCP, sealed if possible."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from assay.agents import mcp_bridge
from assay.agents.mcp_server import serving
from assay.agents.models.base import Message, Reply
from assay.agents.record import Recorder
from assay.bench.sealing import Seal, SealLimits, python_path, sealing_refusal
from assay.bench.trials.contract import REPORT, TrialAgent
from assay.bench.trials.desk import OpsDesk
from assay.bench.trials.tasks import Task
from assay.bench.worker import kill_session
from assay.errors import UserError
from assay.model.trajectory import ToolCall
from assay.testbed.ops.tools import Toolbox

PROMPT, BRIDGE, MCP = "prompt.md", "assay_mcp.py", "mcp.json"
LOG = "agent.log"
AGENT_INSIDE, WORK_INSIDE, SOCKETS_INSIDE = "/opt/assay-agent", "/work", "/run/assay"
LOG_BYTES = 64 * 2**10


class _Counted(OpsDesk):
    """The desk with the calls that were made at it."""

    def __init__(self, toolbox: Toolbox) -> None:
        super().__init__(toolbox)
        self.calls: list[ToolCall] = []

    def call(self, tool: str, arguments: Mapping[str, Any], step_id: int | None = None) -> ToolCall:
        """Return the call with what came of it; all calls of a command are its one step."""
        call = super().call(tool, arguments, step_id or 1)
        self.calls.append(call)
        return call


def run_command(agent: TrialAgent, task: Task, toolbox: Toolbox) -> None:
    """Run the command of *agent*; its own end, or that of its time, is the end.

    Words of the command may name {python}, {prompt} (the task), {mcp} (a description of the server in the usual form),
    {work} and {agent}: the folder of what ``settings.files`` lists. Sealed, it sees these, the tools' socket and nothing
    else of the machine; where no seal can be made (or ``settings.sealing`` is off) it runs as a process of this user.
    """
    sealed = agent.settings.get("sealing") != "off" and sealing_refusal() is None
    desk, began_ns = _Counted(toolbox), time.time_ns()
    with tempfile.TemporaryDirectory(prefix="assay-op-") as made:
        folder = Path(made)
        work, files, view = folder / "work", folder / "agent", folder / "view"
        for one in (work, files, view):
            one.mkdir()
        for name in agent.settings.get("files", ()):
            _copy(Path(name), files)
        with serving(cast("Any", desk), folder / "tools.sock") as door:
            places = _places(work, files, door, sealed=sealed)
            (work / PROMPT).write_text(task.prompt + "\n", encoding="utf-8")
            environment = {"HOME": places["work"], "LANG": "C.UTF-8", "TZ": "UTC"}
            command = [word.format(**places) for word in agent.command]
            if sealed:
                limits = replace(SealLimits(), wall_clock_s=task.timeout_s, output_bytes=LOG_BYTES)
                path = {"PATH": "/usr/local/bin:/usr/bin:/bin"}
                seal = Seal(view, work, {"tools": door}, {}, limits, {**path, **environment}, {AGENT_INSIDE: files})
                ended = seal.run(command)
                said, how = ended.stdout_tail + ended.stderr_tail, ended.reason
            else:
                said, how = _unsealed(agent.name, command, work, environment, task.timeout_s)
            toolbox.close()
    (task.run_dir / LOG).write_text(said, encoding="utf-8", errors="replace")
    told = {"ended": how, "sealed": sealed, "why_not": None if sealed else sealing_refusal()}
    (task.run_dir / REPORT).write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")
    asked = [Message(role="user", content=task.prompt)]
    Recorder(task.run_dir).step(
        agent.name, asked, Reply(text=said[-LOG_BYTES:]), model=agent.model, started_ns=began_ns, ended_ns=time.time_ns(),
        calls=desk.calls,
    )  # fmt: skip


def _copy(source: Path, folder: Path) -> None:
    if not source.exists():
        raise UserError(f"settings.files: there is no {source}; name what the agent is made of.")
    if source.is_dir():
        shutil.copytree(source, folder / source.name)
    else:
        shutil.copy(source, folder)


def _places(work: Path, files: Path, door: Path, *, sealed: bool) -> dict[str, str]:
    """Return where things are for the command, and put the bridge to the tools among them."""
    home, own = (WORK_INSIDE, AGENT_INSIDE) if sealed else (str(work), str(files))
    python, tools = (python_path(), f"{SOCKETS_INSIDE}/tools.sock") if sealed else (sys.executable, str(door))
    (work / BRIDGE).write_bytes(Path(mcp_bridge.__file__).read_bytes())
    server = {"command": python, "args": [f"{home}/{BRIDGE}", tools]}
    (work / MCP).write_text(json.dumps({"mcpServers": {"assay": server}}, indent=1), encoding="utf-8")
    return {
        "python": python, "agent": own, "work": home, "prompt": f"{home}/{PROMPT}", "mcp": f"{home}/{MCP}", "tools": tools,
    }  # fmt: skip


def _unsealed(
    name: str, command: Sequence[str], work: Path, environment: Mapping[str, str], timeout_s: float
) -> tuple[str, str]:
    """Run *command* as a process of this user, killed with its session at the end; return its output and how it ended."""
    log = work.parent / LOG
    passed = {key: os.environ[key] for key in ("PATH", "LD_LIBRARY_PATH") if key in os.environ}
    with log.open("wb") as output:
        try:
            process = subprocess.Popen(
                command, cwd=work, env={**passed, **environment}, stdin=subprocess.DEVNULL, stdout=output, stderr=output,
                start_new_session=True,
            )  # fmt: skip
        except OSError as error:
            raise UserError(f"The agent {name} cannot be started: {error.strerror}; check its command.") from error
        try:
            how = f"exit {process.wait(timeout_s)}"
        except subprocess.TimeoutExpired:
            how = f"killed after {timeout_s:g} s"
        finally:
            kill_session(process.pid)
            process.wait()
    with log.open("rb") as stream:
        return stream.read(LOG_BYTES).decode("utf-8", "replace"), how
