"""Live cost tasks: each is a scenario and its cost block, in packaged YAML files."""

from __future__ import annotations

import hashlib
import json
from functools import cache
from pathlib import Path
from typing import Literal, Self

import yaml
from pydantic import Field, model_validator

from opsassay.core.errors import NotFoundError
from opsassay.core.schema.base import Written
from opsassay.core.schema.cost import AutoscalerSettings, CostCause, PriceBook, ResourceRequest
from opsassay.core.schema.files import parse_yaml
from opsassay.core.schema.overrides import merge_layers
from opsassay.core.schema.scenario import Scenario
from opsassay.testbed.scenarios import system_of

LIVE = Path(__file__).parent
CLASS, CLASS_ON_KUBERNETES = "alert", "alert-on-kubernetes"
"""Words in a plan for the four tasks on this machine, and the same four on a cluster."""
ON_KUBERNETES = "-on-kubernetes"
LOCAL_TASKS = ("cost-growth", "cost-autoscaler", "cost-memory", "cost-idle")
TASKS = (*LOCAL_TASKS, *(name + ON_KUBERNETES for name in LOCAL_TASKS))


class Demand(Written):
    """The declared needs of a service at the end: work per second, and memory per replica in MiB."""

    rps: float = Field(ge=0, description="requests per second that it handles")
    cpu_ms: float = Field(ge=0, description="CPU time of one request, its handling included, milliseconds")
    memory_mb: int = Field(gt=0, description="memory that one replica uses")
    least_replicas: int = Field(default=1, ge=0, description="fewest that are allowed, for the sake of availability")


class SearchSpace(Written):
    """The allowed configurations, and the SLO: no replica uses more than *most_utilization* of what it requests.

    *memory_mb* are MiB that a replica may request.
    """

    replicas: tuple[int, ...] = Field(min_length=1)
    cpu: tuple[float, ...] = Field(min_length=1, description="cores that a replica may request")
    memory_mb: tuple[int, ...] = Field(min_length=1)
    most_utilization: float = Field(gt=0, le=1)


class CostBlock(Written):
    """The cost side of a live task; budget amounts are shares of the system's cost before the trigger."""

    prices: PriceBook
    requests: dict[str, ResourceRequest]
    autoscalers: tuple[AutoscalerSettings, ...] = ()
    budget_share: float = Field(default=1.1, gt=0, description="budget, times the usual cost")
    flexible_share: float = Field(default=0.05, ge=0, description="its flexible part, times the usual cost")
    cause: CostCause
    service: str = Field(description="service that makes the cost rise")
    demand: dict[str, Demand]
    search: SearchSpace
    tolerance: float = Field(
        default=0.15, gt=0, description="share by which the cost may be off its optimum at the end"
    )
    hold_s: float = Field(default=15.0, gt=0, description="last part of the record, all of which has to hold")
    fails: dict[str, str] = Field(description="what each oracle but the right one fails, for which it is rejected")


class LiveCostTask(Written):
    """A live cost task: difficulty, scenario and cost block."""

    stratum: Literal["easy", "medium", "hard"]
    scenario: Scenario
    cost: CostBlock

    @model_validator(mode="after")
    def _fits_the_system(self) -> Self:
        """Return the task; raises ValueError if its costs or oracles do not match those of the scenario."""
        services = set(system_of(self.scenario).services)
        for where, given in (("requests", self.cost.requests), ("demand", self.cost.demand)):
            if set(given) != services:
                named, there = ", ".join(sorted(given)), ", ".join(sorted(services))
                raise ValueError(f"cost.{where} names {named}; the system has {there}")
        if {"right", *self.cost.fails} != set(self.scenario.oracles):
            raise ValueError("cost.fails names the oracles of the scenario, all but `right`")
        return self

    @property
    def committed(self) -> Scenario:
        """The scenario, whose description has the digest of the cost block and its stored optimum."""
        parts = [self.cost.model_dump(mode="json"), optimum_file(self.scenario.id).read_text(encoding="utf-8")]
        digest = hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()
        return self.scenario.model_copy(update={"description": f"Its cost block has the digest {digest}."})


def optimum_file(name: str) -> Path:
    """Return the path of the packaged file with the optimum of the live task *name*."""
    return LIVE / f"{name}.optimum.json"


@cache
def live_task(name: str) -> LiveCostTask:
    """Return the packaged live cost task *name*; raises NotFoundError, ConfigError."""
    if name not in TASKS:
        raise NotFoundError("live cost task", name, TASKS)
    files = [LIVE / f"{one}.yaml" for one in dict.fromkeys((name.removesuffix(ON_KUBERNETES), name))]
    layers = (yaml.safe_load(file.read_text(encoding="utf-8")) for file in files)
    return parse_yaml(yaml.safe_dump(merge_layers(*layers), sort_keys=False), LiveCostTask, str(files[-1]), lines=False)
