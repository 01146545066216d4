"""One replica of a service that runs a program of the user's own: starts it, watches it, passes on what it says.

This process is the replica to all others: it is in the pod's network, but not in its control group. The program is in a
root and a process table of its own, and ends with this process, whatever ended that.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import time
from typing import Any, NoReturn

import aiohttp
import psutil

from opsassay.core.errors import StartError
from opsassay.core.logs import Log
from opsassay.core.schema.program import Program, Ready
from opsassay.testbed.core.networks import LOOPBACK
from opsassay.testbed.workload.runtime import management
from opsassay.testbed.workload.runtime.clients import Clients, Names
from opsassay.testbed.workload.runtime.confined import ConfinedProgram
from opsassay.testbed.workload.runtime.curl import send_as_operator
from opsassay.testbed.workload.runtime.instruments import Instruments
from opsassay.testbed.workload.runtime.program_clock import ENVIRONMENT, ProgramClock, set_clock, why_out_of_reach
from opsassay.testbed.workload.runtime.program_output import read_line
from opsassay.testbed.workload.runtime.program_telemetry import GRPC_PORT, PORT, ProgramTelemetry
from opsassay.testbed.workload.runtime.replica import duplicate_segments
from opsassay.testbed.workload.runtime.settings import Settings
from opsassay.testbed.workload.runtime.sidecar import Sidecar
from opsassay.testbed.workload.runtime.sidecar_config import FLUSH_S
from opsassay.testbed.workload.runtime.stats import Stats

_log = Log(__name__)
SKEW = "skew_clock"
"""The hook that sets the clock wrong."""
READY_EVERY_S, READY_TIMEOUT_S = 0.1, 2.0
CHECK_EVERY_S, CHECKS_UNTIL_NOT_READY = 1.0, 3
TELEMETRY = {
    "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://{LOOPBACK}:{PORT}",
    "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
    "OTEL_BSP_SCHEDULE_DELAY": "500",
    "OTEL_BLRP_SCHEDULE_DELAY": "500",
    "OTEL_METRIC_EXPORT_INTERVAL": "5000",
    "OTEL_LOGS_EXPORTER": "none",
}
"""What every SDK of OpenTelemetry reads; what a program logs is taken from its output, so that it is there once."""


class ProgramReplica(ConfinedProgram):
    """Runs the program of one replica."""

    def __init__(self, config: dict[str, Any]) -> None:
        self.program = Program.model_validate(config["program"])
        super().__init__(config, self.program)
        self.stats = Stats()
        self.instruments = Instruments(config["endpoint"], config["resource"], metrics=False)
        self.sidecar: Sidecar | None = None
        self.clock = ProgramClock()
        self.telemetry = ProgramTelemetry(
            self.stats,
            self.clock,
            config["endpoint"],
            config["resource"],
            config["services"],
            config["stores"],
            sidecar=config["sidecar"] is not None,
        )
        self.clients = Clients(Names(config["names"], config["id"]), 1, {}, Settings(relayed=False))
        self.ready, self.said = False, asyncio.Event()

    async def start(self) -> None:
        """Start the program, the receiver of its telemetry, and its sidecar if it has one."""
        ports = [port for port in (PORT, GRPC_PORT) if port == PORT or port not in self.program.ports.values()]
        await self.telemetry.start(*(socket.create_server((LOOPBACK, port)) for port in ports))
        await super().start()
        await self.start_sidecar(PORT)

    async def start_sidecar(self, telemetry_port: int, namespace: str | None = None) -> None:
        """Start a sidecar where the service has one; it is in *namespace* and sends its spans to *telemetry_port*."""
        if (binary := self.config["sidecar"]) is not None:
            service, address = self.config["resource"]["service.name"], self.config["address"]
            self.sidecar = Sidecar(binary, service, address, self.program.port, telemetry_port, namespace)
            await self.sidecar.start()

    def environment(self) -> dict[str, str]:
        """Return the program's environment: for telemetry, of the system's file, and settings of operators."""
        resource = self.config["resource"]
        described = ",".join(f"{key}={value}" for key, value in resource.items() if key != "service.name")
        named = {"OTEL_SERVICE_NAME": resource["service.name"], "OTEL_RESOURCE_ATTRIBUTES": described}
        clock = ENVIRONMENT if self.program.clock is not None else {}
        return {**TELEMETRY, **named, **clock, **super().environment(), **self.config["settings"]}

    def note(self, line: bytes) -> str:
        """Log *line* of output, emit it as a log record, and check it for the readiness message; return it as text."""
        if text := super().note(line):
            if (ready := self.program.ready) is not None and ready.log is not None and ready.log in text:
                self.said.set()
            self.instruments.record(read_line(text))
        return text

    async def wait_ready(self) -> None:
        """Wait until program and sidecar are ready; exit this process if the program ends before, or has no such clock."""
        ended = asyncio.create_task(self.wait_end())
        while not await self.answers():
            if ended.done():
                await self.end(ended.result())
            await asyncio.sleep(READY_EVERY_S)
        clock = self.program.clock
        if clock is not None and (reason := why_out_of_reach(self.processes(), clock)):
            print(f"libfaketime does not set the clock of this program: {reason}; leave `clock` out.", flush=True)
            os._exit(1)
        if self.sidecar is not None:
            try:
                await self.sidecar.wait_ready()
            except StartError as error:  # what Envoy said itself stands above it in the log
                print(error, flush=True)
                os._exit(1)
        self.ready = True

    async def answers(self) -> bool:
        """Return whether the program meets its readiness check now, within READY_TIMEOUT_S."""
        try:
            async with asyncio.timeout(READY_TIMEOUT_S):
                return await self.ready_by(self.program.ready)
        except (OSError, TimeoutError, aiohttp.ClientError):
            return False

    async def ready_by(self, ready: Ready | None) -> bool:
        """Return whether the program meets *ready*: a log message, TCP or HTTP; raises OSError, ClientError."""
        assert ready is not None, "a program says when it is ready"
        if ready.log is not None:
            return self.said.is_set()
        address = self.config["address"]
        if ready.tcp is not None:
            _, writer = await asyncio.open_connection(address, ready.tcp)
            writer.close()
            return True
        assert ready.http is not None
        method, path = ready.http.split()
        url = f"http://{address}:{self.program.port}{path}"
        async with aiohttp.ClientSession() as session, session.request(method, url) as answer:
            self.clock.read_header(answer.headers.get("Date"))
            return answer.status < 400

    async def watch(self) -> None:
        """Check readiness at intervals until the program ends, then exit this process."""
        ended = asyncio.create_task(self.wait_end())
        failures = 0
        while not ended.done():
            failures = 0 if await self.answers() else failures + 1
            self.ready = failures < CHECKS_UNTIL_NOT_READY
            await asyncio.wait([ended], timeout=CHECK_EVERY_S)
        await self.end(ended.result())

    def watching(self) -> list[asyncio.Task[Any]]:
        """Return the tasks whose end is that of this process."""
        watches = [self.watch(), *([self.sidecar.watch()] if self.sidecar is not None else [])]
        return [asyncio.create_task(one) for one in watches]

    async def end(self, status: int) -> NoReturn:
        """Exit this process with *status* once the program's output has been read and sent."""
        await asyncio.gather(*self._reading)
        await self.flush({})
        _log.info("the program ended", status=status)
        ended_well = self.stopping or (status == 0 and not self.program.restarts)
        os._exit(0 if ended_well else status if 0 < status < 256 else 1)

    async def ping(self, _: dict[str, Any]) -> dict[str, Any]:
        """Return request counters (by the program's spans), memory and CPU gauges, and readiness."""
        memory, cpu_s, first = 0, 0.0, 0
        with contextlib.suppress(psutil.Error):
            for process in self.processes():
                first = first or process.pid
                memory += process.memory_info().rss
                cpu_s += sum(process.cpu_times()[:2])
        gauges = {
            "memory_bytes": memory,
            "cpu_s": cpu_s,
            "duplicate_segments": duplicate_segments(first) if first else 0,
            "clock_ns": time.time_ns() + self.clock.offset_ns,
        }
        return {"stats": self.stats.snapshot(), "gauges": gauges, "ready": self.ready}

    async def set_hooks(self, request: dict[str, Any]) -> int:
        """Replace the faults of the clock, and those of HTTP, which the sidecar carries out; return how many there are."""
        hooks = request["hooks"]
        if self.program.clock is not None:
            skews = [hook["parameters"]["offset_ms"] for hook in hooks if hook["type"] == SKEW]
            set_clock(self.processes(), sum(skews))
        if self.sidecar is not None:
            await self.sidecar.apply(hooks)
        return len(hooks)

    async def hang(self, _: dict[str, Any]) -> int:
        """Stop all processes of the program (SIGSTOP) until they are killed; return how many there are."""
        standing = self.processes()
        for process in standing:
            with contextlib.suppress(psutil.Error):
                process.suspend()
        return len(standing)

    async def curl(self, request: dict[str, Any]) -> dict[str, Any]:
        """Send the HTTP *request* of an operator from the program's network; return status and body, or error."""
        return await send_as_operator(self.clients, request)

    async def flush(self, _: dict[str, Any]) -> None:
        """Export queued log records, and wait until a sidecar has exported its spans."""
        await asyncio.gather(
            asyncio.to_thread(self.instruments.flush), asyncio.sleep(0 if self.sidecar is None else FLUSH_S)
        )


async def main(config: dict[str, Any]) -> None:
    """Run the program in *config* until it ends or the supervisor closes the channel."""
    replica = ProgramReplica(config)
    loop = asyncio.get_running_loop()
    await replica.start()
    loop.add_signal_handler(signal.SIGTERM, replica.stop)
    await replica.wait_ready()
    hello = {"id": config["id"], "port": replica.program.port}
    handlers = {
        "ping": replica.ping, "hooks": replica.set_hooks, "flush": replica.flush, "curl": replica.curl,
        "mishap": replica.hang,
    }  # fmt: skip
    await management.serve(config["management"], hello, handlers, replica.watching())
