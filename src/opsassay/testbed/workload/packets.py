"""The packet process: it impairs the packets between one replica and its peers as long as one fault lasts.

Rules and queues end with this process; `heal` removes the queueing disciplines, which do not.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable
from types import TracebackType
from typing import Any, Protocol, Self

from opsassay.core.logs import Log
from opsassay.testbed.workload.runtime import management


class Means(Protocol):
    """A way to impair packets, active while entered; one thread enters, runs and leaves it."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def run(self, end_descriptor: int) -> None:
        """Impair packets until *end_descriptor* becomes readable or its other end closes; blocks."""

    def counts(self) -> dict[str, int]:
        """Return {counter name: number of packets} so far."""


_log = Log(__name__)


async def main(config: dict[str, Any]) -> None:
    """Impair ``streams`` of *config* until the supervisor closes the management channel, which opens once they are."""
    loop = asyncio.get_running_loop()
    active: asyncio.Future[None] = loop.create_future()
    ended, end = os.pipe()
    means = choose(config)
    worker = asyncio.create_task(
        asyncio.to_thread(work, means, ended, lambda: loop.call_soon_threadsafe(active.set_result, None))
    )

    async def ping(_: dict[str, Any]) -> dict[str, Any]:
        return dict(means.counts())

    async def serve() -> None:
        await active
        _log.info("packets are impaired")
        await management.serve(config["management"], {"id": config["id"]}, {"ping": ping})

    serving = asyncio.create_task(serve())
    try:
        await asyncio.wait({worker, serving}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        os.close(end)
        serving.cancel()
        await worker
    with contextlib.suppress(asyncio.CancelledError):
        await serving


def work(means: Means, end_descriptor: int, announce: Callable[[], Any]) -> None:
    """Impair packets by *means*, call *announce* once it acts, and undo it when *end_descriptor* is closed; blocks."""
    with means:
        announce()
        means.run(end_descriptor)


def choose(config: dict[str, Any]) -> Means:
    """Return what impairs packets as *config* says: firewall rules, netem or tbf in the kernel, or a queue."""
    if config["impairment"]["kind"] == "partition":
        from opsassay.testbed.kernel.partition import Partition

        return Partition(config)
    if config["impairment"]["kind"] == "isolation":
        from opsassay.testbed.kernel.partition import Isolation

        return Isolation(config)
    if config["means"] == "kernel":
        from opsassay.testbed.kernel.shaping import Shaping

        return Shaping(config)
    from opsassay.testbed.workload.detour import Detour

    return Detour(config)
