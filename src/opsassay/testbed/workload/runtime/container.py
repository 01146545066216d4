"""One container of a compose project: starts it, watches it, passes on what it says.

This process is the replica to all others, and stays in the namespace of this machine; only the socket that takes the
container's telemetry is in the container's own network.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from functools import partial
from pathlib import Path
from typing import Any

import psutil

from opsassay.core.errors import OperationError
from opsassay.core.schema.program import Program, Ready
from opsassay.testbed.core.networks import LOOPBACK
from opsassay.testbed.kernel.namespaces import inside
from opsassay.testbed.workload.engine import ContainerEngine, ContainerState
from opsassay.testbed.workload.runtime import management
from opsassay.testbed.workload.runtime.curl import send_as_operator
from opsassay.testbed.workload.runtime.lookups import LOOKED_UP, ContainerLookups
from opsassay.testbed.workload.runtime.program import READY_TIMEOUT_S, ProgramReplica
from opsassay.testbed.workload.runtime.program_telemetry import GRPC_PORT, PORT

LOOK_EVERY_S, LAST_LINES = 0.1, "10"


class ContainerReplica(ProgramReplica):
    """Watches the container of one replica."""

    def __init__(self, config: dict[str, Any]) -> None:
        super().__init__(config)
        self.engine, self.container = ContainerEngine(config["engine"]), config["container"]
        self.state: ContainerState | None = None
        self.lookups: ContainerLookups | None = None

    async def start(self) -> None:
        """Start the container if it does not run, and read its logs; if it ends at once, exit this process."""
        if not (await self.engine.inspect(self.container)).running:
            await self.engine.run("start", self.container)
        self.state = await self.engine.inspect(self.container)
        if not self.state.pid:
            print(await self.engine.run("logs", "--tail", LAST_LINES, self.container, with_errors=True))
            print(f"The container ended with status {self.state.exit_code}.", flush=True)
            os._exit(self.state.exit_code)
        self.config["address"] = self.state.address
        if listener := self._listen():
            await self.telemetry.start(listener, *self._listen_for_grpc())
            await self.start_sidecar(listener.getsockname()[1], self.namespace)
        read, written = os.pipe()
        await asyncio.create_subprocess_exec(
            *self.engine.words, "logs", "--follow", "--since", self.state.started_at, self.container,
            stdin=asyncio.subprocess.DEVNULL, stdout=written, stderr=written,
        )  # fmt: skip
        os.close(written)
        self._reading.append(asyncio.create_task(self.read_output(read)))

    def _listen(self) -> socket.socket | None:
        """Return the socket in the container that takes telemetry: of its program, else of its sidecar alone."""
        try:
            return inside(self.namespace, lambda: socket.create_server((LOOPBACK, PORT)))
        except OSError as error:  # one that was not made for OpsAssay may have a collector of its own
            print(f"No telemetry is received: port {PORT} of the container: {error.strerror}.", flush=True)
        return inside(self.namespace, lambda: socket.create_server((LOOPBACK, 0))) if self.config["sidecar"] else None

    def _listen_for_grpc(self) -> list[socket.socket]:
        """Return the socket at the port of gRPC in a container that got no variables of OpsAssay, if it is free."""
        if self.config["attached"]:
            with contextlib.suppress(OSError):
                return [inside(self.namespace, lambda: socket.create_server((LOOPBACK, GRPC_PORT)))]
        return []

    @property
    def namespace(self) -> str:
        """The /proc path of the container's network namespace."""
        assert self.state is not None
        return f"/proc/{self.state.pid}/ns/net"

    async def wait_end(self) -> int:
        """Wait until the container has ended and return its exit status."""
        assert self.state is not None
        while psutil.pid_exists(self.state.pid):  # noqa: ASYNC110 - another process's end
            await asyncio.sleep(LOOK_EVERY_S)
        with contextlib.suppress(OperationError):
            return (await self.engine.inspect(self.container)).exit_code
        return 1

    async def ready_by(self, ready: Ready | None) -> bool:
        """Return whether the container meets the readiness check *ready*; None: True, since it runs."""
        if ready is None:
            return True
        if self.sidecar is None:
            return await super().ready_by(ready)
        check = super().ready_by  # from inside it passes the sidecar by, and its faults
        limited = partial(asyncio.wait_for, timeout=READY_TIMEOUT_S)
        return await asyncio.to_thread(inside, self.namespace, lambda: asyncio.run(limited(check(ready))))

    async def set_hooks(self, request: dict[str, Any]) -> int:
        """Replace the faults that the sidecar carries out, and those of look-ups; return how many are active."""
        assert self.state is not None
        hosts = [host for hook in request["hooks"] for host in hook["parameters"].get(LOOKED_UP, ())]
        if self.lookups is None and hosts:
            resolver_file = Path(f"/proc/{self.state.pid}/root/etc/resolv.conf")
            names = self.clients.names
            self.lookups = ContainerLookups(self.namespace, resolver_file, names, self.config["services"])
        if self.lookups is not None:
            await self.lookups.misdirect(hosts)
        await super().set_hooks(request)
        return len(request["hooks"])

    def processes(self) -> list[psutil.Process]:
        """Return the processes in the container."""
        assert self.state is not None
        first = psutil.Process(self.state.pid)
        return [first, *first.children(recursive=True)]

    async def curl(self, request: dict[str, Any]) -> dict[str, Any]:
        """Send the HTTP *request* of an operator from the container's network; return status and body, or error."""
        return await send_as_operator(self.clients, request, self.namespace)

    async def kill(self, _: dict[str, Any]) -> None:
        """Have the engine kill the container."""
        await self.engine.run("kill", self.container)

    async def stop_container(self, _: dict[str, Any]) -> None:
        """Have the engine stop the container gracefully."""
        self.stopping = True
        await self.engine.run("stop", self.container)


async def main(config: dict[str, Any]) -> None:
    """Watch the container in *config* until it ends or the supervisor closes the channel."""
    replica = ContainerReplica(config)
    await replica.start()
    assert replica.state is not None
    await replica.wait_ready()
    hello = {"id": config["id"], "port": Program.model_validate(config["program"]).port, "pid": replica.state.pid}
    handlers = {
        "ping": replica.ping, "hooks": replica.set_hooks, "flush": replica.flush, "curl": replica.curl,
        "mishap": replica.hang, "kill": replica.kill, "stop": replica.stop_container,
    }  # fmt: skip
    await management.serve(config["management"], hello, handlers, replica.watching())
