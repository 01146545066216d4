"""The optimum of a live task: every allowed configuration of every service, its cost, and whether it holds the SLO.

Run as ``python -m opsassay.evals.cost.live.optimum`` it writes the stored proofs anew; tests hold that they are
what the search gives.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import product

from pydantic import Field

from opsassay.core.schema.base import Artefact, Noun
from opsassay.evals.cost.live.setup import TASKS, CostBlock, live_task, optimum_file


class Configuration(Noun):
    """One configuration of one service; *problem* says why it is not allowed, '' for one that is.

    *cpu* (cores) and *memory_mb* (MiB) are requests of one replica, *utilization* is what is used of the requested CPU;
    the costs are of all replicas, USD an hour.
    """

    service: str
    replicas: int
    cpu: float
    memory_mb: int
    utilization: float
    cpu_usd: float
    memory_usd: float
    problem: str = ""


class CostOptimum(Artefact):
    """The cheapest allowed configuration of every service, what it costs and how efficient it is, and the whole table.

    Costs are USD an hour.
    """

    chosen: dict[str, Configuration]
    cpu_usd: float
    memory_usd: float
    cpu_efficiency: float = Field(description="mean over services with replicas of usage / request")
    memory_efficiency: float
    table: tuple[Configuration, ...]

    @property
    def hourly_usd(self) -> float:
        """CPU and memory together."""
        return self.cpu_usd + self.memory_usd


def search(block: CostBlock) -> CostOptimum:
    """Return the optimum of *block*; services are charged one by one, so each has its own.

    A service needs work = rps * cpu_ms / 1000 cores. With prices of a core-hour and a GiB-hour a configuration has

        utilization = work / (replicas * cpu)
        cpu_usd     = max(work, replicas * cpu) * core_hour_usd
        memory_usd  = replicas * memory_mb / 1024 * gb_hour_usd

    The cheapest allowed one is chosen, of equal ones the one with fewer replicas, then with more CPU.
    """
    table = tuple(_configurations(block))
    chosen = {}
    for service in block.demand:
        allowed = [one for one in table if one.service == service and not one.problem]
        chosen[service] = min(allowed, key=lambda one: (one.cpu_usd + one.memory_usd, one.replicas, -one.cpu))
    running = [one for one in chosen.values() if one.replicas]
    return CostOptimum(
        chosen=chosen,
        cpu_usd=sum(one.cpu_usd for one in chosen.values()),
        memory_usd=sum(one.memory_usd for one in chosen.values()),
        cpu_efficiency=sum(one.utilization for one in running) / len(running),
        memory_efficiency=sum(block.demand[one.service].memory_mb / one.memory_mb for one in running) / len(running),
        table=table,
    )


def _configurations(block: CostBlock) -> Iterator[Configuration]:
    space, prices = block.search, block.prices
    for service, demand in block.demand.items():
        work = demand.rps * demand.cpu_ms / 1000
        for replicas, cpu, memory_mb in product(space.replicas, space.cpu, space.memory_mb):
            utilization = work / (replicas * cpu) if replicas else 0.0
            problem = ""
            if replicas < demand.least_replicas:
                problem = f"fewer than {demand.least_replicas} replicas"
            elif work and not replicas:
                problem = "nobody serves its requests"
            elif utilization > space.most_utilization:
                problem = f"a replica uses {utilization:.0%} of its request, more than {space.most_utilization:.0%}"
            elif memory_mb < demand.memory_mb:
                problem = f"a replica uses {demand.memory_mb} MiB"
            yield Configuration(
                service=service, replicas=replicas, cpu=cpu, memory_mb=memory_mb, utilization=round(utilization, 6),
                cpu_usd=round(max(work, replicas * cpu) * prices.core_hour_usd, 9),
                memory_usd=round(replicas * memory_mb / 1024 * prices.gb_hour_usd, 9), problem=problem,
            )  # fmt: skip


def stored_optimum(name: str) -> CostOptimum:
    """Return the optimum of the task *name* as it is stored."""
    return CostOptimum.model_validate_json(optimum_file(name).read_text(encoding="utf-8"))


if __name__ == "__main__":
    for task in TASKS:
        found = search(live_task(task).cost).model_dump(mode="json")
        rows = ",\n  ".join(json.dumps(row) for row in found.pop("table"))
        head = json.dumps(found, indent=1)[:-2]
        optimum_file(task).write_text(f'{head},\n "table": [\n  {rows}\n ]\n}}\n', encoding="utf-8")
