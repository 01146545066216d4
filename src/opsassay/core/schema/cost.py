"""What a running system costs: prices, requests, budgets, alerts, autoscalers, and one reading of it all."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from opsassay.core.schema.base import Noun, Written

CostCause = Literal[
    "legitimate_growth", "autoscaler_threshold", "over_requested_memory", "over_requested_cpu", "idle_deployment",
    "price_change", "nothing_wrong",
]  # fmt: skip
"""What an operator may say is the cause of a cost alert."""


class PriceBook(Written):
    """Prices in USD of what a replica takes: the larger of what it requests and what it uses, as OpenCost has it.

    *core_hour_usd* is of one core for an hour, *gb_hour_usd* of one GiB of memory for an hour.
    """

    core_hour_usd: float = Field(gt=0)
    gb_hour_usd: float = Field(gt=0)


class ResourceRequest(Written):
    """What one replica of a service requests, and may use at most, per replica."""

    cpu: float = Field(gt=0, description="cores")
    memory_mb: int = Field(gt=0, description="MiB")


class AutoscalerSettings(Written):
    """An autoscaler of one service: replicas follow CPU usage as a share of the request (Kubernetes HPA's formula)."""

    service: str
    min_replicas: int = Field(default=1, ge=0)
    max_replicas: int = Field(default=6, ge=1)
    target_utilization: float = Field(gt=0, description="usage / request that it aims at")


class CostBudget(Written):
    """What may be spent, USD per hour; it may be raised by its flexible part, and by no more."""

    hourly_usd: float = Field(ge=0)
    flexible_usd: float = Field(ge=0)

    @property
    def most_usd(self) -> float:
        """The most that may be spent, USD per hour: budget plus its flexible part."""
        return self.hourly_usd + self.flexible_usd


class CostAlertRule(Written):
    """Fires while the hourly cost is beyond both *ratio* times that of the same hour last week and the budget."""

    ratio: float = Field(default=1.2, gt=0)


class ServiceCost(Noun):
    """What one service takes: *cpu* and *memory_gb* are used by all of its replicas, the requests are of all of them.

    In cores and GiB; ``*_usd`` are USD an hour, *handled_rps* requests a second.
    """

    replicas: int
    cpu: float
    memory_gb: float
    cpu_request: float
    memory_request_gb: float
    cpu_usd: float
    memory_usd: float
    handled_rps: float


class CostReading(Noun):
    """One line of a run's cost.jsonl: what everything costs in an hour at *time_ns*, and whether the alert fires.

    *budget_usd* and *alert_ratio* are None when the budget or the alert rule is gone; *most_replicas* are the limits of the
    autoscalers that there are, *targets* the shares of the requests that they aim at, by service.
    *time_ns* is UTC, money is USD an hour; *last_week_usd* is what the same hour cost then, None until it is known.
    """

    time_ns: int
    services: dict[str, ServiceCost]
    cpu_usd: float
    memory_usd: float
    last_week_usd: float | None
    budget_usd: float | None
    alert_ratio: float | None
    firing: bool
    most_replicas: dict[str, int] = Field(default_factory=dict)
    targets: dict[str, float] = Field(default_factory=dict)

    @property
    def hourly_usd(self) -> float:
        """The cost of all services in USD per hour: CPU plus memory."""
        return self.cpu_usd + self.memory_usd


class ReportedCause(Noun):
    """One line of a run's cost_causes.jsonl: what an operator said is the cause, and when (UTC)."""

    time_ns: int
    service: str
    cause: CostCause
