"""One replica of a service: an HTTP server whose routes are the operations of the app's YAML."""

from __future__ import annotations

import asyncio
import os
import random
import socket
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

import asyncpg
import uvicorn
from opentelemetry import propagate
from opentelemetry.trace import Span, SpanKind, Status, StatusCode
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from opsassay.core.schema.system import Operation, Service, System
from opsassay.testbed.core.methods import method_name
from opsassay.testbed.workload.runtime import management
from opsassay.testbed.workload.runtime.clients import CLOSING, CallFailedError, Clients, Names
from opsassay.testbed.workload.runtime.curl import send_as_operator
from opsassay.testbed.workload.runtime.faulthooks import ApplicationError, Hooks, answer_body
from opsassay.testbed.workload.runtime.instruments import Instruments
from opsassay.testbed.workload.runtime.ledger import LedgerWriter
from opsassay.testbed.workload.runtime.runtime_faults import RuntimeFaults
from opsassay.testbed.workload.runtime.settings import TOKEN_HEADER, Settings, SettingsError
from opsassay.testbed.workload.runtime.stats import Stats
from opsassay.testbed.workload.runtime.steps import COST_HEADER, Executor, Work
from opsassay.testbed.workload.runtime.stress import STRAINS, Stress

RENEW_EVERY_S = 0.5
METHODS = ("GET", "POST", "PUT", "DELETE", "PATCH")
BACKLOG = 512
"""Connections that wait to be accepted; the kernel refuses more."""
TURNS_TO_READ_AN_END = 3
"""Two are enough for asyncio's loop and for uvloop's."""
CLIENT_CLOSED_REQUEST = 499
"""What nginx calls a request whose caller has gone; nobody is there to read it."""


_last: list[tuple[dict[str, Any], System]] = []
"""The definition that was read last, with what it says."""


def system_from(definition: dict[str, Any]) -> System:
    """Return the validated system of *definition*; the last one is cached, and forked processes share it."""
    if not _last or _last[0][0] != definition:
        _last[:] = [(definition, System.model_validate(definition))]
    return _last[0][1]


class ReplicaProcess:
    """Serves the operations of one service and consumes its queue subjects."""

    def __init__(self, config: dict[str, Any]) -> None:
        self.config = config
        self.system = system_from(config["system"])
        self.service_name: str = config["service"]
        self.service: Service = self.system.services[self.service_name].at_version(config["release"])
        self.settings = Settings(config["settings"], relayed=config["inside"] is None)
        self.clock_offset_ns: int = config["clock_offset_ns"]
        self.stats, self.hooks = Stats(), Hooks()
        self.strain: Stress | None = None
        self.renewing: asyncio.Task[None] | None = None
        self.queues: set[Any] = set()
        self.instruments = Instruments(config["endpoint"], config["resource"])
        self.instruments.clock.offset_ns = self.clock_offset_ns
        self.ledger = LedgerWriter(config["ledger"], config["id"])
        names = Names(config["names"], config["id"])
        self.executor = Executor(
            system=self.system,
            service=self.service_name,
            clients=Clients(names, self.service.pool, config["stores"], self.settings),
            instruments=self.instruments,
            hooks=self.hooks,
            ledger=self.ledger,
            stats=self.stats,
            token=config["token"],
        )
        self.mishaps = RuntimeFaults(self.executor.clients)

    def application(self) -> ASGIApp:
        """Return the ASGI application: a route per operation, 404 or 405 for others, requests rewritten by faults."""
        routes = []
        for name, operation in self.service.operations.items():
            method, path = name.split(maxsplit=1)
            routes.append(Route(path, self.endpoint(name, operation), methods=[method]))
        routed = Starlette(routes=[*routes, Route("/{path:path}", self.unrouted, methods=list(METHODS))])

        async def application(scope: Scope, receive: Receive, send: Send) -> None:
            if scope["type"] == "http" and (seen := self.hooks.rewritten(scope["method"], scope["path"])):
                asked = f"{scope['method']} {scope['path']}"
                scope = {**scope, "method": seen[0], "path": seen[1], "raw_path": seen[1].encode(), "asked": asked}
            await routed(scope, receive, send)

        return application

    def endpoint(self, name: str, operation: Operation) -> Callable[[Request], Awaitable[Response]]:
        """Return the HTTP handler of *operation*, called *name*: steps in a server span, HTTP faults around them."""

        async def handle(request: Request) -> Response:
            received_ns, started = time.time_ns(), time.perf_counter_ns()
            if await caller_has_gone(request):
                return Response(status_code=CLIENT_CLOSED_REQUEST)
            work = self.work(name)
            with self.server_span(name, request, work) as span:
                span.set_attribute("http.route", name.split()[1])
                status = await self.request_boundary(work, span)
                if status is None and not self.admit(request, work):
                    status = 401
                if status is None:
                    status = await self.perform(operation, work)
                status, body = await self.response_boundary(work, span, status)
                self.close_span(span, status, body)
            duration_ns = time.perf_counter_ns() - started
            for activity in ("server", f"server {name}"):
                self.stats.add(activity, duration_ns, ok=status < 400)
            self.instruments.server_duration.record(duration_ns / 1e9, {"http.route": name.split()[1]})
            return Response(body, status, self.answer_headers(request, work, received_ns), "application/json")

        return handle

    def admit(self, request: Request, work: Work) -> bool:
        """Return whether *request* has a valid token, or settings demand none; log the reason if it is not valid."""
        objection = self.settings.objection(request.headers.get(TOKEN_HEADER), self.instruments.clock.time_ns())
        if objection is not None:
            self.instruments.log("ERROR", f"{work.operation}: request refused: {objection}")
        return objection is None

    async def unrouted(self, request: Request) -> Response:
        """Answer a request without an operation: 405 if its path has another method, else 404."""
        received_ns, started = time.time_ns(), time.perf_counter_ns()
        known = any(name.split()[1] == request.url.path for name in self.service.operations)
        work, status = self.work(f"{request.method} {request.url.path}"), 405 if known else 404
        with self.server_span(request.method, request, work) as span:
            body = answer_body(self.service_name, work.operation, status, None)
            self.close_span(span, status, body)
        self.stats.add("server", time.perf_counter_ns() - started, ok=False)
        return Response(body, status, self.answer_headers(request, work, received_ns), "application/json")

    @contextmanager
    def server_span(self, name: str, request: Request, work: Work) -> Iterator[Span]:
        """Yield the server span *name* of *request*; a rewritten request is recorded as the fault's effect."""
        attributes = {"http.request.method": request.method, "url.path": request.url.path}
        with self.instruments.span(name, SpanKind.SERVER, attributes, propagate.extract(request.headers)) as span:
            if "asked" in request.scope:
                self.executor.introduced("error", span, work)
            yield span

    def close_span(self, span: Span, status: int, body: bytes) -> None:
        """Set status code and body size on the server *span*; from 500 its status is an error."""
        span.set_attribute("http.response.status_code", status)
        span.set_attribute("http.response.body.size", len(body))
        if status >= 500:
            span.set_status(Status(StatusCode.ERROR))

    def work(self, operation: str) -> Work:
        """Return the record of one request, message or job of *operation*: names, and what faults cost it."""
        return Work(operation, method_name(self.service_name, operation))

    async def perform(self, operation: Operation, work: Work) -> int:
        """Run the steps of *operation* in a span of its method; return the HTTP status: 200, 500, 502 or 504."""
        with self.instruments.span(work.method, SpanKind.INTERNAL) as span:
            try:
                if delay_ns := await self.hooks.delay_ns("delay_method", work.operation):
                    self.executor.introduced("delay", span, work, ns=delay_ns)
                work.returned = self.hooks.method_result(work.operation)
                if work.returned is None:
                    await self.executor.run(operation.steps, work)
                else:
                    self.executor.introduced("error", span, work)
            except (CallFailedError, ApplicationError, MemoryError) as error:
                return self.failed(span, work, error)
        return 200

    def failed(self, span: Span, work: Work, error: CallFailedError | ApplicationError | MemoryError) -> int:
        """Log *error* and set it on *span*; return the HTTP status for it: 500, 502 or 504."""
        caused = isinstance(error, ApplicationError) or (
            isinstance(error, MemoryError) and self.hooks.matching("short_of_memory", work.operation) is not None
        )
        if caused:
            self.executor.introduced("error", span, work)
        words = "out of memory" if isinstance(error, MemoryError) else str(error)
        span.set_status(Status(StatusCode.ERROR, words))
        where = work.operation if isinstance(error, CallFailedError) else work.method
        self.instruments.log("ERROR", f"{where}: request failed: {words}")
        if isinstance(error, CallFailedError) and error.timeout:
            return 504
        return 502 if isinstance(error, CallFailedError) and self.service.gateway else 500

    async def request_boundary(self, work: Work, span: Span) -> int | None:
        """Apply HTTP faults to the request: delay it, or return the status to answer at once; None: go on."""
        if delay_ns := await self.hooks.delay_ns("delay_request", work.operation):
            self.executor.introduced("delay", span, work, ns=delay_ns)
        if (code := self.hooks.code(("abort_request",), work.operation)) is not None:
            self.executor.introduced("error", span, work)
        return code

    async def response_boundary(self, work: Work, span: Span, status: int) -> tuple[int, bytes]:
        """Apply HTTP faults to the response; return its (status, body) afterwards."""
        if delay_ns := await self.hooks.delay_ns("delay_response", work.operation):
            self.executor.introduced("delay", span, work, ns=delay_ns)
        if (code := self.hooks.code(("abort_response", "replace_code"), work.operation)) is not None:
            self.executor.introduced("error", span, work)
            status = code
        body = answer_body(self.service_name, work.operation, status, work.returned)
        if (changed := self.hooks.body(work.operation, body)) is not None:
            self.executor.introduced("error", span, work)
            body = changed
        return status, body

    def answer_headers(self, request: Request, work: Work, received_ns: int) -> dict[str, str]:
        """Return the response headers: Connection, and for callers with the system's token the cost of faults.

        The latter is: ns that faults cost, whether they made it fail, ns on the way here, time of sending, ns
        in doubt.
        """
        token, _, sent_ns = request.headers.get(COST_HEADER, "").partition(",")
        closing = {} if self.executor.clients.lasting else CLOSING
        if token != self.config["token"]:
            return closing
        cost = work.fault_ns, int(work.fault_error), received_ns - int(sent_ns), time.time_ns(), work.doubt_ns
        return {COST_HEADER: ",".join(map(str, cost)), **closing}

    async def consume(self, subject: str, operation: Operation) -> None:
        """Subscribe to the queue's *subject*; each message runs *operation*."""
        queue = next(name for name, store in self.system.stores.items() if store.engine == "nats")
        connection = await self.executor.clients.queue(queue)

        async def on_message(message: Any) -> None:
            headers = dict(message.headers or {})
            fault_ns, failed = (int(part) for part in headers.get(COST_HEADER, "0,0").split(","))
            work, started = self.work(f"process {subject}"), time.perf_counter_ns()
            attributes = {"messaging.system": "nats", "messaging.destination.name": subject}
            with self.instruments.span(
                work.operation, SpanKind.CONSUMER, attributes, propagate.extract(headers)
            ) as span:
                if fault_ns or failed:
                    self.executor.ledger_wait(span, work, queue, fault_ns, error=bool(failed), certain=True)
                await self.mishaps.running.wait()
                status = await self.perform(operation, work)
                if status >= 500:
                    span.set_status(Status(StatusCode.ERROR))
            self.stats.add("consumer", time.perf_counter_ns() - started, ok=status < 500)

        self.queues.add(connection)
        await connection.subscribe(subject, queue=self.service_name, cb=on_message)

    async def repeat(self, name: str, job: Any) -> None:
        """Run the periodic *job*, called *name*, at its intervals for ever."""
        while True:
            await asyncio.sleep(job.every_s * random.uniform(0.8, 1.2))  # noqa: S311
            with self.instruments.span(f"job {name}", SpanKind.INTERNAL):
                await self.perform(job, self.work(f"job {name}"))

    async def set_hooks(self, request: dict[str, Any]) -> int:
        """Replace the faults inside this process (hooks) and the watched links; return the number of hooks."""
        self.hooks.active = [*request["hooks"], *self.settings.features()]
        skew = self.hooks.matching("skew_clock", "*")
        offset_ns = int(skew["offset_ms"] * 1e6) if skew else 0
        if offset_ns and self.clock_offset_ns + offset_ns != self.instruments.clock.offset_ns:
            self.ledger.write("skew", ns=offset_ns, service=self.service_name)
        self.instruments.clock.offset_ns = self.clock_offset_ns + offset_ns
        await self.set_strain()
        self.set_lasting()
        self.executor.watched = set(request.get("watch", ()))
        return len(self.hooks.active)

    async def set_clock(self, request: dict[str, Any]) -> int:
        """Shift this process's clock by ``offset_ns`` from the true time; return the former offset."""
        former, self.clock_offset_ns = self.clock_offset_ns, int(request["offset_ns"])
        self.instruments.clock.offset_ns += self.clock_offset_ns - former
        return former

    async def curl(self, request: dict[str, Any]) -> dict[str, Any]:
        """Send the HTTP *request* of an operator from this process; return status and body, or error."""
        return await send_as_operator(self.executor.clients, request)

    def set_lasting(self) -> None:
        """Stop keeping connections alive while a fault (a network policy) affects only new ones; else keep them."""
        self.executor.clients.lasting = self.hooks.matching("short_connections", "*") is None
        if self.executor.clients.lasting and self.renewing is not None:
            self.renewing.cancel()
            self.renewing = None
        if not self.executor.clients.lasting and self.renewing is None:
            self.renewing = asyncio.create_task(self.renew())

    async def renew(self) -> None:
        """Renew the connections to stores every RENEW_EVERY_S, so that a partition of new connections acts on them."""
        while True:
            await self.executor.clients.renew()
            await asyncio.sleep(RENEW_EVERY_S)

    async def set_strain(self) -> None:
        """Start or stop the threads that exhaust resources, as the active faults ask."""
        desired = next((hook for hook in self.hooks.active if hook["type"] in STRAINS), None)
        if self.strain is not None and (desired is None or desired["type"] != self.strain.hook):
            strain, self.strain = self.strain, None
            await strain.stop()
        if desired is not None and self.strain is None:
            room = {"limit_mb": self.service.memory_limit_mb, "beside_mb": self.config["beside_mb"]}
            parameters = {**desired["parameters"], **room}
            self.strain = Stress(desired["type"], parameters, self.ledger)

    async def ping(self, _: dict[str, Any]) -> dict[str, Any]:
        """Return the counters and gauges of this process, for the supervisor."""
        self.instruments.record_collections()
        gauges = {
            "memory_bytes": self.stats.memory_bytes(),
            "cpu_s": time.process_time(),
            "gc_s": self.instruments.collections.total_s,
            "ledger_lost": self.ledger.lost,
            "duplicate_segments": duplicate_segments(),
            "clock_ns": self.instruments.clock.time_ns(),
        }
        return {"stats": self.stats.snapshot(), "gauges": gauges}

    async def retire(self) -> None:
        """Finish the messages that have arrived, accept no more, and export queued telemetry."""
        await asyncio.gather(*(connection.drain() for connection in self.queues))
        await self.flush({})

    async def flush(self, _: dict[str, Any]) -> None:
        """Export the queued telemetry."""
        await asyncio.to_thread(self.instruments.flush)


async def caller_has_gone(request: Request) -> bool:
    """Return whether the caller of *request*, which was not handled yet, has disconnected.

    A busy process finds a request and the end of its connection at once, and reads the latter some turns of the
    event loop later. Starlette's `is_disconnected` costs three times as much, and imports what was not forked.
    """
    for _ in range(TURNS_TO_READ_AN_END):
        await asyncio.sleep(0)
    arriving = request.receive().__await__()
    try:
        next(arriving)
    except StopIteration as arrived:
        return bool(arrived.value["type"] == "http.disconnect")
    arriving.close()
    return False


def duplicate_segments(process: int | str = "self") -> int:
    """Return how many duplicate TCP segments were seen in the network namespace of *process*; 0 if unknown."""
    try:
        counters = Path(f"/proc/{process}/net/netstat").read_text()
        names, numbers = (row.split()[1:] for row in counters.splitlines() if row.startswith("TcpExt:"))
    except OSError:
        return 0
    counted = dict(zip(names, numbers, strict=True))
    return sum(int(counted.get(name, 0)) for name in ("TCPDSACKRecv", "TCPDSACKOldSent", "TCPDSACKOfoSent"))


class GracefulServer(uvicorn.Server):
    """An HTTP server that waits for *retire* before it goes on SIGTERM."""

    def __init__(self, settings: uvicorn.Config, retire: Callable[[], Awaitable[None]]) -> None:
        super().__init__(settings)
        self._retire = retire

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Finish the requests in progress, shut down, and call `retire`."""
        await super().shutdown(sockets)
        await self._retire()


async def warm_up(config: dict[str, Any]) -> ReplicaProcess:
    """Return the replica of *config*, connected to its stores; exit this process if settings are invalid."""
    try:
        replica = ReplicaProcess(config)
        replica.settings.require(replica.service.required)
        engines: dict[str, str] = {name: replica.system.stores[name].engine for name in config["stores"]}
        await replica.executor.clients.warm(engines)
    except (SettingsError, asyncpg.InvalidAuthorizationSpecificationError) as error:
        await give_up(config, error)
    await asyncio.sleep(replica.service.start_s)
    return replica


async def give_up(config: dict[str, Any], error: object) -> NoReturn:
    """Say on the output and in the log that the replica of *config* cannot start for *error*, and end this process."""
    words = f"{config['service']} cannot start: {error}"
    print(words, flush=True)
    dying = Instruments(config["endpoint"], config["resource"], metrics=False)
    dying.log("ERROR", words)
    await asyncio.to_thread(dying.flush)
    os._exit(1)


async def main(config: dict[str, Any]) -> None:
    """Serve the requests to a replica with *config* until the supervisor closes the channel."""
    random.seed(f"{config['seed']}:{config['id']}")
    replica = await warm_up(config)
    await replica.set_hooks({"hooks": ()})  # what its settings switch on acts from its first request
    for subject, operation in replica.service.consumes.items():
        await replica.consume(subject, operation)
    jobs = [asyncio.create_task(replica.repeat(name, job)) for name, job in replica.service.periodic.items()]
    try:
        listener = socket.create_server((config["address"], config["port"]), backlog=BACKLOG)
    except OSError as error:
        await give_up(config, f"port {config['port']}: {os.strerror(error.errno or 0).lower()}")
    settings = uvicorn.Config(
        replica.application(), log_level="warning", access_log=False, lifespan="off", http="httptools", ws="none"
    )
    server = GracefulServer(settings, replica.retire)
    serving = asyncio.create_task(server.serve([listener]))
    while not server.started and not serving.done():  # noqa: ASYNC110 - uvicorn offers no event to wait for
        await asyncio.sleep(0.005)
    hello = {"id": config["id"], "port": listener.getsockname()[1]}
    handlers = {
        "ping": replica.ping,
        "hooks": replica.set_hooks,
        "flush": replica.flush,
        "clock": replica.set_clock,
        "mishap": replica.mishaps.happen,
        "curl": replica.curl,
    }
    await management.serve(config["management"], hello, handlers, jobs)
    for job in jobs:
        job.cancel()
