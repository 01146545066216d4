"""The cost of a running system, second by second: prices, requests, budget, alert and history, and their watch."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, Protocol

import polars as pl

from opsassay.core.errors import OpsAssayError
from opsassay.core.schema.background import Background
from opsassay.core.schema.cost import (
    AutoscalerSettings,
    CostAlertRule,
    CostBudget,
    CostReading,
    PriceBook,
    ResourceRequest,
    ServiceCost,
)
from opsassay.core.schema.json_lines import append_line
from opsassay.core.schema.run_folder import COST
from opsassay.testbed.operations.live import LiveTelemetry

WINDOW_S, EVERY_S = 6.0, 1.0
"""Seconds over which usage is averaged, and seconds between readings."""
GB = 2**30


class Allocation(NamedTuple):
    """The resources that all replicas of a service request together: cores, and memory in GiB."""

    replicas: int
    cpu: float
    memory_gb: float

    @classmethod
    def for_replicas(cls, replicas: int, request: ResourceRequest) -> Allocation:
        """Return what *replicas* replicas request in total when each requests *request*."""
        return cls(replicas, replicas * request.cpu, replicas * request.memory_mb * 2**20 / GB)


class CostedSystem(Protocol):
    """The requests and autoscalers of a running system, which each substrate implements.

    Every method raises OpsAssayError when it fails.
    """

    @property
    def scales_itself(self) -> bool:
        """Whether the system has its own autoscaling controller, so that OpsAssay must not run one."""

    def allocations(self) -> Mapping[str, Allocation]:
        """Return {service: requested cores and GiB of its scheduled replicas}, which are paid for even if unused."""

    def requests(self) -> Mapping[str, ResourceRequest]:
        """Return {service: CPU and memory that each replica requests}; services without a request are left out."""

    def set_requests(self, service: str, request: ResourceRequest) -> None:
        """Change the CPU and memory that each replica of *service* requests."""

    def autoscalers(self) -> Mapping[str, AutoscalerSettings]:
        """Return {service: settings of its autoscaler}."""

    def set_autoscaler(self, settings: AutoscalerSettings) -> None:
        """Create or change the autoscaler of the service that *settings* name."""

    def delete_autoscaler(self, service: str) -> None:
        """Delete the autoscaler of *service*; its present number of replicas does not change."""

    def scale(self, service: str, replicas: int) -> None:
        """Set the number of *replicas* of *service* as an autoscaler does, not recorded as an operator's action."""


@dataclass
class CostAccount:
    """The rules by which the cost of a system is judged: prices, and the budget and the alert, which operators may change.

    *last_week_usd* is the recorded cost of the same hour a week before, None until it is known.
    """

    prices: PriceBook
    budget: CostBudget | None = None
    alert: CostAlertRule | None = field(default_factory=CostAlertRule)
    last_week_usd: float | None = None

    def of_service(self, requested: Allocation, cpu: float, memory_bytes: float, handled_rps: float) -> ServiceCost:
        """Return the cost, USD per hour, of a service with *requested* resources that uses *cpu* cores, *memory_bytes*.

        CPU and memory are each charged for the larger of request and use; *handled_rps* is its requests per second.
        """
        memory_gb = memory_bytes / GB
        return ServiceCost(
            replicas=requested.replicas,
            cpu=cpu,
            memory_gb=memory_gb,
            cpu_request=requested.cpu,
            memory_request_gb=requested.memory_gb,
            cpu_usd=max(cpu, requested.cpu) * self.prices.core_hour_usd,
            memory_usd=max(memory_gb, requested.memory_gb) * self.prices.gb_hour_usd,
            handled_rps=handled_rps,
        )

    def read(
        self, services: Mapping[str, ServiceCost], time_ns: int, autoscalers: Iterable[AutoscalerSettings] = ()
    ) -> CostReading:
        """Return the cost reading at *time_ns* (UTC): *services*, their sum, budget, alert, *autoscalers*' limits."""
        scalers = list(autoscalers)
        cpu, memory = (sum(getattr(one, name) for one in services.values()) for name in ("cpu_usd", "memory_usd"))
        budget, rule, usual = self.budget, self.alert, self.last_week_usd
        beyond = rule is not None and usual is not None and cpu + memory > rule.ratio * usual
        return CostReading(
            time_ns=time_ns,
            services=dict(services),
            cpu_usd=cpu,
            memory_usd=memory,
            last_week_usd=usual,
            budget_usd=None if budget is None else budget.hourly_usd,
            alert_ratio=None if rule is None else rule.ratio,
            firing=beyond and (budget is None or cpu + memory > budget.hourly_usd),
            most_replicas={one.service: one.max_replicas for one in scalers if one.max_replicas > one.min_replicas},
            targets={one.service: one.target_utilization for one in scalers},
        )


class CostWatch(Background):
    """A thread that reads the cost of *system* every second while the block runs, and writes it into *run_dir*."""

    def __init__(self, account: CostAccount, system: CostedSystem, telemetry: LiveTelemetry, run_dir: Path) -> None:
        super().__init__("costs")
        self.account, self.system, self._telemetry = account, system, telemetry
        self._path = run_dir / COST
        self.readings: list[CostReading] = []

    @property
    def latest(self) -> CostReading | None:
        """The latest cost reading, None before the first."""
        return self.readings[-1] if self.readings else None

    def utilization(self, service: str) -> tuple[int, float] | None:
        """Return (number of replicas, used share of their CPU request) of *service*; None before the first reading."""
        if (reading := self.latest) is None or (cost := reading.services.get(service)) is None:
            return None
        return cost.replicas, cost.cpu / cost.cpu_request if cost.cpu_request else 0.0

    def work(self) -> None:
        """Read the cost every `EVERY_S` seconds until the block ends."""
        while self.pause(EVERY_S):
            with suppress(OpsAssayError):  # a reading that could not be had is missing from the record
                scalers = self.system.autoscalers().values()
                reading = self.account.read(self._cost_by_service(), time.time_ns(), scalers)
                self.readings = [*self.readings, reading]
                append_line(self._path, reading)

    def _cost_by_service(self) -> dict[str, ServiceCost]:
        """Return {service: cost} from what each requests now and used in the last seconds."""
        used = usage(self._telemetry.tables(), time.time_ns())
        return {
            name: self.account.of_service(requested, *used.get(name, (0.0, 0.0, 0.0)))
            for name, requested in self.system.allocations().items()
        }


def usage(tables: Mapping[str, pl.DataFrame], now_ns: int) -> dict[str, tuple[float, float, float]]:
    """Return {service: (cores, bytes, requests per second)}, means over the WINDOW_S seconds before *now_ns* (UTC)."""
    since = now_ns - int(WINDOW_S * 1e9)
    recent = tables["metrics"].filter(pl.col("time").cast(pl.Int64) >= since)
    found: dict[str, list[float]] = {}
    for place, metric in enumerate(("container.cpu.usage", "container.memory.working_set")):
        means = (
            recent.filter(pl.col("metric") == metric)
            .group_by("service_name", "attr.k8s.pod.name")
            .agg(pl.col("value").mean())
            .group_by("service_name")
            .agg(pl.col("value").sum())
        )
        for name, value in means.rows():
            found.setdefault(name, [0.0, 0.0, 0.0])[place] = value
    spans = tables["traces"].filter(
        (pl.col("time").cast(pl.Int64) >= since) & pl.col("attr.span_kind").is_in(["Server", "Consumer"])
    )
    for name, count in spans.group_by("service_name").len().rows():
        found.setdefault(name, [0.0, 0.0, 0.0])[2] = count / WINDOW_S
    return {name: (cpu, memory, rps) for name, (cpu, memory, rps) in found.items()}


TOLERANCE = 0.1
SCALE_EVERY_S, STABLE_S = 3.0, 9.0
"""Seconds between its decisions, and seconds for which a smaller number must be desired before it scales down."""


def desired_replicas(current: int, utilization: float, settings: AutoscalerSettings) -> int:
    """Return the replicas that *settings* ask for when *current* ones use *utilization* (0 to 1) of their request."""
    if current == 0:
        return 0
    ratio = utilization / settings.target_utilization
    count = current if abs(ratio - 1) <= TOLERANCE else math.ceil(current * ratio)
    return min(max(count, settings.min_replicas), settings.max_replicas)


class Autoscaler(Background):
    """A thread that scales each service for which *system* has an autoscaler while the block runs.

    *reading* returns a service's replicas and utilization, None if unknown. Targets are multiplied by *slowdown*, the
    factor by which this machine needs more processor time for the same work.
    """

    def __init__(
        self, system: CostedSystem, reading: Callable[[str], tuple[int, float] | None], slowdown: float = 1.0
    ) -> None:
        super().__init__("autoscaler")
        self._slowdown = slowdown
        self._system, self._reading = system, reading
        self._proposed: dict[str, deque[tuple[float, int]]] = {}

    def work(self) -> None:
        """Scale the services every `SCALE_EVERY_S` seconds until the block ends."""
        while self.pause(SCALE_EVERY_S):
            with suppress(OpsAssayError):  # what cannot be asked or scaled now is tried again
                for service, settings in self._system.autoscalers().items():
                    self.decide(service, settings, time.monotonic())

    def decide(self, service: str, settings: AutoscalerSettings, now_s: float) -> None:
        """Scale *service* as *settings* say for its utilization; down only after STABLE_S; *now_s* is monotonic."""
        if (seen := self._reading(service)) is None:
            return
        current, utilization = seen
        proposed = self._proposed.setdefault(service, deque())
        proposed.append((now_s, desired_replicas(current, utilization / self._slowdown, settings)))
        while proposed and proposed[0][0] < now_s - STABLE_S:
            proposed.popleft()
        count = max(number for _, number in proposed)
        if count != current and (count > current or now_s - proposed[0][0] >= STABLE_S - SCALE_EVERY_S):
            self._system.scale(service, count)
