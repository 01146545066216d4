"""The probes of a local system: its supervisor, receiver and stores are asked, requests go out from its own network."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import aiohttp
from pydantic import BaseModel

from opsassay.core.errors import OpsAssayError
from opsassay.core.schema.trajectory import Entity
from opsassay.testbed.core.probes import PROBE_TIMEOUT_S, REACHABLE_WITHIN_S, DepthReading, ProbeAnswer, SystemReading
from opsassay.testbed.kernel.namespaces import join

if TYPE_CHECKING:
    from opsassay.testbed.substrates.local.substrate import LocalSystem

PROBE_TIMEOUT = aiohttp.ClientTimeout(PROBE_TIMEOUT_S, sock_connect=REACHABLE_WITHIN_S)
"""A connection that is not accepted is no slow answer: it is none."""
PART_TIMEOUT_S = 2.0
SUPERVISOR = "supervisor"


class SupervisorAnswer(BaseModel):
    """What the supervisor answers to ``observe``, as far as it is recorded."""

    entities: tuple[tuple[str, str, bool, str | None, str | None, str], ...]
    load: dict[str, tuple[int, int, int]]
    stores: dict[str, tuple[str, int]]


class LocalProbes:
    """The probes of *running*, with requests to the *protected* services; entering them enters the system's network."""

    def __init__(self, running: LocalSystem, protected: Sequence[str] = ()) -> None:
        self._running = running
        status = running.status()
        self.protected: Sequence[str] = protected or sorted(status.endpoints)
        self._paths, self._place = status.probe_paths, status.probe
        self._stores = dict[str, tuple[str, int]]()

    async def __aenter__(self) -> Self:
        """Enter the system's network, where it has one of its own: no thread may run in this process by then."""
        if self._place is not None:
            join(self._place["pid"], self._place["namespace"])
        self._session = aiohttp.ClientSession(timeout=PROBE_TIMEOUT)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the connections."""
        await self._session.close()

    async def read(self) -> SystemReading:
        """Return the ready shares of replicas (D1), backends (D2), and supervisor, receiver and stores (D4)."""
        try:
            payload = await asyncio.to_thread(self._running.command, "observe")
        except OpsAssayError:
            lost = DepthReading(None, (SUPERVISOR,))
            return SystemReading(lost, lost, await self._control_plane(None))
        answer = SupervisorAnswer.model_validate(payload)
        entities = [
            Entity(id=i, service=s, ready=r, host=h, version=v, incarnation=n) for i, s, r, h, v, n in answer.entities
        ]
        return SystemReading(
            DepthReading(_ready_share(entities), tuple(sorted(one.id for one in entities if not one.ready))),
            self._backends(entities),
            await self._control_plane(answer),
            entities,
            answer.load,
        )

    async def request(self, service: str) -> ProbeAnswer:
        """Send one request to the first ready replica of *service*; return status (None: none answered), latency."""
        try:
            urls = (await asyncio.to_thread(self._running.status)).backends.get(service, [])
        except OpsAssayError:
            urls = []
        return await self._get_url(urls[0] + self._paths[service]) if urls else ProbeAnswer(None, 0.0)

    async def _get_url(self, url: str) -> ProbeAnswer:
        """Send one GET to *url*; return status (None without an answer) and latency."""
        started, status = time.monotonic(), None
        with contextlib.suppress(aiohttp.ClientError, TimeoutError):
            async with self._session.get(url) as response:
                await response.read()
                status = response.status
        return ProbeAnswer(status, time.monotonic() - started)

    def _backends(self, entities: Sequence[Entity]) -> DepthReading:
        """Return (D2: least ready share of a protected service, those with no ready replica), from *entities*."""
        shares = {name: _ready_share([one for one in entities if one.service == name]) for name in self.protected}
        return DepthReading(
            min(shares.values(), default=1.0), tuple(name for name, share in shares.items() if not share)
        )

    async def _control_plane(self, answer: SupervisorAnswer | None) -> DepthReading:
        """Return (D4: share of supervisor, receiver and all stores ever seen that answer, the others)."""
        self._stores |= answer.stores if answer else {}
        parts: dict[str, Callable[[], Awaitable[Any]]] = {
            "receiver": partial(asyncio.to_thread, self._running.receiver.stats)
        }
        for name, (address, port) in self._stores.items():
            parts[name] = partial(_connect_once, address, port)
        healthy = await asyncio.gather(*(_answers(part) for part in parts.values()))
        failing = [name for name, well in zip(parts, healthy, strict=True) if not well]
        failing += [SUPERVISOR] if answer is None else []
        return DepthReading(1 - len(failing) / (len(parts) + 1), tuple(sorted(failing)))


def _ready_share(entities: Sequence[Entity]) -> float:
    """Return the share of *entities* that are ready, 0 without any, as after scaling to zero."""
    return sum(one.ready for one in entities) / len(entities) if entities else 0.0


async def _answers(request: Callable[[], Awaitable[Any]]) -> bool:
    """Return whether *request* ends without an error within PART_TIMEOUT_S."""
    try:
        await asyncio.wait_for(request(), PART_TIMEOUT_S)
    except (OpsAssayError, OSError, TimeoutError):
        return False
    return True


async def _connect_once(address: str, port: int) -> None:
    """Open a TCP connection and close it; raises OSError when nothing listens."""
    _, writer = await asyncio.open_connection(address, port)
    writer.close()
