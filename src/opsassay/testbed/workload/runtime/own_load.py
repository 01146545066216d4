"""The load of a system as the user's own command sends it: started, watched, ended; its requests are not counted here."""

from __future__ import annotations

import asyncio
import os
from typing import Any, NoReturn

from opsassay.core.logs import Log
from opsassay.core.schema.system import Load
from opsassay.testbed.workload.runtime import management
from opsassay.testbed.workload.runtime.confined import ConfinedProgram
from opsassay.testbed.workload.runtime.load import NAME

_log = Log(__name__)
STARTED_AFTER_S = 1.0
"""A command that runs for so long has been started: one that cannot be ends before."""
KILLED = 128
"""A command that a signal ended has this status and the signal's number, as shells say it."""


class OwnLoad(ConfinedProgram):
    """Runs the command of a load."""

    async def end(self, status: int) -> NoReturn:
        """Exit this process with *status* once the command's output has been read to its end."""
        await self.settle(status)
        os._exit(status if status >= 0 else KILLED - status)

    async def settle(self, status: int) -> None:
        """Read the ended command's output to its end, and log its exit *status*."""
        await asyncio.gather(*self._reading)
        _log.info("the load ended", status=status)

    async def watch(self) -> None:
        """Exit this process when the command ends without having been stopped."""
        status = await self.wait_end()
        if not self.stopping:
            await self.end(status)

    async def ping(self, _: dict[str, Any]) -> dict[str, Any]:
        """Return {stats: {}}: the process runs, and the command's requests are not counted."""
        return {"stats": {}}

    async def flush(self, _: dict[str, Any]) -> None:
        """Do nothing: this process has no telemetry."""

    async def stop_load(self, _: dict[str, Any]) -> int:
        """Stop the command gracefully, and return its exit status."""
        self.stop()
        status = await self.wait_end()
        await self.settle(status)
        return status


async def main(config: dict[str, Any]) -> None:
    """Run the load command in *config* until it ends or the supervisor closes the management channel."""
    load = OwnLoad(config, Load.model_validate(config["load"]))
    _log.info("the load starts", command=list(load.command.command))
    await load.start()
    ended = asyncio.create_task(load.wait_end())
    if (await asyncio.wait([ended], timeout=STARTED_AFTER_S))[0]:
        await load.end(ended.result())
    handlers = {"ping": load.ping, "flush": load.flush, "stop": load.stop_load}
    await management.serve(config["management"], {"id": NAME}, handlers, [asyncio.create_task(load.watch())])
