"""Process 1 of a pod: what the supervisor is to a process on `local`.

It starts the runtime as its child, serves names, sends the container's metrics, and has an endpoint for orders of faults.
An order is the desired state of the pod until a time; when that has come, the state is empty, whoever is still there.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import aiohttp
import psutil
from aiohttp import web

from opsassay.core.errors import OperationError
from opsassay.testbed.core.state import SystemState
from opsassay.testbed.kernel.cgroups import CPU, MEMORY
from opsassay.testbed.substrates.kubernetes.agent.names import PodNames
from opsassay.testbed.substrates.kubernetes.agent.own_container import Alone, OwnContainer
from opsassay.testbed.substrates.kubernetes.endpoints.desired import AGENT_PORT, DesiredState, Pressure
from opsassay.testbed.substrates.kubernetes.endpoints.key import requires_key
from opsassay.testbed.workload.processes import Channels
from opsassay.testbed.workload.runtime.forks import die_with_parent
from opsassay.testbed.workload.runtime.ledger import LedgerWriter
from opsassay.testbed.workload.sampler import Sampler

HOME = Path("/tmp")  # noqa: S108 - a pod has a disk of its own
METRICS_EVERY_S = 2.0
COMPANION_TIMEOUT_S = 20.0
ANSWER_S = 0.1


def keep(run: Callable[[dict[str, Any]], None], order: dict[str, Any]) -> int:
    """Run `run(order)` in a child process and the pod agent in this one; return the container's exit status."""
    (HOME / "ledger").mkdir(exist_ok=True)
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        die_with_parent()
        signal.signal(signal.SIGTERM, lambda *_: os._exit(0))  # a server drains before this is called
        os.close(writing)
        with os.fdopen(reading) as pipe:
            run(json.loads(pipe.read()))
        os._exit(0)
    os.close(reading)
    return asyncio.run(PodAgent(child, order).run(writing))


class PodAgent:
    """Keeps the process *child*, which waits for its *order*."""

    def __init__(self, child: int, order: dict[str, Any]) -> None:
        os.environ["OPSASSAY_STATE"] = str(HOME / "state")
        state = SystemState.for_system("pod")
        state.dir.mkdir(parents=True, exist_ok=True)
        self.child, self.name = child, str(order["id"])
        self.starts = _count_start()
        self.desired = DesiredState()
        self.channels = Channels(state, lambda _: None)
        self.fleet = Alone(order["resource"], order.get("service"), order["system"], child, self.starts)
        self.container = OwnContainer(state, self.fleet)
        ledger = LedgerWriter(str(HOME / "ledger/names.jsonl"), "names")
        urls = (order["system"].get("namespace") or {}).get("probes", {})
        self.names = PodNames(self.name, order.get("service", ""), tuple(order["system"]["services"]), ledger, urls)
        self._order = {**order, "management": str(state.management_socket)}
        self._key = os.environ.get("ENDPOINT_KEY", "")
        self._companions: dict[str, asyncio.subprocess.Process] = {}
        self._changing = asyncio.Lock()
        self._expiry: asyncio.Task[None] | None = None

    async def run(self, writing: int) -> int:
        """Send the child its order by the pipe *writing*, serve until it ends; return its status as a shell does."""
        await self.channels.start()
        own = psutil.Process().memory_info()
        beside = {"beside_mb": (own.rss - own.shared) / 2**20}
        order = {**self._order, **beside, "names": ["127.0.0.1", self.names.serve()]}
        with os.fdopen(writing, "w") as pipe:
            pipe.write(json.dumps(order))
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTERM, lambda: os.kill(self.child, signal.SIGTERM))
        runner = web.AppRunner(self.application())
        await runner.setup()
        await web.TCPSite(runner, None, AGENT_PORT).start()
        sampling = asyncio.create_task(self._sample())
        _, status = await asyncio.to_thread(os.waitpid, self.child, 0)
        sampling.cancel()
        for companion in self._companions.values():
            companion.kill()
        code = os.waitstatus_to_exitcode(status)
        return code if code >= 0 else 128 - code

    def application(self) -> web.Application:
        """Return the web application with the agent's routes, which need the endpoint key."""
        found = web.Application(middlewares=[requires_key(self._key)], client_max_size=1 << 22)
        found.add_routes(
            [
                web.get("/", self.report_status),
                web.put("/desired", self.order),
                web.post("/kill", self.kill),
                web.get("/ledger", self.ledger),
            ]
        )
        return found

    async def report_status(self, _: web.Request) -> web.Response:
        """Answer with the counters of the child and the present desired state."""
        answer = await self.channels.request(self.name, "ping", timeout_s=3.0)
        if "gauges" in answer:
            gauges = answer["gauges"]
            gauges["clock_offset_ms"] = (gauges["clock_ns"] - time.time_ns()) / 1e6
            if (share := self.container.memory_share(self.fleet.replica, None)) is not None:
                gauges["memory_share"] = share
        payload = {"now": time.time(), "starts": self.starts, "desired": self.desired.model_dump(mode="json")}
        return web.json_response({**answer, **payload})

    async def order(self, request: web.Request) -> web.Response:
        """Apply the desired state in the request, then answer with its deadline."""
        desired = DesiredState.model_validate(await request.json())
        await self.change(desired)
        return web.json_response({"until": desired.until})

    async def kill(self, _: web.Request) -> web.Response:
        """Answer, then kill the child with SIGKILL, which ends the container."""
        asyncio.get_running_loop().call_later(ANSWER_S, os.kill, self.child, signal.SIGKILL)
        return web.json_response({})

    async def ledger(self, _: web.Request) -> web.Response:
        """Answer with the complete ledger lines, effects of faults as JSON, of all processes in the pod."""
        return web.Response(body=await asyncio.to_thread(_ledger_lines))

    async def change(self, desired: DesiredState) -> None:
        """Apply *desired* (faults, rate, look-ups, pressure), which ends at its own deadline; raises OperationError."""
        async with self._changing:
            if desired.until <= time.time():
                desired = DesiredState()
            if self._order.get("service"):
                hooks, watch = list(desired.hooks), list(desired.watch)
                await self.channels.request(self.name, "hooks", hooks=hooks, watch=watch)
            elif desired.rate_rps != self.desired.rate_rps:
                await self.channels.request(self.name, "rate", rate_rps=desired.rate_rps or self._order["rate_rps"])
            self.names.wrong = dict(desired.names)
            await self._press({one.id: one for one in desired.pressure})
            self.desired = desired
            if self._expiry is not None and self._expiry is not asyncio.current_task():
                self._expiry.cancel()
            self._expiry = asyncio.create_task(self._expire(desired.until)) if desired.until else None

    async def _expire(self, until: float) -> None:
        """Reset the desired state at *until* (s since the epoch), retrying until that succeeds."""
        await asyncio.sleep(max(until - time.time(), 0.0))
        while self.desired.until == until:
            with suppress(ConnectionError, TimeoutError, RuntimeError):  # busy, or on its way out
                await self.change(DesiredState())
                return
            await asyncio.sleep(1.0)

    async def _press(self, desired: dict[str, Pressure]) -> None:
        """Start those processes of *desired* (id to pressure) that do not run, and end all that are not in it."""
        for name in self._companions.keys() - desired.keys():
            await self._end_companion(name)
        for name in desired.keys() - self._companions.keys():
            await self._start_companion(desired[name])

    async def _start_companion(self, pressure: Pressure) -> None:
        """Start the process of *pressure* in this container, wait until it acts; raises OperationError when late."""
        groups = self.container.parameters("", {"burner": CPU, "allocator": MEMORY}[pressure.role])
        if not groups:
            raise OperationError("this container has no control group that could be read")
        config = {
            **groups,
            **pressure.parameters,
            "id": pressure.id,
            "management": self._order["management"],
            "ledger": str(HOME / "ledger" / f"{pressure.id}.jsonl"),
        }
        companion = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "opsassay.testbed.substrates.kubernetes.agent", "companion", pressure.role,
            json.dumps(config),
            preexec_fn=die_with_parent,
        )  # fmt: skip
        self._companions[pressure.id] = companion
        self.fleet.companions.add(companion.pid)
        deadline = time.monotonic() + COMPANION_TIMEOUT_S
        while pressure.id not in self.channels.names():
            if companion.returncode is not None or time.monotonic() > deadline:
                await self._end_companion(pressure.id)
                raise OperationError(f"the {pressure.role} did not build up in {COMPANION_TIMEOUT_S:g} s")
            await asyncio.sleep(0.05)

    async def _end_companion(self, name: str) -> None:
        """Kill the companion process *name* and wait for its end."""
        companion = self._companions.pop(name)
        with suppress(ProcessLookupError):
            companion.kill()
        await companion.wait()
        self.fleet.companions.discard(companion.pid)

    async def _sample(self) -> None:
        """Send the container's CPU, memory and network metrics at intervals, as a collector does."""
        if not self._order.get("service"):
            return
        companions = {self.fleet.replica.id: self.fleet.companions}
        sampler = Sampler(self.fleet, self._order["endpoint"], companions, self.container, "eth0")
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(5)) as session:
            while True:
                self.fleet.replica.ready = self.name in self.channels.names()
                with suppress(aiohttp.ClientError, TimeoutError, psutil.Error):  # the receiver counts what it refuses
                    await sampler.send(session)
                await asyncio.sleep(METRICS_EVERY_S)


def _ledger_lines() -> bytes:
    """Return the complete lines of all ledger files of this pod."""
    parts = [path.read_bytes() for path in sorted((HOME / "ledger").glob("*.jsonl"))]
    return b"".join(part[: part.rfind(b"\n") + 1] for part in parts)


def _count_start() -> int:
    """Increment the count of container starts, a file on the pod's disk, and return it."""
    path = HOME / "starts"
    before = int(path.read_text()) if path.exists() else 0
    path.write_text(str(before + 1))
    return before + 1
