"""Faults of pods' processes: killed once, or kept down; on a host, all of its pods."""

from __future__ import annotations

import contextlib
import os
import signal

from opsassay.core.errors import RefusedError
from opsassay.testbed.core.fleet import Replica
from opsassay.testbed.core.injection import Injection
from opsassay.testbed.injection.under_test import Account
from opsassay.testbed.substrates.local.actuators.under_test import LocalUnderTest


class Kill:
    """SIGKILL to the replicas' processes; the supervisor starts the containers again in the same pods."""

    def __init__(self, injection: Injection[LocalUnderTest]) -> None:
        self._injection = injection
        self._account = Account(injection)

    async def apply(self) -> None:
        """Kill the processes of all targets at once; raises RefusedError when one does not run."""
        gone = [replica.id for replica in self._injection.replicas if replica.pid is None]
        if gone:
            raise RefusedError(f"Replica {gone[0]} has no process to kill now; wait until it is ready.")
        await self._account.open()
        for replica in self._injection.replicas:
            self.before_the_kill(replica)
        for replica in self._injection.replicas:
            await self._injection.system.end_process(replica)

    def before_the_kill(self, replica: Replica) -> None:
        """Prepare what happens after the kill of *replica*; called for all targets first; does nothing here."""

    async def undo(self) -> None:
        """Stop recording what the fault costs callers; the supervisor restarts killed processes itself."""
        await self._account.close()


class KillPod(Kill):
    """The killed process is succeeded by another pod."""

    def before_the_kill(self, replica: Replica) -> None:
        """Make the successor of *replica* a pod with a new name."""
        replica.successor = self._injection.system.fleet.pod_name(replica.service)


class KeepDown(Kill):
    """The killed processes are not started again before the fault ends."""

    def before_the_kill(self, replica: Replica) -> None:
        """Prevent the supervisor from restarting *replica*."""
        replica.held = True

    async def undo(self) -> None:
        """Allow the supervisor to restart the replicas."""
        for replica in self._injection.replicas:
            replica.held = False
        await super().undo()


def kill(injection: Injection[LocalUnderTest], pid: int) -> None:
    """Kill *pid*, if it still runs, and record that this end is expected."""
    injection.system.unexpected_exits.expect(pid)
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
