"""How a service reaches others: HTTP with time-outs, retries, pools and breakers; SQL; cache; queue."""

from __future__ import annotations

import asyncio
import errno
import itertools
import json
import os
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import aiohttp
import asyncpg
import dns.asyncbackend
import dns.asyncquery
import dns.exception
import dns.message
import dns.rcode
import dns.rdatatype
import dns.rdtypes.IN.SRV
import nats
import valkey.asyncio

from opsassay.testbed.workload.runtime.settings import Settings

NAMES_TTL_S = 1.0
NAMES_TIMEOUT_S = 2.0
_DNS_BACKEND = dns.asyncbackend.get_backend("asyncio")

CLOSING = {"Connection": "close"}
LASTING = {"Connection": "keep-alive"}
"""Of two ends the one that closes first keeps the connection's ports for a minute (TIME_WAIT): with this, the caller."""

Endpoint = tuple[str, int]
"""Address and TCP port."""


class CallFailedError(Exception):
    """A call to another service or store failed.

    *timeout* tells a time-out from an error, *status* is HTTP's if there was an answer, *wrong* says that the answer was
    not the service's own to this request.
    """

    def __init__(self, message: str, *, status: int | None = None, timeout: bool = False, wrong: bool = False) -> None:
        self.status, self.timeout, self.wrong = status, timeout, wrong
        super().__init__(message)


def expected_answer(service: str, operation: str) -> dict[str, Any]:
    """Return the JSON object that a successful response of *operation* of *service* consists of."""
    return {"ok": True, "service": service, "operation": operation}


def check_status(response: aiohttp.ClientResponse, service: str, method: str, route: str) -> None:
    """Raise CallFailedError when *response* of *service* to *method* *route* has an error status."""
    if response.status >= 400:
        message = f"{method} {service}{route} answered {response.status}"
        raise CallFailedError(message, status=response.status, wrong=response.status < 500)


def check_answer(response: aiohttp.ClientResponse, body: bytes, service: str, method: str, route: str) -> None:
    """Raise CallFailedError unless *response* with *body* is a success and has the expected JSON."""
    operation = f"{method} {route}"
    check_status(response, service, method, route)
    try:
        answer = json.loads(body)
    except ValueError as error:
        message = f"{method} {service}{route}: response is not JSON ({len(body)} bytes)"
        raise CallFailedError(message, status=response.status, wrong=True) from error
    if answer != expected_answer(service, operation):
        message = f"{method} {service}{route}: unexpected response {json.dumps(answer)[:80]}"
        raise CallFailedError(message, status=response.status, wrong=True)


class Names:
    """Looks up the ready backends of a service at the system's name server: DNS SRV records, cached for a second."""

    def __init__(self, server: Sequence[Any], caller: str) -> None:
        self._server, self._caller = server, caller
        self._cache: dict[str, tuple[float, list[Endpoint]]] = {}
        self._turn: dict[str, itertools.count[int]] = {}

    async def pick(self, service: str) -> Endpoint:
        """Return the (address, port) of the next ready replica of *service*, in turn; raises CallFailedError."""
        expires, endpoints = self._cache.get(service, (0.0, []))
        if time.monotonic() >= expires:
            endpoints = await self.resolve(service)
            self._cache[service] = (time.monotonic() + NAMES_TTL_S, endpoints)
        if not endpoints:
            raise CallFailedError(f"no endpoints available for service {service}")
        return endpoints[next(self._turn.setdefault(service, itertools.count())) % len(endpoints)]

    def forget(self, service: str) -> None:
        """Remove *service* from the cache of DNS answers."""
        self._cache.pop(service, None)

    async def resolve(self, service: str) -> list[Endpoint]:
        """Return the sorted (address, port) pairs of *service* by DNS; raises CallFailedError."""
        query = dns.message.make_query(f"{service}.{self._caller}.svc.local.", dns.rdatatype.SRV)
        address, port = self._server
        try:
            answer = await dns.asyncquery.udp(query, address, timeout=NAMES_TIMEOUT_S, port=port, backend=_DNS_BACKEND)
        except (OSError, dns.exception.Timeout) as error:
            raise CallFailedError(f"name resolution of {service} failed: {type(error).__name__}") from error
        if answer.rcode() != dns.rcode.NOERROR:
            raise CallFailedError(f"name resolution of {service} failed: {dns.rcode.to_text(answer.rcode())}")
        addresses = {rrset.name: record.address for rrset in answer.additional for record in rrset}
        return sorted((addresses[record.target], record.port) for rrset in answer.answer for record in rrset)


class Breaker:
    """A circuit breaker: opens after a number of failures in a row, refuses for a while, then lets one try pass."""

    def __init__(self) -> None:
        self.failures, self.open_until = 0, 0.0

    def check(self, callee: str) -> None:
        """Raise CallFailedError while the circuit breaker for *callee* is open."""
        if time.monotonic() < self.open_until:
            raise CallFailedError(f"circuit to {callee} is open")

    def record(self, *, ok: bool, limit: int | None, open_s: float) -> None:
        """Record a success (*ok*) or failure; *limit* failures in a row open the breaker for *open_s* seconds."""
        self.failures = 0 if ok else self.failures + 1
        if limit is not None and self.failures >= limit:
            self.open_until, self.failures = time.monotonic() + open_s, 0


class Clients:
    """Everything that one replica calls; connections are made on first use and again after a failure."""

    def __init__(
        self, names: Names, pool: int, stores: dict[str, dict[str, Any]], settings: Settings | None = None
    ) -> None:
        self.settings = settings or Settings()
        self.names, self._pool_size, self._stores = names, self.settings.pool(pool), stores
        self._http: aiohttp.ClientSession | None = None
        self._databases: dict[str, asyncpg.Pool] = {}
        self._caches: dict[str, valkey.asyncio.Valkey] = {}
        self._queues: dict[str, Any] = {}
        self._locks: dict[str, asyncio.Lock] = {}
        self.breakers: dict[str, Breaker] = {}
        self.lasting = True
        """Whether a connection outlasts the request that it was made for."""

    async def request(
        self, service: str, method: str, route: str, headers: dict[str, str], timeout_s: float, body: str | None = None
    ) -> tuple[aiohttp.ClientResponse, bytes]:
        """Send a request to *service*, *body* as JSON; return (response, its body); raises CallFailedError."""
        if self._http is None:
            alone = not self.settings.keep_alive()
            connector = aiohttp.TCPConnector(limit_per_host=self._pool_size, limit=0, force_close=alone)
            self._http = aiohttp.ClientSession(connector=connector)
        if not self.settings.keep_alive():
            headers = {**headers, **LASTING}
        headers = headers if self.lasting else {**headers, **CLOSING}
        if body is not None:
            headers = {**headers, "Content-Type": "application/json"}
        try:
            async with asyncio.timeout(timeout_s):
                address, port = await self._upstream(service)
                url = f"http://{address}:{port}{route}"
                async with self._http.request(method, url, headers=headers, data=body) as response:
                    return response, await response.read()
        except TimeoutError as error:
            raise CallFailedError(
                f"{method} {service}{route}: timed out after {timeout_s:g} s", timeout=True
            ) from error
        except aiohttp.ClientError as error:
            no_port = getattr(error, "errno", None) == errno.EADDRNOTAVAIL
            why = os.strerror(errno.EADDRNOTAVAIL).lower() if no_port else "connection failed"
            raise CallFailedError(f"{method} {service}{route}: {type(error).__name__}: {why}") from error

    async def _upstream(self, service: str) -> Endpoint:
        """Return the (address, port) for calls to *service*, by name server and settings; raises CallFailedError."""
        name, desired = self.settings.upstream(service)
        address, port = await self.names.pick(name)
        if desired is None:
            return address, port
        if self.settings.relayed:  # ports of loopback are the machine's: none but the relay's own is ever tried
            raise CallFailedError(f"connection to {name}:{desired} refused")
        return address, desired

    async def _store(
        self, connections: dict[str, Any], name: str, connect: Callable[[dict[str, Any]], Awaitable[Any]]
    ) -> Any:
        """Return the client of the store *name* from *connections*; *connect* makes it of the settings, only once."""
        async with self._locks.setdefault(name, asyncio.Lock()):
            if name not in connections:
                connections[name] = await connect(self._stores[name])
            return connections[name]

    async def database(self, name: str) -> asyncpg.Pool:
        """Return the pool of connections to the PostgreSQL store *name*."""
        password = self.settings.password(name)
        who = {"user": "opsassay"} if password is None else {"user": "app", "password": password}

        async def connect(store: dict[str, Any]) -> asyncpg.Pool:
            return await asyncpg.create_pool(
                **who, host=store["address"], port=store["port"], database="postgres", ssl=False,
                min_size=1, max_size=self._pool_size, timeout=5, command_timeout=10,
            )  # fmt: skip

        return await self._store(self._databases, name, connect)

    async def cache(self, name: str) -> valkey.asyncio.Valkey:
        """Return the client of the Valkey store *name*."""

        async def connect(store: dict[str, Any]) -> valkey.asyncio.Valkey:
            return valkey.asyncio.Valkey(
                host=store["address"], port=store["port"], max_connections=64, socket_connect_timeout=5
            )

        return await self._store(self._caches, name, connect)  # type: ignore[no-any-return]

    async def queue(self, name: str) -> Any:
        """Return the NATS connection of the store *name*."""

        async def connect(store: dict[str, Any]) -> Any:
            return await nats.connect(
                f"nats://{store['address']}:{store['port']}", max_reconnect_attempts=-1, reconnect_time_wait=0.5
            )

        return await self._store(self._queues, name, connect)

    async def renew(self) -> None:
        """Close idle connections to databases and caches; new ones are made at the next use."""
        for pool in self._databases.values():
            await pool.expire_connections()
        for client in self._caches.values():
            await client.connection_pool.disconnect(inuse_connections=False)

    async def warm(self, engines: dict[str, str]) -> None:
        """Connect to every store of *engines* ({name: engine}), so that this process is ready only if they are."""
        connectors: dict[str, Callable[[str], Awaitable[Any]]] = {
            "postgresql": self.database, "valkey": self.cache, "nats": self.queue,
        }  # fmt: skip
        await asyncio.gather(*(connectors[engine](name) for name, engine in engines.items()))
