"""The two containers: how they are started, looked at, operated and observed.

Everything that podman keeps lies below `WORK`, on memory that only the namespaces of `check.py` see.

    python stack.py TIMELINE CADENCE PROBE_EVERY      the observer of the trial under way, a process of its own
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

from opsassay.core.errors import OperationError, StartError
from opsassay.core.schema.base import Written
from opsassay.core.schema.trajectory import Entity
from opsassay.testbed.core.probes import PROBE_TIMEOUT_S, DepthReading, ProbeAnswer, SystemReading
from opsassay.testbed.operations.tool_session import Done, OperatorToolSession, Tool
from opsassay.testbed.recording.observer import observe

WORK = Path("/run/opsassay-compose")
PROJECT = WORK / "project"
UPSTREAM = PROJECT / "conf" / "upstream"
RIGHT = "api:8080"
URL = "http://127.0.0.1:8080"
SERVICES = ("api", "proxy")
START_TIMEOUT_S = 60.0
COMMAND_TIMEOUT_S = 300.0
SETTINGS = {
    "containers.conf": """[containers]
default_ulimits = ["nofile=1024:1024", "nproc=1024:1024"]
[engine]
cgroup_manager = "cgroupfs"
runtime = "runc"
events_logger = "file"
[network]
network_backend = "netavark"
network_config_dir = "{work}/networks"
""",
    "storage.conf": """[storage]
driver = "overlay"
graphroot = "{work}/storage"
runroot = "{work}/runroot"
""",
}


def prepare() -> None:
    """Write podman's settings and point it at them; the user's own are neither read nor written."""
    (PROJECT / "conf").mkdir(parents=True)
    for name, text in SETTINGS.items():
        (WORK / name).write_text(text.format(work=WORK), encoding="utf-8")


def environment() -> dict[str, str]:
    """Return the environment of podman and podman-compose."""
    own = {"CONTAINERS_CONF": "containers.conf", "CONTAINERS_STORAGE_CONF": "storage.conf"}
    return {**os.environ, **{name: str(WORK / file) for name, file in own.items()}, "TMPDIR": str(WORK)}


def podman(*arguments: str, timeout_s: float = COMMAND_TIMEOUT_S, program: str = "podman") -> str:
    """Return what *program* says; raises OperationError."""
    command = [program, *arguments]
    try:
        done = subprocess.run(
            command, env=environment(), cwd=PROJECT, capture_output=True, text=True, timeout=timeout_s, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise OperationError(f"{' '.join(command[:3])} did not end within {timeout_s:g} s.") from error
    if done.returncode:
        last = (done.stderr.strip() or done.stdout.strip() or "no word").splitlines()[-1]
        raise OperationError(f"{' '.join(command[:3])} failed: {last}")
    return done.stdout


def compose(*arguments: str) -> str:
    """Return what podman-compose says; raises OperationError."""
    return podman("--project-name", "check", *arguments, program="podman-compose")


class StackProbes:
    """What the observer asks of a *stack*; podman is its whole control plane."""

    protected = ("proxy",)

    def __init__(self, stack: Stack) -> None:
        self._stack = stack

    async def __aenter__(self) -> Self:
        """Connect to nothing: each reading asks podman."""
        return self

    async def __aexit__(self, *_: object) -> None:
        """Hold nothing."""

    async def read(self) -> SystemReading:
        """Return which of the containers that the file wants run."""
        try:
            states = await asyncio.to_thread(self._stack.states)
        except OperationError:
            lost = DepthReading(None, ("podman",))
            return SystemReading(lost, lost, DepthReading(0.0, ("podman",)))
        up = {name: states.get(name) == "running" for name in SERVICES}
        ready = DepthReading(sum(up.values()) / len(up), tuple(f"{name}-0" for name in SERVICES if not up[name]))
        backed = DepthReading(float(up["proxy"]), () if up["proxy"] else self.protected)
        entities = [Entity(id=f"{name}-0", service=name, ready=up[name]) for name in SERVICES]
        return SystemReading(ready, backed, DepthReading(1.0), entities, {})

    async def request(self, _service: str) -> ProbeAnswer:
        """Send one request through the proxy."""
        started = time.monotonic()
        status = await asyncio.to_thread(self._stack.asked, PROBE_TIMEOUT_S)
        return ProbeAnswer(status, time.monotonic() - started)


class Stack:
    """The two containers."""

    def states(self) -> dict[str, str]:
        """Return container to state."""
        found = json.loads(podman("ps", "--all", "--format", "json", timeout_s=10.0))
        return {name: one["State"] for one in found for name in one["Names"]}

    def up(self) -> None:
        """Start both containers and wait until a request is answered at all; raises StartError, OperationError."""
        compose("up", "--detach", "--no-build")
        deadline = time.monotonic() + START_TIMEOUT_S
        while self.asked() is None:
            if time.monotonic() > deadline:
                raise StartError(f"The proxy does not answer after {START_TIMEOUT_S:g} s.", compose("logs"))
            time.sleep(0.05)

    def down(self) -> None:
        """Stop and remove both containers."""
        compose("down")

    def reload(self) -> None:
        """Have the proxy read its file again."""
        podman("exec", "proxy", "/bin/python3", "/server.py", "reload")

    def asked(self, timeout_s: float = 5.0) -> int | None:
        """Return the status of one request through the proxy, None when there is no answer."""
        try:
            with urllib.request.urlopen(URL + "/", timeout=timeout_s) as answer:  # noqa: S310 - the one URL above
                status: int = answer.status
                return status
        except urllib.error.HTTPError as error:
            return error.code
        except OSError:
            return None


class Nothing(Written):
    """Takes no argument."""


class ConfigSet(Written):
    """Change the one setting of the proxy; it counts when the proxy reads its file again."""

    key: str
    value: str


TOOLS: Mapping[str, Tool] = {
    "ps": Tool(Nothing, "ps"),
    "config_get": Tool(Nothing, "config get"),
    "curl": Tool(Nothing, "curl"),
    "config_set": Tool(ConfigSet, "config set", mutating=True),
    "reload": Tool(Nothing, "reload", mutating=True),
    "down": Tool(Nothing, "down", mutating=True),
    "up": Tool(Nothing, "up", mutating=True),
}


class Tools(OperatorToolSession):
    """What an operator can do to *stack*."""

    def __init__(self, stack: Stack, record: Any) -> None:
        super().__init__(TOOLS, record)
        self._stack = stack

    def carry_out(self, tool: Tool, asked: Written) -> Done:
        """Return what came of it."""
        touched = SERVICES if tool.verb in ("down", "up") else ("proxy",)
        return Done(operate(self._stack, tool.verb or "", asked.model_dump()), touched if tool.mutating else ())


def operate(stack: Stack, verb: str, arguments: Mapping[str, Any]) -> str:
    """Carry out *verb* and return what hears of it; raises OperationError."""
    if verb == "ps":
        return "\n".join(f"{name}: {state}" for name, state in sorted(stack.states().items())) or "no container"
    if verb == "config get":
        return f"upstream: {UPSTREAM.read_text(encoding='utf-8').strip()}"
    if verb == "config set":
        if arguments["key"] != "upstream":
            raise OperationError("The proxy has the one setting `upstream`.")
        UPSTREAM.write_text(arguments["value"] + "\n", encoding="utf-8")
    elif verb == "curl":
        return f"status {stack.asked()}"
    else:
        {"reload": stack.reload, "down": stack.down, "up": stack.up}[verb]()
    return "done"


if __name__ == "__main__":
    asyncio.run(observe(StackProbes(Stack()), Path(sys.argv[1]), float(sys.argv[2]), float(sys.argv[3]) or None))
