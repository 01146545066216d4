"""Runs external agents of every domain: one command with its tools, model, limits and sandbox, and the trace of its run."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from opsassay.core.errors import UserError
from opsassay.core.schema.tool_session import TracedToolSession
from opsassay.evals.runner.commands import AGENT_INSIDE, PROMPT, SOCKETS_INSIDE, describe_tools, places_of, run_command
from opsassay.evals.runner.mounts import mounts_of
from opsassay.evals.runner.run import LOG_KEPT_BYTES, MAX_ANSWER_BYTES
from opsassay.solvers.agents.command import CommandAgent
from opsassay.solvers.agents.images import ContainerImage
from opsassay.solvers.agents.limits import Meter
from opsassay.solvers.agents.mcp_server import serving
from opsassay.solvers.agents.models.base import Message, Reply
from opsassay.solvers.agents.record import ACTIONS, TRACE, AgentRecorder
from opsassay.solvers.sandbox import Ended, Sandbox, SandboxLimits
from opsassay.telemetry.content import whole_file
from opsassay.testbed.core.state import cache_root

if TYPE_CHECKING:
    from opsassay.evals.runner.gateway import Gateway
    from opsassay.telemetry.backends.serving import ApiServer

MODEL_PORT = 8000
API_PORTS: Mapping[str, int] = MappingProxyType(
    {"prometheus": 9090, "jaeger": 16686, "loki": 3100, "alertmanager": 9093, "tempo": 3200}
)
"""Ports of the APIs inside a sandbox, at which their clients expect them by default."""

APIS = "apis"
_TOOLS, _MODEL = "tools", "model"


@dataclass(frozen=True)
class ExternalAgent:
    """An external agent: *words* returns its command for given paths (`places_of`), *files* are its own files.

    *needs*: tools, model, apis, ... as in agent.yaml. *environment* and *work_files* return further variables, and
    files of its work folder by name, for given paths. *mounts*: path in the sandbox -> folder of the machine. *image*:
    its container image.
    """

    name: str
    words: Callable[[Mapping[str, str]], list[str]]
    files: Sequence[tuple[str, Path]] = ()
    needs: Sequence[str] = ()
    environment: Callable[[Mapping[str, str]], Mapping[str, str]] = lambda _places: {}
    work_files: Callable[[Mapping[str, str]], Mapping[str, str]] = lambda _places: {}
    mounts: Mapping[str, Path] = field(default_factory=dict)
    model: str | None = None
    image: ContainerImage | None = None

    @classmethod
    def from_command(cls, command: CommandAgent, model: str | None) -> ExternalAgent:
        """Return the agent of *command*, an agent.yaml, with access to *model* (None: no model); raises UserError."""
        file = command.file
        return cls(
            command.name,
            command.words,
            list(command.each_file()),
            file.needs,
            command.variables,
            command.work_files,
            mounts_of(command),
            model,
            command.image,
        )

    @property
    def asks_model(self) -> bool:
        """Whether the agent needs a model and has one."""
        return self.model is not None and _MODEL in self.needs


@dataclass(frozen=True)
class ExternalTask:
    """The task of an external agent: the folder *view* that it may read, and its *prompt* for given paths.

    *session*: its tools. *further*: returns more placeholder paths for (work folder, sealed). *apis*: serves telemetry
    by backends' own APIs.
    """

    view: Path
    prompt: Callable[[Mapping[str, str]], str]
    session: TracedToolSession | None = None
    further: Callable[[Path, bool], Mapping[str, str]] = lambda _work, _sealed: {}
    apis: ApiServer | None = None


def run_outside(
    agent: ExternalAgent, task: ExternalTask, folder: Path, run_dir: Path, meter: Meter, *, sealed: bool
) -> Ended:
    """Run the command of *agent* on *task* in *folder*, where it may write to ``work``; return how it ended.

    Its trace goes into *run_dir*, the tokens of its model into *meter*. Sealed, it finds the tools' socket, its model
    at 127.0.0.1:8000, the APIs of the task at `API_PORTS`, and nothing else of the machine. Raises as `Sandbox.run`, and
    UserError when it needs APIs that the task has not.
    """
    if APIS in agent.needs and task.apis is None:
        raise no_apis(agent.name)
    work, files, session = folder / "work", folder / "agent", task.session
    for made in (work, files):
        made.mkdir()
    for name, file in agent.files:
        (files / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(file, files / name)
    places = places_of(task.view, work, files, sealed=sealed)
    if agent.image is not None:
        places["python"] = "python3"  # the image's own, if it has one
    environment = {"HOME": places["work"], "LANG": "C.UTF-8", "TZ": "UTC"}
    sockets: dict[str, Path] = {}
    ports: dict[int, str] = {}
    gate: Gateway | None = None
    with ExitStack() as stack:
        if session is not None:
            socket = sockets[_TOOLS] = stack.enter_context(serving(session, folder / f"{_TOOLS}.sock"))
            places["mcp"] = describe_tools(work, places, socket, sealed=sealed)
            places["tools"] = f"{SOCKETS_INSIDE}/{socket.name}" if sealed else str(socket)
        if agent.model is not None and agent.asks_model:
            from opsassay.evals.runner.gateway import ConversationTrace, gateway

            gate = stack.enter_context(gateway(agent.model, folder, meter))
            going_on = stack.enter_context(ExitStack())
            going_on.enter_context(ConversationTrace(gate, run_dir / TRACE))
            sockets[_MODEL], ports[MODEL_PORT], places["model"] = gate.path, _MODEL, agent.model
            offered = gate.environment(f"http://127.0.0.1:{MODEL_PORT}" if sealed else gate.url, agent.model)
            environment |= offered
            places["model_url"] = offered["OPENAI_BASE_URL"]
        if task.apis is not None:
            urls = _serve_apis(stack, task.apis, folder, sockets, ports, sealed=sealed)
            places |= urls
            environment |= {f"{name.upper()}_URL": url for name, url in urls.items()}
        places |= task.further(work, sealed)
        prompt = task.prompt(places)
        (work / PROMPT).write_text(prompt, encoding="utf-8")
        environment = {**agent.environment(places), **environment}
        for name, content in agent.work_files(places).items():
            (work / name).parent.mkdir(parents=True, exist_ok=True)
            (work / name).write_text(content, encoding="utf-8")
        root = None
        if agent.image is not None:
            root, environment = agent.image.unpacked(cache_root()), {**agent.image.environment, **environment}
        seal = Sandbox(
            view=task.view, work=work, sockets=sockets, ports=ports, root=root,
            limits=_seal_limits(meter), environment=environment, readable={AGENT_INSIDE: files, **agent.mounts},
        )  # fmt: skip
        began_ns = time.time_ns()
        ended = run_command(agent.words(places), seal, sealed=sealed)
        if gate is not None:
            going_on.close()
            gate.book(meter)
        _note_limits(ended, meter)
        _write_trace(gate, session, run_dir, agent.name, prompt, ended, began_ns)
        return ended


def no_apis(name: str) -> UserError:
    """Return the error for the agent *name*, which needs APIs where none are served."""
    return UserError(
        f"The agent {name} needs apis, and there is no telemetry here to serve by them; leave apis out of its needs here."
    )


def _serve_apis(
    stack: ExitStack, server: ApiServer, folder: Path, sockets: dict[str, Path], ports: dict[int, str], *, sealed: bool
) -> dict[str, str]:
    """Serve *server* until *stack* closes, if *sealed* on sockets that it adds with their *ports*; return URLs by API."""
    from opsassay.telemetry.backends.serving import TEMPO, api_urls, serving_on_port, serving_on_socket

    if not sealed:
        return api_urls(stack.enter_context(serving_on_port(server)))
    sockets[APIS] = stack.enter_context(serving_on_socket(server, folder / f"{APIS}.sock"))
    sockets[TEMPO] = stack.enter_context(serving_on_socket(server.alone(TEMPO), folder / f"{TEMPO}.sock"))
    ports |= {port: TEMPO if name == TEMPO else APIS for name, port in API_PORTS.items()}
    return {name: f"http://127.0.0.1:{port}" for name, port in API_PORTS.items()}


def _seal_limits(meter: Meter) -> SandboxLimits:
    """Return the sandbox's limits that correspond to the limits of *meter*."""
    limits = meter.limits
    return replace(
        SandboxLimits(),
        wall_clock_s=limits.seconds,
        memory_bytes=limits.memory_mb * 2**20,
        processes=limits.processes,
        output_bytes=MAX_ANSWER_BYTES,
    )


def _note_limits(ended: Ended, meter: Meter) -> None:
    """Record in *meter* the limit that ended the agent, if one did."""
    if ended.limit:
        meter.note("seconds" if ended.limit == "wall_clock_s" else ended.limit)


def _write_trace(
    gate: Gateway | None,
    session: TracedToolSession | None,
    run_dir: Path,
    name: str,
    prompt: str,
    ended: Ended,
    began_ns: int,
) -> None:
    """Write the agent's trace: its calls of the model through *gate*, else one step with all tool calls of *session*."""
    trace = gate.trace() if gate else None
    if trace is None:
        said = ended.stdout_tail if session is None else ended.stdout_tail + ended.stderr_tail
        reply, calls = Reply(text=said[-LOG_KEPT_BYTES:]), session.calls if session else ()
        messages = [Message(role="user", content=prompt)]
        AgentRecorder(run_dir).step(
            name, messages, reply, model=None, started_ns=began_ns, ended_ns=time.time_ns(), calls=calls
        )
        return
    with whole_file(run_dir / TRACE) as partial:
        lines = (json.dumps(step.model_dump(mode="json"), ensure_ascii=False) for step in trace.steps)
        partial.write_text("\n".join(lines) + "\n", encoding="utf-8", errors="replace")
    if session is None:
        actions = (json.dumps(call.model_dump(mode="json")) for step in trace.steps for call in step.tool_logs)
        (run_dir / ACTIONS).write_text("".join(f"{line}\n" for line in actions), encoding="utf-8")


def output_of(ended: Ended) -> str:
    """Return the tail of what a command printed on both streams."""
    return f"{ended.stdout_tail[-LOG_KEPT_BYTES:]}\n{ended.stderr_tail[-LOG_KEPT_BYTES:]}".strip()
