"""The load generator: open-loop Poisson arrivals, latency counted from the intended start, one line per request."""

from __future__ import annotations

import asyncio
import json
import os
import random
import time
from typing import Any

from opentelemetry import propagate
from opentelemetry.trace import SpanKind, Status, StatusCode

from opsassay.core.schema.system import DRAWN, LoadMix, System
from opsassay.testbed.workload.runtime import management
from opsassay.testbed.workload.runtime.clients import CallFailedError, Clients, Names, check_answer, check_status
from opsassay.testbed.workload.runtime.instruments import Instruments
from opsassay.testbed.workload.runtime.stats import Stats

NAME = "loadgenerator"
IN_FLIGHT_LIMIT = 2_000


class LoadGenerator:
    """Sends the load mix of a system at a rate that can be changed."""

    def __init__(self, config: dict[str, Any]) -> None:
        self.system = System.model_validate(config["system"])
        self.rate_rps: float = config["rate_rps"]
        self.clients = Clients(Names(config["names"], NAME), IN_FLIGHT_LIMIT, {})
        self.clients.lasting = self.system.namespace is None  # a policy of a namespace stops new connections alone
        self.instruments = Instruments(config["endpoint"], config["resource"], metrics=False)
        self.record = os.open(config["record"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self.random = random.Random(config["seed"])  # noqa: S311
        self.counts = {"sent": 0, "done": 0, "failed": 0, "shed": 0}
        self.stats = Stats()
        self.tasks: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Send requests at Poisson times for ever; above IN_FLIGHT_LIMIT open ones they are dropped and counted."""
        mix = self.system.load.mix
        weights = [kind.weight for kind in mix]
        due = time.monotonic()
        while True:
            due += self.random.expovariate(self.rate_rps)
            kind = self.random.choices(mix, weights)[0]
            if (pause := due - time.monotonic()) > 0:
                await asyncio.sleep(pause)
            if len(self.tasks) >= IN_FLIGHT_LIMIT:
                self.counts["shed"] += 1
                continue
            task = asyncio.create_task(self.send(kind, due))
            self.tasks.add(task)
            task.add_done_callback(self.tasks.discard)

    async def send(self, kind: LoadMix, due_at: float) -> None:
        """Send one request of *kind* that was due at the monotonic time *due_at*; record its result and latency."""
        request = kind.request
        service, method, route = request.split()
        program = self.system.services[service].program
        path, body = (
            (route, None) if program is None else (self.draw_numbers(route), kind.body and self.draw_numbers(kind.body))
        )
        self.counts["sent"] += 1
        status, error = 0, ""
        late_ns = int((time.monotonic() - due_at) * 1e9)
        started_ns = time.time_ns() - late_ns
        attributes = {"http.request.method": method, "server.address": service}
        with self.instruments.span(f"{method} {route}", SpanKind.CLIENT, attributes) as span:
            headers: dict[str, str] = {}
            propagate.inject(headers)
            try:
                limit_s = self.system.load.timeout_s
                response, answer = await self.clients.request(service, method, path, headers, limit_s, body)
                status = response.status
                span.set_attribute("http.response.status_code", status)
                span.set_attribute("http.response.body.size", len(answer))
                if program is None:
                    check_answer(response, answer, service, method, route)
                else:
                    check_status(response, service, method, route)
            except CallFailedError as failure:
                error = str(failure)
            if error:
                self.counts["failed"] += 1
                span.set_status(Status(StatusCode.ERROR, error))
        self.counts["done"] += 1
        took_ns = time.time_ns() - started_ns
        self.stats.add(f"call:{service}", took_ns, ok=not error)
        self.stats.add(f"call:{service} {method} {route}", took_ns, ok=not error)
        line = {"time_ns": started_ns, "request": request, "status": status, "error": error, "late_ns": late_ns,
                "latency_ns": int((time.monotonic() - due_at) * 1e9)}  # fmt: skip
        os.write(self.record, json.dumps(line).encode() + b"\n")

    def draw_numbers(self, text: str) -> str:
        """Return *text* with each ``{int:N}`` replaced by a random number from 1 to N."""
        return DRAWN.sub(lambda found: str(self.random.randint(1, int(found[1]))), text)

    async def ping(self, _: dict[str, Any]) -> dict[str, Any]:
        """Return the request counters, for the supervisor."""
        counted = {**self.counts, "in_flight": len(self.tasks), "rate_rps": self.rate_rps}
        return {**counted, "stats": self.stats.snapshot()}

    async def set_rate(self, request: dict[str, Any]) -> float:
        """Set the rate to ``rate_rps`` of *request*; return the former one."""
        former, self.rate_rps = self.rate_rps, float(request["rate_rps"])
        return former

    async def flush(self, _: dict[str, Any]) -> None:
        """Export the queued telemetry."""
        await asyncio.to_thread(self.instruments.flush)


async def main(config: dict[str, Any]) -> None:
    """Send the load that *config* describes until the supervisor closes the channel."""
    generator = LoadGenerator(config)
    running = asyncio.create_task(generator.run())
    handlers = {"ping": generator.ping, "rate": generator.set_rate, "flush": generator.flush}
    await management.serve(config["management"], {"id": NAME}, handlers, [running])
    running.cancel()
