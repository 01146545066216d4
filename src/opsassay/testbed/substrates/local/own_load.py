"""The supervisor's side of a load that is the user's own command: started with the system, ended with it, its log kept."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING

from opsassay.core.errors import StartError
from opsassay.core.logs import Log
from opsassay.testbed.core.fleet import LOAD_GENERATOR, sleep_until
from opsassay.testbed.workload.runtime.confined import TERM_GRACE_S

if TYPE_CHECKING:
    from opsassay.testbed.substrates.local.supervisor import Supervisor

_log = Log(__name__)
START_TIMEOUT_S = 30.0
LOG_BYTES = 2**20
"""The end of a log is kept, so much of it."""


class OwnLoadProcess:
    """The process that runs the load's command for *system*."""

    def __init__(self, system: Supervisor) -> None:
        self._system = system
        self._kept: list[Path] = []

    async def start(self) -> None:
        """Start the user's load command; raises the system's failure if it ends at once, StartError if it is late."""
        system = self._system
        await system.template.spawn("own_load", LOAD_GENERATOR, system.orders.own_load())
        await sleep_until(
            lambda: system.failure or LOAD_GENERATOR in system.channels.names(), START_TIMEOUT_S, every_s=0.02
        )
        if system.failure:
            raise system.failure
        if LOAD_GENERATOR not in system.channels.names():
            raise StartError(f"The load {system.system.load.command_line} was not started in {START_TIMEOUT_S:g} s.")

    def how_it_ended(self, status: int) -> str:
        """Return words on the unexpected end of the load command with exit *status*, for an error message."""
        words = (
            f"The load {self._system.system.load.command_line} ended with status {status} while the system was in use"
        )
        return f"{words}; have it go on until it is stopped" if status == 0 else words

    async def end(self) -> None:
        """Stop the load command, and copy the end of its log to each path of `keep_log`."""
        with contextlib.suppress(ConnectionError, TimeoutError, RuntimeError):  # it has ended already
            await self._system.channels.request(LOAD_GENERATOR, "stop", timeout_s=2 * TERM_GRACE_S)
        for path in self._kept:
            with contextlib.suppress(OSError):  # its folder may have been removed
                self._copy(path)

    def keep_log(self, path: Path) -> None:
        """Copy the last LOG_BYTES of the load command's log to *path*; the copy is replaced once the command has ended."""
        self._copy(path)
        self._kept.append(path)

    def _copy(self, path: Path) -> None:
        """Copy the last LOG_BYTES of the load command's log to *path*."""
        path.write_bytes(self._system.state.log(LOAD_GENERATOR).read_bytes()[-LOG_BYTES:])
