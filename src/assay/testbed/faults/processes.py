"""Faults of a pod's process: killed once, or kept down."""

from __future__ import annotations

import os
import signal

from assay.errors import RefusedError
from assay.testbed.faults.injection import Injection, watch


class Kill:
    """SIGKILL to the replica's process; the supervisor starts the container again in the same pod."""

    def __init__(self, injection: Injection) -> None:
        self._injection = injection

    async def apply(self) -> None:
        """Kill the process."""
        replica = self._injection.replica
        if replica.pid is None:
            raise RefusedError(f"Replica {replica.id} has no process to kill now; wait until it is ready.")
        pid = replica.pid
        await watch(self._injection, on=True)
        self.before_the_kill()
        os.kill(pid, signal.SIGKILL)

    def before_the_kill(self) -> None:
        """Say what shall become of the replica."""

    async def undo(self) -> None:
        """Stop the callers' account: the supervisor restarts what died."""
        await watch(self._injection, on=False)


class KillPod(Kill):
    """The killed process is succeeded by another pod."""

    def before_the_kill(self) -> None:
        """Name the successor; it is known by that name once it is there."""
        replica = self._injection.replica
        replica.successor = self._injection.supervisor.fleet.pod_name(replica.service)


class KeepDown(Kill):
    """The killed process is not started again before the fault ends."""

    def before_the_kill(self) -> None:
        """Hold restarts back."""
        self._injection.replica.held = True

    async def undo(self) -> None:
        """Let the supervisor start the replica."""
        self._injection.replica.held = False
        await super().undo()
