"""What a substrate brings so that its systems can be observed: probes of the four depths of "side-effects" (section 3)."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Protocol, Self

from opsassay.core.schema.trajectory import ControlPlaneReading, Entity, LoadCounts

REACHABLE_WITHIN_S = 3.0
"""An answer 200 that takes longer than this is no sign that users are served."""
PROBE_TIMEOUT_S = 10.0
"""A slow answer is waited for, so that its latency is known."""


@dataclass(frozen=True)
class DepthReading:
    """What was read at one depth: a share in [0, 1], or None when it could not be read, and what fails or is missing."""

    value: float | None
    failing: tuple[str, ...] = ()
    ended_ns: int = field(default_factory=time.time_ns)


@dataclass(frozen=True)
class SystemReading:
    """What one tick reads of a system at D1, D2 and D4.

    *entities* and *load*, as in `Tick`, are whole and not what has changed; None when nobody could say. *details* is what a
    cluster's control plane says of itself.
    """

    ready_replicas: DepthReading
    ready_backends: DepthReading
    control_plane: DepthReading
    entities: Sequence[Entity] | None = None
    load: Mapping[str, LoadCounts] | None = None
    details: ControlPlaneReading | None = None


@dataclass(frozen=True)
class ProbeAnswer:
    """What became of one request (D3); *status* is None without an answer."""

    status: int | None
    latency_s: float


class SystemProbes(Protocol):
    """The probes of one system, used between entering and leaving."""

    @property
    def protected(self) -> Sequence[str]:
        """The services that `request` is called for."""
        ...

    async def __aenter__(self) -> Self:
        """Connect to the system; raises OpsAssayError."""
        ...

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Let go of it."""
        ...

    async def read(self) -> SystemReading:
        """Return the ready shares of replicas (D1), backends (D2) and control plane (D4); a failure does not raise."""
        ...

    async def request(self, service: str) -> ProbeAnswer:
        """Send one HTTP request (D3) to *service*; return status (None without an answer) and latency."""
        ...
