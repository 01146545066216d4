"""The cost of a running system: prices, requests, budgets, alerts, autoscalers, and one reading of them."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from opsassay.core.schema.base import Int64, Noun, Written

CostCause = Literal[
    "legitimate_growth", "autoscaler_threshold", "over_requested_memory", "over_requested_cpu", "idle_deployment",
    "price_change", "nothing_wrong",
]  # fmt: skip
"""Causes of a cost alert that an operator may report."""


class PriceBook(Written):
    """Prices in USD per hour: *core_hour_usd* of one core, *gb_hour_usd* of one GiB of memory.

    As in OpenCost a replica is charged for the larger of its request and its use.
    """

    core_hour_usd: float = Field(gt=0)
    gb_hour_usd: float = Field(gt=0)


class ResourceRequest(Written):
    """The resources that each replica of a service requests, which are also its limit."""

    cpu: float = Field(gt=0, description="cores")
    memory_mb: int = Field(gt=0, description="MiB")


class AutoscalerSettings(Written):
    """An autoscaler of one service: replicas follow CPU usage as a share of the request (Kubernetes HPA's formula)."""

    service: str
    min_replicas: int = Field(default=1, ge=0)
    max_replicas: int = Field(default=6, ge=1)
    target_utilization: float = Field(gt=0, description="usage / request that it aims at")


class CostBudget(Written):
    """The budget in USD per hour; it may be raised by its flexible part, not more."""

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
    """The use and cost of one service; use and requests are sums over its replicas, in cores and GiB.

    ``*_usd`` are USD per hour, *handled_rps* is requests per second.
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
    """One line of a run's cost.jsonl: the hourly cost of everything at *time_ns* (UTC), and whether the alert fires.

    *budget_usd* and *alert_ratio* are None after the budget or the alert rule was deleted; by service, *most_replicas*
    are the autoscalers' limits and *targets* the shares of the requests that they aim at. *last_week_usd* is the cost of
    the same hour a week before, None until it is known.
    """

    time_ns: Int64
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
    """One line of a run's cost_causes.jsonl: the cause that an operator reported, and when (UTC)."""

    time_ns: Int64
    service: str
    cause: CostCause
