"""What a running system costs, second by second: prices, requests, budget, alert and history, and who watches them."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import polars as pl

from opsassay.errors import OpsAssayError
from opsassay.model.cost import (
    AutoscalerSettings,
    CostAlertRule,
    CostBudget,
    CostReading,
    PriceBook,
    ResourceRequest,
    ServiceCost,
)
from opsassay.model.json_lines import append_line
from opsassay.model.run_folder import COST
from opsassay.testbed.operations.live import LiveTelemetry
from opsassay.testbed.operations.tools import OperatedSystem

WINDOW_S, EVERY_S = 6.0, 1.0
"""Over how long usage is averaged, and how often it is read."""
GB = 2**30


@dataclass
class CostAccount:
    """What the cost of a system is made of, and what operators may change: requests, budget, alert, autoscalers.

    *last_week_usd* is what the same hour cost last week, from the record; None until it is known.
    """

    prices: PriceBook
    requests: dict[str, ResourceRequest]
    budget: CostBudget | None = None
    alert: CostAlertRule | None = field(default_factory=CostAlertRule)
    autoscalers: dict[str, AutoscalerSettings] = field(default_factory=dict)
    last_week_usd: float | None = None

    def of_service(self, name: str, replicas: int, cpu: float, memory_bytes: float, handled_rps: float) -> ServiceCost:
        """Return the cost of a service whose *replicas* use *cpu* cores and *memory_bytes* together.

        Each replica is charged for the larger of its request and its share of what is used.
        """
        request = self.requests[name]
        cpu_request, memory_request = replicas * request.cpu, replicas * request.memory_mb * 2**20 / GB
        memory_gb = memory_bytes / GB
        return ServiceCost(
            replicas=replicas,
            cpu=cpu,
            memory_gb=memory_gb,
            cpu_request=cpu_request,
            memory_request_gb=memory_request,
            cpu_usd=max(cpu, cpu_request) * self.prices.core_hour_usd,
            memory_usd=max(memory_gb, memory_request) * self.prices.gb_hour_usd,
            handled_rps=handled_rps,
        )

    def read(self, services: Mapping[str, ServiceCost], time_ns: int) -> CostReading:
        """Return the reading that *services* make at *time_ns*."""
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
        )


class CostWatch:
    """A thread that reads the cost of *running* every second while the block runs, and writes it into *run_dir*."""

    def __init__(self, account: CostAccount, running: OperatedSystem, telemetry: LiveTelemetry, run_dir: Path) -> None:
        self.account, self._running, self._telemetry = account, running, telemetry
        self._path = run_dir / COST
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="costs", daemon=True)
        self.readings: list[CostReading] = []

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._thread.join()

    @property
    def latest(self) -> CostReading | None:
        """The last reading, None before the first."""
        return self.readings[-1] if self.readings else None

    def utilization(self, service: str) -> tuple[int, float] | None:
        """Return how many replicas a service has and how much of their request they use; None while unknown."""
        if (reading := self.latest) is None or (cost := reading.services.get(service)) is None:
            return None
        return cost.replicas, cost.cpu / cost.cpu_request if cost.cpu_request else 0.0

    def _watch(self) -> None:
        while not self._ended.wait(EVERY_S):
            with suppress(OpsAssayError):  # a reading that could not be had is missing from the record
                reading = self.account.read(self._services(), time.time_ns())
                self.readings = [*self.readings, reading]
                append_line(self._path, reading)

    def _services(self) -> dict[str, ServiceCost]:
        rows = self._running.operate("ps", {})["replicas"]
        used = usage(self._telemetry.tables(), time.time_ns())
        return {
            name: self.account.of_service(name, _count(rows, name), *used.get(name, (0.0, 0.0, 0.0)))
            for name in self.account.requests
        }


def _count(rows: Iterable[Mapping[str, Any]], service: str) -> int:
    """Return how many replicas of *service* are there, whatever they do: what is scheduled is paid for."""
    return sum(row["service"] == service for row in rows)


def usage(tables: Mapping[str, pl.DataFrame], now_ns: int) -> dict[str, tuple[float, float, float]]:
    """Return per service the cores and bytes that its pods used over the last seconds, and requests handled per second."""
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
