"""An external agent's exam: its command runs sealed where the machine can, and what it leaves is read as its answer."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from assay.agents import mcp_bridge
from assay.agents.command import CommandAgent
from assay.agents.contract import Answer, AnswerError, read_answer
from assay.agents.limits import Meter
from assay.agents.mcp_server import Desk, serving
from assay.agents.models.base import Message, Reply
from assay.agents.prompts import task_prompt
from assay.agents.record import ACTIONS, TRACE, Recorder
from assay.agents.tools import MAX_ROWS, Toolbox
from assay.bench.attempts import LOG_KEPT_BYTES, MAX_ANSWER_BYTES, Outcome
from assay.bench.runner import how_it_died
from assay.bench.sealing import Seal, SealLimits, python_path
from assay.bench.store import LOG
from assay.bench.views import Canary, opaque_view
from assay.bench.worker import INCIDENT_FOLDER, kill_session
from assay.model.run import RunStatus
from assay.telemetry.content import whole_file
from assay.telemetry.datapack import Datapack
from assay.telemetry.sql import LockedSql

if TYPE_CHECKING:
    from assay.bench.gateway import Gateway

AGENT_INSIDE, VIEW_INSIDE, WORK_INSIDE, SOCKETS_INSIDE = "/opt/assay-agent", "/view", "/work", "/run/assay"
MODEL_PORT = 8000
PROMPT, ANSWER, MCP, BRIDGE = "prompt.md", "answer.json", "mcp.json", "assay_mcp.py"
_TOOLS, _MODEL = "tools", "model"


@dataclass(frozen=True)
class End:
    """How a command ended: by itself with *code*, by a signal (negative), or killed at a *limit*."""

    code: int | None
    limit: str | None
    stdout: str
    stderr: str
    notes: tuple[str, ...] = ()


def examine(
    agent: CommandAgent, incident: Datapack, run_dir: Path, meter: Meter, *, model: str | None, sealed: bool
) -> Outcome:
    """Return what came of the agent's exam on *incident*; trace, actions and the end of its output lie in *run_dir*."""
    limits = meter.limits
    services = incident.services()
    recorder = Recorder(run_dir)
    with ExitStack() as stack:
        folder = stack.enter_context(opaque_view(incident))
        view, work, files = (folder / name for name in (INCIDENT_FOLDER, "work", "agent"))
        work.mkdir()
        files.mkdir()
        agent.copy_to(files)
        canary = Canary(incident.incident, services)
        canary.plant(folder)
        places = _places(sealed=sealed, view=view, work=work, files=files)
        environment = {"HOME": places["work"], "LANG": "C.UTF-8", "TZ": "UTC", **agent.told.environment}
        sockets: dict[str, Path] = {}
        desk: Desk | None = None
        if "mcp" in agent.told.needs:
            sql = stack.enter_context(LockedSql(incident, timeout_s=limits.query_seconds, max_rows=MAX_ROWS))
            desk = Desk(Toolbox(sql), meter, recorder, services)
            sockets[_TOOLS] = stack.enter_context(serving(desk, folder / "tools.sock"))
            places["mcp"] = _describe_mcp(work, places, SOCKETS_INSIDE if sealed else str(folder))
        door: Gateway | None = None
        if model is not None and "model" in agent.told.needs:
            from assay.bench.gateway import gateway

            door = stack.enter_context(gateway(model, folder, meter))
            sockets[_MODEL], places["model"] = door.path, model
            environment |= door.environment(f"http://127.0.0.1:{MODEL_PORT}" if sealed else door.url, model)
        prompt = task_prompt(incident.incident, limits, places)
        (work / PROMPT).write_text(prompt, encoding="utf-8")
        command = agent.words(places)
        began = time.time_ns()
        if sealed:
            end = _sealed(command, Seal(
                view=view, work=work, sockets=sockets, ports={MODEL_PORT: _MODEL} if door else {},
                limits=_seal_limits(meter), environment={"PATH": "/usr/local/bin:/usr/bin:/bin", **environment},
                readable={AGENT_INSIDE: files},
            ))  # fmt: skip
        else:
            end = _unsealed(command, work, environment, limits.seconds)
        if door is not None:
            door.book(meter)
        _keep_output(end, run_dir / LOG)
        _write_trace(door, desk, recorder, run_dir, agent.name, prompt, end, began)
        return _outcome(end, desk, work, services, canary, meter)


def _places(*, sealed: bool, view: Path, work: Path, files: Path) -> dict[str, str]:
    """Return where things are for the agent."""
    own = (AGENT_INSIDE, VIEW_INSIDE, WORK_INSIDE) if sealed else (str(files), str(view), str(work))
    agent, seen, home = own
    return {
        "python": python_path() if sealed else sys.executable,
        "agent": agent,
        "view": seen,
        "work": home,
        "prompt": f"{home}/{PROMPT}",
        "answer": f"{home}/{ANSWER}",
    }


def _describe_mcp(work: Path, places: Mapping[str, str], sockets: str) -> str:
    """Put the bridge and its description in the usual form into the work folder; return where the description is."""
    source = mcp_bridge.__file__
    (work / BRIDGE).write_bytes(Path(source).read_bytes())
    command = {"command": places["python"], "args": [f"{places['work']}/{BRIDGE}", f"{sockets}/{_TOOLS}.sock"]}
    (work / MCP).write_text(json.dumps({"mcpServers": {"assay": command}}, indent=1), encoding="utf-8")
    return f"{places['work']}/{MCP}"


def _seal_limits(meter: Meter) -> SealLimits:
    limits = meter.limits
    return replace(
        SealLimits(),
        wall_clock_s=limits.seconds,
        memory_bytes=limits.memory_mb * 2**20,
        processes=limits.processes,
        output_bytes=MAX_ANSWER_BYTES,
    )


def _sealed(command: Sequence[str], seal: Seal) -> End:
    ended = seal.run(command)
    code = ended.exit_code if ended.signal is None else -int(signal.Signals[ended.signal])
    notes = tuple(f"not collected: {what}" for what in ended.left_behind)
    return End(code, ended.limit, ended.stdout_tail, ended.stderr_tail, notes)


def _unsealed(command: Sequence[str], work: Path, environment: Mapping[str, str], timeout_s: float) -> End:
    """Run *command* as a process of this user: killed with its session at the end, but free to look around."""
    passed = {name: os.environ[name] for name in ("PATH", "LD_LIBRARY_PATH") if name in os.environ}
    out, err = work.parent / "stdout", work.parent / "stderr"
    limit = None
    with out.open("wb") as stdout, err.open("wb") as stderr:
        try:
            process = subprocess.Popen(
                command, cwd=work, env={**passed, **environment}, stdin=subprocess.DEVNULL, stdout=stdout, stderr=stderr,
                start_new_session=True,
            )  # fmt: skip
        except OSError as error:
            return End(127, None, "", f"The command cannot be started: {error}")
        try:
            process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            limit = "wall_clock_s"
        finally:
            kill_session(process.pid)
            process.wait()
    return End(process.returncode, limit, _text(out, MAX_ANSWER_BYTES + 1), _text(err, LOG_KEPT_BYTES))


def _outcome(end: End, desk: Desk | None, work: Path, services: Sequence[str], canary: Canary, meter: Meter) -> Outcome:
    """Return the outcome: an answer that was submitted, else the file, else what was printed."""
    if end.limit == "wall_clock_s":
        meter.note("seconds")
    elif end.limit:
        meter.note(end.limit)
    answer: Answer | None = desk.answer if desk else None
    status, error = RunStatus.DONE, None
    if answer is None:
        if end.limit == "wall_clock_s":
            status, error = RunStatus.TIMEOUT, f"no answer after {meter.limits.seconds:g} s"
        elif end.code:
            said = (end.stderr.strip().splitlines() or [""])[-1][:300]
            status, error = RunStatus.FAILED, how_it_died(end.code) + (f": {said}" if said else "")
        else:
            try:
                answer = read_answer(_written(work, end.stdout), services)
            except AnswerError as problem:
                status, error = RunStatus.FAILED, f"no answer by the contract: {problem}"
    flags: tuple[str, ...] = ()
    if answer is not None and canary.is_repeated_in(answer.diagnosis):
        flags = ("canary",)
    return Outcome(
        status, error, answer.diagnosis if answer else None, tuple(meter.hit), meter.spent(), flags, end.notes
    )


def _written(work: Path, stdout: str) -> str | bytes:
    """Return what the agent gave as its answer; anything but a plain file of its own is none."""
    file = work / ANSWER
    if file.is_symlink() or not file.is_file():
        return stdout
    if file.stat().st_size > MAX_ANSWER_BYTES:
        raise AnswerError(f"the answer is larger than {MAX_ANSWER_BYTES} bytes")
    content = file.read_bytes()
    return content if content.strip() else stdout


def _write_trace(
    door: Gateway | None,
    desk: Desk | None,
    recorder: Recorder,
    run_dir: Path,
    name: str,
    prompt: str,
    end: End,
    began: int,
) -> None:
    """Write the agent's steps: those of its conversation with the model, else one with all its tool calls."""
    trace = door.trace() if door else None
    if trace is None:
        reply, calls = Reply(text=end.stdout[-LOG_KEPT_BYTES:]), desk.calls if desk else ()
        messages = [Message(role="user", content=prompt)]
        recorder.step(name, messages, reply, model=None, started_ns=began, ended_ns=time.time_ns(), calls=calls)
        return
    with whole_file(run_dir / TRACE) as partial:
        lines = (json.dumps(step.model_dump(mode="json"), ensure_ascii=False) for step in trace.steps)
        partial.write_text("\n".join(lines) + "\n", encoding="utf-8", errors="replace")
    if desk is None:
        actions = (json.dumps(call.model_dump(mode="json")) for step in trace.steps for call in step.tool_logs)
        (run_dir / ACTIONS).write_text("".join(f"{line}\n" for line in actions), encoding="utf-8")


def _keep_output(end: End, log: Path) -> None:
    text = f"{end.stdout[-LOG_KEPT_BYTES:]}\n{end.stderr[-LOG_KEPT_BYTES:]}".strip()
    if text:
        log.write_text(text + "\n", encoding="utf-8", errors="replace")


def _text(file: Path, most: int) -> str:
    with suppress(OSError), file.open("rb") as stream:
        return stream.read(most).decode("utf-8", "replace")
    return ""
