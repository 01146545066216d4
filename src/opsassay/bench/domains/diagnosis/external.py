"""An external agent's exam: its command runs sealed where the machine can, and what it leaves is read as its answer."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from opsassay.agents.command import CommandAgent
from opsassay.agents.contract import Answer, AnswerError, read_answer
from opsassay.agents.limits import Meter
from opsassay.agents.mcp_server import Desk, serving
from opsassay.agents.models.base import Message, Reply
from opsassay.agents.prompts import task_prompt
from opsassay.agents.record import ACTIONS, TRACE, Recorder
from opsassay.agents.tools import MAX_ROWS, Toolbox
from opsassay.bench.core.attempt import LOG_KEPT_BYTES, MAX_ANSWER_BYTES, AttemptOutcome
from opsassay.bench.core.commands import AGENT_INSIDE, PROMPT, describe_tools, places_of, run_command
from opsassay.bench.core.mounts import lent
from opsassay.bench.core.store import LOG
from opsassay.bench.domains.diagnosis.runner import how_it_died
from opsassay.bench.domains.diagnosis.views import Canary, opaque_view
from opsassay.bench.domains.diagnosis.worker import INCIDENT_FOLDER
from opsassay.bench.sealing import Ended, Seal, SealLimits
from opsassay.model.run import RunStatus
from opsassay.telemetry.content import whole_file
from opsassay.telemetry.datapack import Datapack
from opsassay.telemetry.sql import LockedSql

if TYPE_CHECKING:
    from opsassay.bench.core.gateway import Gateway

MODEL_PORT = 8000
ANSWER = "answer.json"
_TOOLS, _MODEL = "tools", "model"


def examine(
    agent: CommandAgent, incident: Datapack, run_dir: Path, meter: Meter, *, model: str | None, sealed: bool
) -> AttemptOutcome:
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
        places = places_of(view, work, files, sealed=sealed)
        places["answer"] = f"{places['work']}/{ANSWER}"
        environment = {"HOME": places["work"], "LANG": "C.UTF-8", "TZ": "UTC", **agent.told.environment}
        sockets: dict[str, Path] = {}
        desk: Desk | None = None
        if "mcp" in agent.told.needs:
            sql = stack.enter_context(LockedSql(incident, timeout_s=limits.query_seconds, max_rows=MAX_ROWS))
            desk = Desk(Toolbox(sql), meter, recorder, services)
            sockets[_TOOLS] = stack.enter_context(serving(desk, folder / f"{_TOOLS}.sock"))
            places["mcp"] = describe_tools(work, places, sockets[_TOOLS], sealed=sealed)
        door: Gateway | None = None
        if model is not None and "model" in agent.told.needs:
            from opsassay.bench.core.gateway import gateway

            door = stack.enter_context(gateway(model, folder, meter))
            sockets[_MODEL], places["model"] = door.path, model
            environment |= door.environment(f"http://127.0.0.1:{MODEL_PORT}" if sealed else door.url, model)
        prompt = task_prompt(incident.incident, limits, places)
        (work / PROMPT).write_text(prompt, encoding="utf-8")
        seal = Seal(
            view=view, work=work, sockets=sockets, ports={MODEL_PORT: _MODEL} if door else {},
            limits=_seal_limits(meter), environment=environment, readable={AGENT_INSIDE: files, **lent(agent)},
        )  # fmt: skip
        began = time.time_ns()
        end = run_command(agent.words(places), seal, sealed=sealed)
        if door is not None:
            door.book(meter)
        _keep_output(end, run_dir / LOG)
        _write_trace(door, desk, recorder, run_dir, agent.name, prompt, end, began)
        return _outcome(end, desk, work, services, canary, meter)


def _seal_limits(meter: Meter) -> SealLimits:
    limits = meter.limits
    return replace(
        SealLimits(),
        wall_clock_s=limits.seconds,
        memory_bytes=limits.memory_mb * 2**20,
        processes=limits.processes,
        output_bytes=MAX_ANSWER_BYTES,
    )


def _outcome(
    end: Ended, desk: Desk | None, work: Path, services: Sequence[str], canary: Canary, meter: Meter
) -> AttemptOutcome:
    """Return the outcome: an answer that was submitted, else the file, else what was printed.

    One that was killed at its time has answered if its file holds a valid answer; what it printed until then is none.
    """
    killed = end.limit == "wall_clock_s"
    if end.limit:
        meter.note("seconds" if killed else end.limit)
    answer: Answer | None = desk.answer if desk else None
    status, error = RunStatus.DONE, None
    notes = tuple(f"not collected: {what}" for what in end.left_behind)
    if answer is None and not killed and end.exit_code != 0:
        status, error = RunStatus.FAILED, _died(end)
    elif answer is None:
        try:
            answer = read_answer(_written(work, "" if killed else end.stdout_tail), services)
        except AnswerError as problem:
            status, error = RunStatus.FAILED, f"no answer by the contract: {problem}"
            if killed:
                status, error = RunStatus.TIMEOUT, f"no answer after {meter.limits.seconds:g} s"
                notes += (f"{ANSWER}: {problem}",) if (work / ANSWER).exists() else ()
    flags = ("canary",) if answer is not None and canary.is_repeated_in(answer.diagnosis) else ()
    return AttemptOutcome(
        status, error, answer.diagnosis if answer else None, tuple(meter.hit), meter.spent(), flags, notes
    )


def _died(end: Ended) -> str:
    """Return how a command ended that gave no answer, with the last line of its error output."""
    if not end.started:
        return end.reason
    code = end.exit_code if end.signal is None else -int(signal.Signals[end.signal])
    said = (end.stderr_tail.strip().splitlines() or [""])[-1][:300]
    died = end.reason if code is None else how_it_died(code)
    return died + (f": {said}" if said else "")


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
    end: Ended,
    began: int,
) -> None:
    """Write the agent's steps: those of its conversation with the model, else one with all its tool calls."""
    trace = door.trace() if door else None
    if trace is None:
        reply, calls = Reply(text=end.stdout_tail[-LOG_KEPT_BYTES:]), desk.calls if desk else ()
        messages = [Message(role="user", content=prompt)]
        recorder.step(name, messages, reply, model=None, started_ns=began, ended_ns=time.time_ns(), calls=calls)
        return
    with whole_file(run_dir / TRACE) as partial:
        lines = (json.dumps(step.model_dump(mode="json"), ensure_ascii=False) for step in trace.steps)
        partial.write_text("\n".join(lines) + "\n", encoding="utf-8", errors="replace")
    if desk is None:
        actions = (json.dumps(call.model_dump(mode="json")) for step in trace.steps for call in step.tool_logs)
        (run_dir / ACTIONS).write_text("".join(f"{line}\n" for line in actions), encoding="utf-8")


def _keep_output(end: Ended, log: Path) -> None:
    text = f"{end.stdout_tail[-LOG_KEPT_BYTES:]}\n{end.stderr_tail[-LOG_KEPT_BYTES:]}".strip()
    if text:
        log.write_text(text + "\n", encoding="utf-8", errors="replace")
