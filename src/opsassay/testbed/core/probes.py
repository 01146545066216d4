"""The probes by which a substrate's systems are observed, at the four depths of "side-effects" (section 3)."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Protocol, Self

from opsassay.core.schema.trajectory import ControlPlaneReading, Entity, LoadCounts

REACHABLE_WITHIN_S = 3.0
"""Seconds within which an HTTP answer 200 counts as reachable."""
PROBE_TIMEOUT_S = 10.0
"""Seconds that a slow answer is waited for, so that its latency is known."""


@dataclass(frozen=True)
class DepthReading:
    """A reading at one depth: a share in [0, 1], None if unreadable, and the names that fail or are missing."""

    value: float | None
    failing: tuple[str, ...] = ()
    ended_ns: int = field(default_factory=time.time_ns)


@dataclass(frozen=True)
class SystemReading:
    """One reading of a system at the depths D1, D2 and D4.

    *entities* and *load* are complete, unlike in `Tick`, None when unknown. *details* is what a cluster's control plane
    reports of itself.
    """

    ready_replicas: DepthReading
    ready_backends: DepthReading
    control_plane: DepthReading
    entities: Sequence[Entity] | None = None
    load: Mapping[str, LoadCounts] | None = None
    details: ControlPlaneReading | None = None


@dataclass(frozen=True)
class ProbeAnswer:
    """The result of one request (D3); *status* is the HTTP status, None without an answer."""

    status: int | None
    latency_s: float


class SystemProbes(Protocol):
    """The probes of one system, used between entering and leaving."""

    @property
    def protected(self) -> Sequence[str]:
        """The protected services, to which `request` sends probes."""
        ...

    async def __aenter__(self) -> Self:
        """Connect to the system; raises OpsAssayError."""
        ...

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Disconnect from the system."""
        ...

    async def read(self) -> SystemReading:
        """Return the ready shares of replicas (D1), backends (D2) and control plane (D4); a failure does not raise."""
        ...

    async def request(self, service: str) -> ProbeAnswer:
        """Send one HTTP request (D3) to *service*; return status (None without an answer) and latency."""
        ...
