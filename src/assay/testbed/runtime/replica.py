"""One replica of a service: an HTTP server whose routes are the operations of the app's YAML."""

from __future__ import annotations

import asyncio
import random
import socket
import time
from collections.abc import Awaitable, Callable
from typing import Any

import uvicorn
from opentelemetry import propagate
from opentelemetry.trace import SpanKind, Status, StatusCode
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from assay.model.system import Operation, Service, System
from assay.testbed.runtime import management
from assay.testbed.runtime.clients import CallFailedError, Clients, Names
from assay.testbed.runtime.faulthooks import Hooks
from assay.testbed.runtime.instruments import Instruments, span_ids
from assay.testbed.runtime.ledger import LedgerWriter
from assay.testbed.runtime.stats import Stats
from assay.testbed.runtime.steps import COST_HEADER, Executor, Work


class Replica:
    """Serves the operations of one service and consumes its queue subjects."""

    def __init__(self, config: dict[str, Any]) -> None:
        self.config = config
        self.system = System.model_validate(config["system"])
        self.service_name: str = config["service"]
        self.service: Service = self.system.services[self.service_name]
        self.stats, self.hooks = Stats(), Hooks()
        self.instruments = Instruments(config["endpoint"], config["resource"])
        self.ledger = LedgerWriter(config["ledger"], config["id"])
        names = Names(config["names_port"], config["id"])
        self.executor = Executor(
            system=self.system,
            service=self.service_name,
            clients=Clients(names, self.service.pool, config["stores"]),
            instruments=self.instruments,
            hooks=self.hooks,
            ledger=self.ledger,
            stats=self.stats,
            token=config["token"],
        )

    def application(self) -> Starlette:
        """Return the ASGI application with one route per operation."""
        routes = []
        for name, operation in self.service.operations.items():
            method, path = name.split(maxsplit=1)
            routes.append(Route(path, self.endpoint(name, operation), methods=[method]))
        return Starlette(routes=routes)

    def endpoint(self, name: str, operation: Operation) -> Callable[[Request], Awaitable[Response]]:
        """Return the handler of one operation: a server span around its steps, and the HTTP boundary faults."""
        method, path = name.split(maxsplit=1)
        attributes = {"http.request.method": method, "http.route": path, "url.path": path}

        async def handle(request: Request) -> Response:
            received_ns, started = time.time_ns(), time.perf_counter_ns()
            work = Work(name)
            parent = propagate.extract(request.headers)
            with self.instruments.tracer.start_as_current_span(
                name, context=parent, kind=SpanKind.SERVER, attributes=attributes
            ) as span:
                status = await self.perform(operation, work)
                status = await self.boundary(name, work, span, status)
                span.set_attribute("http.response.status_code", status)
                if status >= 500:
                    span.set_status(Status(StatusCode.ERROR))
            duration_ns = time.perf_counter_ns() - started
            self.stats.add("server", duration_ns, ok=status < 500)
            self.instruments.server_duration.record(duration_ns / 1e9, {"http.route": path})
            return JSONResponse({"ok": status < 500}, status, self.cost_header(request, work, received_ns))

        return handle

    async def perform(self, operation: Operation, work: Work) -> int:
        """Run the steps; return the HTTP status that they lead to."""
        try:
            await self.executor.run(operation.steps, work)
        except CallFailedError as error:
            self.instruments.log("ERROR", f"{work.operation}: request failed: {error}")
            return 504 if error.timeout else 500
        return 200

    async def boundary(self, name: str, work: Work, span: Any, status: int) -> int:
        """Apply the HTTP faults of this service to the response; return the status that the caller sees."""
        if delay_ns := await self.hooks.response_delay_ns(name):
            work.fault_ns += delay_ns
            self.ledger.write(
                "delay",
                span_ids(span),
                ns=delay_ns,
                operation=name,
                service=self.service_name,
            )
        if (code := self.hooks.response_code(name)) is not None:
            work.fault_error = True
            self.ledger.write(
                "error",
                span_ids(span),
                operation=name,
                service=self.service_name,
            )
            return code
        return status

    def cost_header(self, request: Request, work: Work, received_ns: int) -> dict[str, str]:
        """Return the truth-side header for callers that hold the system's token: fault ns, failed, times one way."""
        token, _, sent_ns = request.headers.get(COST_HEADER, "").partition(",")
        if token != self.config["token"]:
            return {}
        return {COST_HEADER: f"{work.fault_ns},{int(work.fault_error)},{received_ns - int(sent_ns)},{time.time_ns()}"}

    async def consume(self, subject: str, operation: Operation) -> None:
        """Subscribe to *subject* and run *operation* for each message."""
        queue = next(name for name, store in self.system.stores.items() if store.engine == "nats")
        connection = await self.executor.clients.queue(queue)

        async def on_message(message: Any) -> None:
            headers = dict(message.headers or {})
            fault_ns, failed = (int(part) for part in headers.get(COST_HEADER, "0,0").split(","))
            work, started = Work(f"process {subject}"), time.perf_counter_ns()
            with self.instruments.tracer.start_as_current_span(
                work.operation, context=propagate.extract(headers), kind=SpanKind.CONSUMER,
                attributes={"messaging.system": "nats", "messaging.destination.name": subject},
            ) as span:  # fmt: skip
                if fault_ns or failed:
                    self.executor.ledger_wait(span, work, queue, fault_ns, error=bool(failed), certain=True)
                status = await self.perform(operation, work)
                if status >= 500:
                    span.set_status(Status(StatusCode.ERROR))
            self.stats.add("consumer", time.perf_counter_ns() - started, ok=status < 500)

        await connection.subscribe(subject, queue=self.service_name, cb=on_message)

    async def repeat(self, name: str, job: Any) -> None:
        """Run a periodic job for ever: a benign distractor."""
        while True:
            await asyncio.sleep(job.every_s * random.uniform(0.8, 1.2))  # noqa: S311
            with self.instruments.tracer.start_as_current_span(f"job {name}", kind=SpanKind.INTERNAL):
                await self.perform(job, Work(f"job {name}"))

    async def set_hooks(self, request: dict[str, Any]) -> int:
        """Replace the active runtime faults and the watched link ends; return how many faults are active."""
        self.hooks.active = request["hooks"]
        self.executor.watched = set(request.get("watch", ()))
        return len(self.hooks.active)

    async def ping(self, _: dict[str, Any]) -> dict[str, Any]:
        """Answer with the counters."""
        return {"stats": self.stats.snapshot()}

    async def flush(self, _: dict[str, Any]) -> None:
        """Send the telemetry that is still queued."""
        await asyncio.to_thread(self.instruments.flush)


async def main(config: dict[str, Any]) -> None:
    """Serve until the supervisor hangs up."""
    random.seed(f"{config['seed']}:{config['id']}")
    replica = Replica(config)
    engines: dict[str, str] = {name: replica.system.stores[name].engine for name in config["stores"]}
    await replica.executor.clients.warm(engines)
    for subject, operation in replica.service.consumes.items():
        await replica.consume(subject, operation)
    jobs = [asyncio.create_task(replica.repeat(name, job)) for name, job in replica.service.periodic.items()]
    listener = socket.create_server(("127.0.0.1", 0), backlog=512)
    settings = uvicorn.Config(
        replica.application(), log_level="warning", access_log=False, lifespan="off", http="httptools"
    )
    server = uvicorn.Server(settings)
    serving = asyncio.create_task(server.serve([listener]))
    while not server.started and not serving.done():  # noqa: ASYNC110 - uvicorn offers no event to wait for
        await asyncio.sleep(0.005)
    hello = {"id": config["id"], "port": listener.getsockname()[1]}
    handlers = {"ping": replica.ping, "hooks": replica.set_hooks, "flush": replica.flush}
    await management.serve(config["management"], hello, handlers)
    for job in jobs:
        job.cancel()
