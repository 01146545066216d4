"""What goes wrong inside a process and stays wrong until it is started again: a consumer that hangs, a pool that leaks."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

from opsassay.testbed.workload.runtime.clients import Clients

ACQUIRE_TIMEOUT_S = 5.0


class RuntimeFaults:
    """The mishaps of one process with these *clients*; *running* is cleared while its consumers hang."""

    def __init__(self, clients: Clients) -> None:
        self._clients = clients
        self._leaked: list[Any] = []
        self.running = asyncio.Event()
        self.running.set()

    async def happen(self, request: dict[str, Any]) -> dict[str, Any]:
        """Start the fault ``kind``, until a restart: stall (consumers hang) or leak (connections are not returned)."""
        if request["kind"] == "stall":
            self.running.clear()
            return {"stalled": True}
        return {"leaked": await self._leak(request["store"], request["connections"])}

    async def _leak(self, store: str, connections: int) -> int:
        """Take *connections* out of the pool to *store* and never return them; return how many are leaked in total."""
        pool = await self._clients.database(store)
        for _ in range(connections):
            with contextlib.suppress(TimeoutError):
                self._leaked.append(await pool.acquire(timeout=ACQUIRE_TIMEOUT_S))
        return len(self._leaked)
