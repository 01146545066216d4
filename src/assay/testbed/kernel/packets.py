"""The packet process: impairs the packets between one replica and its peers for as long as one fault lasts.

It works in the replica's network namespace through nftables and a netfilter queue. All of it is bound to this process:
when it is killed the path heals by itself.
"""

from __future__ import annotations

import asyncio
import os
import random
import threading
from typing import Any

from assay.testbed.runtime import management
from assay.testbed.runtime.ledger import LedgerWriter


async def main(config: dict[str, Any]) -> None:
    """Impair the ``streams`` of *config* until the supervisor hangs up; says hello once the rules are active."""
    from assay.testbed.kernel.detour import (
        Detour,
    )  # the netlink library takes 0.25 s, which a system without faults saves

    loop = asyncio.get_running_loop()
    active: asyncio.Future[None] = loop.create_future()
    ended, end = os.pipe()
    means = Detour(config, random.Random(config["seed"]), LedgerWriter(config["ledger"], config["id"]))  # noqa: S311

    def work() -> None:
        try:
            with means:
                loop.call_soon_threadsafe(active.set_result, None)
                means.run(ended)
        except BaseException as error:  # noqa: BLE001 - raised again by the coroutine, which the log explains
            loop.call_soon_threadsafe(_fail, active, error)

    worker = threading.Thread(target=work)
    worker.start()
    try:
        await active
        await management.serve(config["management"], {"id": config["id"]}, {"ping": means.ping})
    finally:
        os.close(end)
        await asyncio.to_thread(worker.join)


def _fail(active: asyncio.Future[None], error: BaseException) -> None:
    if active.done():
        raise error
    active.set_exception(error)
