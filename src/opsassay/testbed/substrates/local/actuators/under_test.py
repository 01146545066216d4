"""What the actuators of local systems use of the supervisor."""

from __future__ import annotations

from collections.abc import Coroutine, Sequence
from typing import Any, Protocol

from opsassay.testbed.core.fleet import Replica
from opsassay.testbed.core.networks import Network
from opsassay.testbed.injection.under_test import SystemUnderTest
from opsassay.testbed.workload.containers import Containers
from opsassay.testbed.workload.names import NameServer
from opsassay.testbed.workload.processes import Channels, Template
from opsassay.testbed.workload.runtime.ledger import LedgerWriter


class HangsUp(Protocol):
    """Knows where names lead."""

    async def hang_up(self, replica: Replica, names: Sequence[str]) -> list[str]:
        """Close the connections of *replica* to *names*; return notes on what could not be done."""


class LocalUnderTest(SystemUnderTest, Protocol):
    """A local system as actuators see it: its processes, its network, its name server."""

    channels: Channels
    template: Template
    names: NameServer
    network: Network
    containers: Containers
    ledger: LedgerWriter
    companions: dict[str, set[int]]
    """Processes that count to a container or host, by replica id or host name."""

    @property
    def directory(self) -> HangsUp:
        """The system's DNS directory, which can close connections."""

    def spawn(self, coroutine: Coroutine[Any, Any, Any]) -> None:
        """Run *coroutine* as a task; its failure ends the system."""

    async def replace(self, replica: Replica, timeout_s: float) -> int | None:
        """Start a new process of *replica* next to the old; return the old pid once it is ready, None if it is late."""

    async def end_process(self, replica: Replica) -> None:
        """Kill the process of *replica*, which may be gone already."""
