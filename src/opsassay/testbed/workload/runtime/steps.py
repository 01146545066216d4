"""Executes the steps of an operation for one request or message, with spans, and keeps account of what faults cost it."""

from __future__ import annotations

import asyncio
import math
import random
import re
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import asyncpg
import nats
import valkey
from opentelemetry import propagate
from opentelemetry.trace import Span, SpanKind, Status, StatusCode

from opsassay.core.schema.system import Step, System
from opsassay.testbed.workload.runtime.baseline import LinkBaseline
from opsassay.testbed.workload.runtime.clients import Breaker, CallFailedError, Clients, check_answer
from opsassay.testbed.workload.runtime.faulthooks import ApplicationError, Hooks, Returned
from opsassay.testbed.workload.runtime.instruments import Instruments, span_ids
from opsassay.testbed.workload.runtime.ledger import GAVE_UP, LedgerWriter
from opsassay.testbed.workload.runtime.stats import Stats

if TYPE_CHECKING:
    import aiohttp

COST_HEADER = "x-request-cost"
"""Truth side: asked for with a token that only the system's own processes know, answered with the fault's share."""


@dataclass
class Work:
    """One request or message in progress: the operation that it belongs to and what faults have cost it so far."""

    operation: str
    method: str = ""  # the name of the code that handles it
    fault_ns: int = 0
    fault_error: bool = False
    doubt_ns: int = 0  # waited for callees that it gave up on: a fault may have kept them busy
    returned: Returned | None = None  # what the method returned instead of its own result


@dataclass
class Executor:
    """Runs steps on behalf of one replica."""

    system: System
    service: str
    clients: Clients
    instruments: Instruments
    hooks: Hooks
    ledger: LedgerWriter
    stats: Stats
    token: str
    watched: set[str] = field(default_factory=set)  # callees behind a fault; "*" when this replica is the faulted one
    usual: LinkBaseline = field(
        default_factory=LinkBaseline
    )  # one-way times to callees and durations of commands to stores

    async def run(self, steps: tuple[Step, ...], work: Work) -> None:
        """Run *steps* in order for *work*, the request; raises CallFailedError when one fails that is not optional."""
        for step in steps:
            try:
                await self._find_action(step)(step, work)
            except CallFailedError as error:
                if not step.optional:
                    raise
                self.instruments.log("WARN", f"{work.operation}: going on without {step.call or 'a step'}: {error}")

    def _find_action(self, step: Step) -> Callable[[Step, Work], Awaitable[None]]:
        """Return the method that carries out the kind of *step*."""
        if step.call is not None:
            return self._run_call
        if step.parallel is not None:
            return self._run_parallel
        if step.sql is not None:
            return self._run_sql
        if step.cache is not None:
            return self._run_cache
        if step.publish is not None:
            return self._run_publish
        return self._run_log if step.log is not None else self._spend_time

    async def _run_parallel(self, step: Step, work: Work) -> None:
        """Run the substeps of *step* at once for *work*, the request; when all have ended, raise their first error."""
        branches = [Work(work.operation, work.method) for _ in step.parallel or ()]
        runs = (self.run((inner,), branch) for inner, branch in zip(step.parallel or (), branches, strict=True))
        outcomes = await asyncio.gather(*runs, return_exceptions=True)
        work.fault_ns += max((branch.fault_ns for branch in branches), default=0)
        work.fault_error |= any(branch.fault_error for branch in branches)
        work.doubt_ns += max((branch.doubt_ns for branch in branches), default=0)
        for outcome in outcomes:
            if isinstance(outcome, BaseException):
                raise outcome

    async def _run_call(self, step: Step, work: Work) -> None:
        """Call the service of *step* for *work*, the request, with retries and breaker; raises CallFailedError."""
        service, method, route = (step.call or "").split()
        breaker = self.clients.breakers.setdefault(service, Breaker())
        retries = self.clients.settings.retries(step.retries)
        for attempt in range(retries + 1):
            breaker.check(service)  # a refusal is no outcome: it must not keep the circuit open
            try:
                await self._attempt_call(step, work, service, method, route)
            except CallFailedError:
                breaker.record(ok=False, limit=step.breaker_failures, open_s=step.breaker_open_s)
                if attempt == retries:
                    raise
            else:
                breaker.record(ok=True, limit=None, open_s=0)
                return

    async def _attempt_call(self, step: Step, work: Work, service: str, method: str, route: str) -> None:
        """Make one attempt of the call *step* to *service* in a client span; raises CallFailedError, also when late."""
        attributes = {"http.request.method": method, "server.address": service, "url.path": route}
        started = time.perf_counter_ns()
        with self.instruments.span(f"{method} {route}", SpanKind.CLIENT, attributes) as span:
            headers = {COST_HEADER: f"{self.token},{time.time_ns()}"}
            headers |= self.clients.settings.token(self.instruments.clock.time_ns())
            propagate.inject(headers)
            ok = accounted = False
            try:
                response, body = await self.clients.request(
                    service, method, route, headers, self.clients.settings.timeout_s(step.timeout_s)
                )
                span.set_attribute("http.response.status_code", response.status)
                span.set_attribute("http.response.body.size", len(body))
                accounted = self._account(work, span, service, response)
                check_answer(response, body, service, method, route)
                ok = True
            except CallFailedError as error:
                span.set_status(Status(StatusCode.ERROR, str(error)))
                span.set_attribute("error.type", "timeout" if error.timeout else str(error.status or "connection"))
                if error.status is None or (error.wrong and not accounted):
                    waited = time.perf_counter_ns() - started
                    self.ledger_wait(span, work, service, waited, error=True, certain=self._is_watched(service))
                raise
            finally:
                took_ns = time.perf_counter_ns() - started
                self.stats.add(f"call:{service}", took_ns, ok=ok)
                self.stats.add(f"call:{service} {method} {route}", took_ns, ok=ok)

    def _account(self, work: Work, span: Span, service: str, response: aiohttp.ClientResponse) -> bool:
        """Record in the ledger what faults cost this call, by the callee's cost header and one-way times.

        A callee that gave up on another itself leaves its caller in the same doubt. Returns whether the callee
        says that a fault made it fail.
        """
        if (cost := response.headers.get(COST_HEADER)) is None:
            return False
        fault_ns, failed, there_ns, sent_ns, doubt_ns = (int(part) for part in cost.split(","))
        back_ns = time.time_ns() - sent_ns
        if not self._is_watched(service):
            self.usual.note(service, there_ns + back_ns)
        else:
            self.ledger.write(
                "one_way", span_ids(span), ns=there_ns + back_ns, there_ns=there_ns, back_ns=back_ns, callee=service,
                operation=work.operation, service=self.service,
            )  # fmt: skip
            fault_ns += self.usual.excess(service, there_ns + back_ns)
        if fault_ns or failed:
            self.ledger_wait(span, work, service, fault_ns, error=bool(failed), certain=True)
        elif doubt_ns:
            self.ledger_wait(span, work, service, doubt_ns, error=response.status >= 500, certain=False)
        return bool(failed)

    def _is_watched(self, callee: str) -> bool:
        """Return whether one-way times of the link to *callee* are recorded."""
        return callee in self.watched or "*" in self.watched

    def ledger_wait(self, span: Span, work: Work, callee: str, ns: int, *, error: bool, certain: bool) -> None:
        """Record in the ledger and in *work* that this service waited *ns* for *callee*, or failed, due to a fault.

        If it is not *certain*, `read_ledger` later decides by whether a fault delayed the callee in this trace.
        """
        if certain:
            work.fault_ns += ns
            work.fault_error |= error
        else:
            work.doubt_ns += ns
        self.ledger.write(
            "wait" if certain else GAVE_UP, span_ids(span), ns=ns, error=error, callee=callee, operation=work.operation,
            service=self.service,
        )  # fmt: skip

    def introduced(self, kind: str, span: Span, work: Work, *, ns: int = 0, **fields: str) -> None:
        """Record in the ledger and in *work* that a fault here caused *kind*: a delay of *ns*, or an "error"."""
        work.fault_ns += ns
        work.fault_error |= kind == "error"
        self.ledger.write(kind, span_ids(span), ns=ns, operation=work.operation, service=self.service, **fields)

    async def _run_sql(self, step: Step, work: Work) -> None:
        """Run the statement of *step* in its PostgreSQL store; raises CallFailedError."""
        store = self.system.store_of(step, "postgresql") or ""
        statement = step.sql or ""
        words = statement.split()
        verb = words[0].upper()
        table = next((words[i + 1] for i, w in enumerate(words[:-1]) if w.upper() in ("FROM", "INTO", "UPDATE")), store)
        async with self._store_span(f"{verb} {table}", "postgresql", f"sql:{store}", work) as span:
            try:
                self.hooks.check_statement(work.operation, statement)
                if delay_ns := await self.hooks.delay_ns("delay_statement", work.operation):
                    self.introduced("delay", span, work, ns=delay_ns, callee=store)
                async with asyncio.timeout(step.timeout_s):
                    pool = await self.clients.database(store)
                    async with pool.acquire(timeout=step.timeout_s) as connection:
                        arguments = (draw(argument) for argument in step.args)
                        await connection.fetch(statement, *arguments, timeout=step.timeout_s)
            except ApplicationError as error:
                self.introduced("error", span, work, callee=store)
                raise CallFailedError(f"{verb} {table}: {error}") from error
            except (TimeoutError, OSError, asyncpg.PostgresError, asyncpg.InterfaceError) as error:
                raise CallFailedError(
                    f"{verb} {table}: {type(error).__name__}", timeout=isinstance(error, TimeoutError)
                ) from error

    async def _run_cache(self, step: Step, work: Work) -> None:
        """Get, set or delete the step's key in the Valkey store; a miss runs the steps on_miss, then sets the key."""
        store = self.system.store_of(step, "valkey") or ""
        key = re.sub(r"{([^}]*)}", lambda match: str(draw(match[1])), step.key)
        verb = {"get": "GET", "set": "SET", "delete": "DEL"}[step.cache or "get"]
        value = await self._ask_cache(step, work, store, key, verb)
        if step.on_miss and value is None:
            await self.run(step.on_miss, work)
            await self._ask_cache(step, work, store, key, "SET")

    async def _ask_cache(self, step: Step, work: Work, store: str, key: str, verb: str) -> Any:
        """Send GET, SET or DEL (*verb*) for *key* to the cache *store* and return the reply; raises CallFailedError."""
        async with self._store_span(f"{verb} {key.split(':', maxsplit=1)[0]}", "valkey", f"cache:{store}", work):
            try:
                async with asyncio.timeout(step.timeout_s):
                    client = await self.clients.cache(store)
                    if verb == "SET":
                        return await client.set(key, b"x" * 64, ex=step.ttl_s)
                    return await (client.get(key) if verb == "GET" else client.delete(key))
            except (TimeoutError, OSError, valkey.ValkeyError) as error:
                raise CallFailedError(
                    f"{verb} {key}: {type(error).__name__}", timeout=isinstance(error, TimeoutError)
                ) from error

    async def _run_publish(self, step: Step, work: Work) -> None:
        """Publish an empty message, with trace headers, on the subject of *step*; raises CallFailedError."""
        store = self.system.store_of(step, "nats") or ""
        attributes = {"messaging.system": "nats", "messaging.destination.name": step.publish or ""}
        with self.instruments.span(f"publish {step.publish}", SpanKind.PRODUCER, attributes) as span:
            headers: dict[str, str] = {COST_HEADER: f"{work.fault_ns},{int(work.fault_error)}"}
            propagate.inject(headers)
            try:
                async with asyncio.timeout(step.timeout_s):
                    queue = await self.clients.queue(store)
                    await queue.publish(step.publish, b"{}", headers=headers)
            except (TimeoutError, OSError, RuntimeError, nats.errors.Error) as error:
                span.set_status(Status(StatusCode.ERROR, type(error).__name__))
                raise CallFailedError(
                    f"publish {step.publish}: {type(error).__name__}", timeout=isinstance(error, TimeoutError)
                ) from error

    def _store_span(self, name: str, system: str, activity: str, work: Work) -> StoreSpan:
        """Return the client span *name* for a request to a store of type *system*, counted as *activity*."""
        return StoreSpan(self, name, system, activity, work)

    async def _run_log(self, step: Step, work: Work) -> None:
        """Emit the log record that *step* defines, for *work*, the request in progress."""
        self.instruments.log(step.level, f"{work.operation}: {step.log}")

    async def _spend_time(self, step: Step, _: Work) -> None:
        """Sleep for the step's wait_ms, or compute for its compute_ms; its tail varies the time at random."""
        factor = math.exp(random.gauss(0, step.tail)) if step.tail else 1.0
        if step.wait_ms is not None:
            await asyncio.sleep(step.wait_ms * factor / 1e3)
            return
        until = time.thread_time() + (step.compute_ms or 0.0) * factor / 1e3
        while time.thread_time() < until:
            sum(range(200))


class StoreSpan:
    """The client span of one command to a store; an error that leaves it is recorded and logged."""

    def __init__(self, executor: Executor, name: str, system: str, activity: str, work: Work) -> None:
        self._executor, self._activity, self._work, self._name = executor, activity, work, name
        self._scope = executor.instruments.span(name, SpanKind.CLIENT, {"db.system.name": system})

    async def __aenter__(self) -> Span:
        self._started = time.perf_counter_ns()
        self._span = self._scope.__enter__()
        return self._span

    async def __aexit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        took_ns = time.perf_counter_ns() - self._started
        self._executor.stats.add(self._activity, took_ns, ok=error is None)
        command = f"{self._activity} {self._name}"
        if "*" not in self._executor.watched:
            self._executor.usual.note(command, took_ns)
        elif excess_ns := self._executor.usual.excess(command, took_ns):
            store = self._activity.partition(":")[2]
            self._executor.ledger_wait(self._span, self._work, store, excess_ns, error=error is not None, certain=True)
        if error is not None:
            self._span.set_status(Status(StatusCode.ERROR, str(error)))
            words = str(error) or type(error).__name__
            self._executor.instruments.log("ERROR", f"{self._work.operation}: {words}")
        self._scope.__exit__(None, None, None)


def draw(argument: str) -> int | str:
    """Return a value for *argument*: ``int:N`` a random number 1..N, ``text:N`` N characters, else itself."""
    kind, _, size = argument.partition(":")
    if kind == "int":
        return random.randint(1, int(size))  # noqa: S311
    return "x" * int(size) if kind == "text" else argument
