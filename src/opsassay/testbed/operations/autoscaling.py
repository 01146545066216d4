"""An autoscaler over a running system: replicas follow CPU usage as a share of the request.

The formula is that of the Kubernetes Horizontal Pod Autoscaler: desired = ceil(replicas * usage / target), nothing within a
tenth of the target, and downwards only what all readings of the last seconds agree on.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress

from opsassay.core.errors import OpsAssayError
from opsassay.core.schema.background import Background
from opsassay.core.schema.cost import AutoscalerSettings
from opsassay.testbed.operations.costs import CostedSystem

TOLERANCE = 0.1
EVERY_S, STABLE_S = 3.0, 9.0
"""How often it decides, and for how long a smaller number must have been right."""


def desired_replicas(current: int, utilization: float, settings: AutoscalerSettings) -> int:
    """Return how many replicas *settings* ask for while *current* ones use *utilization* of what they request.

    A service that was scaled to nothing stays there: there is no usage to follow.
    """
    if current == 0:
        return 0
    ratio = utilization / settings.target_utilization
    count = current if abs(ratio - 1) <= TOLERANCE else math.ceil(current * ratio)
    return min(max(count, settings.min_replicas), settings.max_replicas)


class Autoscaler(Background):
    """A thread that scales each service for which *system* has an autoscaler while the block runs.

    *reading* gives a service's replicas and utilization (None: unknown).
    """

    def __init__(self, system: CostedSystem, reading: Callable[[str], tuple[int, float] | None]) -> None:
        super().__init__("autoscaler")
        self._system, self._reading = system, reading
        self._proposed: dict[str, deque[tuple[float, int]]] = {}

    def work(self) -> None:
        """Decide for every service, every `EVERY_S` seconds."""
        while self.pause(EVERY_S):
            with suppress(OpsAssayError):  # what cannot be asked or scaled now is tried again
                for service, settings in self._system.autoscalers().items():
                    self.decide(service, settings, time.monotonic())

    def decide(self, service: str, settings: AutoscalerSettings, now_s: float) -> None:
        """Scale *service* if its readings ask for it at the monotonic time *now_s*."""
        if (seen := self._reading(service)) is None:
            return
        current, utilization = seen
        proposed = self._proposed.setdefault(service, deque())
        proposed.append((now_s, desired_replicas(current, utilization, settings)))
        while proposed and proposed[0][0] < now_s - STABLE_S:
            proposed.popleft()
        count = max(number for _, number in proposed)
        if count != current and (count > current or now_s - proposed[0][0] >= STABLE_S - EVERY_S):
            self._system.scale(service, count)
