"""What the cost of a system on this machine is made of: requests and autoscalers are agreed on, replicas are real."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from opsassay.core.schema.cost import AutoscalerSettings, ResourceRequest
from opsassay.testbed.operations.costs import Allocation
from opsassay.testbed.operations.tools import OperatedSystem


@dataclass
class LocalCost:
    """The `CostedSystem` of the *running* system; nothing on this machine schedules by what its replicas *asked* for."""

    running: OperatedSystem
    asked: dict[str, ResourceRequest]
    scalers: dict[str, AutoscalerSettings] = field(default_factory=dict)
    scales_itself: bool = field(default=False, init=False)

    def allocations(self) -> Mapping[str, Allocation]:
        """Return {service: requested resources of all its replicas}."""
        rows = self.running.operate("ps", {})["replicas"]
        counts = {name: sum(row["service"] == name for row in rows) for name in self.asked}
        return {name: Allocation.for_replicas(count, self.asked[name]) for name, count in counts.items()}

    def requests(self) -> Mapping[str, ResourceRequest]:
        """Return {service: CPU and memory that each replica requests}."""
        return dict(self.asked)

    def set_requests(self, service: str, request: ResourceRequest) -> None:
        """Set what each replica of *service* requests, for the cost only: limits of processes do not change."""
        self.asked[service] = request

    def autoscalers(self) -> Mapping[str, AutoscalerSettings]:
        """Return {service: settings of its autoscaler}."""
        return dict(self.scalers)

    def set_autoscaler(self, settings: AutoscalerSettings) -> None:
        """Create or replace the autoscaler of the service that *settings* name."""
        self.scalers[settings.service] = settings

    def delete_autoscaler(self, service: str) -> None:
        """Delete the autoscaler of *service*."""
        self.scalers.pop(service, None)

    def scale(self, service: str, replicas: int) -> None:
        """Set the number of *replicas* of *service*."""
        self.running.operate("scale", {"service": service, "replicas": replicas})
