"""Grades a live cost task: the certificate of its trial, and cost metrics from the cost record.

Each must hold over the whole last part of the record, so that one good reading does not suffice.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise, product
from pathlib import Path
from typing import TypeVar

from pydantic import Field

from opsassay.core.schema.base import Artefact, Noun
from opsassay.core.schema.cost import CostReading, ReportedCause
from opsassay.core.schema.json_lines import whole_lines
from opsassay.core.schema.run import Metric, MetricStatus
from opsassay.core.schema.task import MetricDefinition
from opsassay.core.schema.trajectory import Phase
from opsassay.evals.cost.live.tasks import TASKS, CostBlock, live_task, optimum_file


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
    """The cheapest allowed configuration of every service, its cost (USD an hour) and efficiency, and the whole table."""

    chosen: dict[str, Configuration]
    cpu_usd: float
    memory_usd: float
    cpu_efficiency: float = Field(description="mean over services with replicas of usage / request")
    memory_efficiency: float
    table: tuple[Configuration, ...]

    @property
    def hourly_usd(self) -> float:
        """The cost of CPU and memory together, USD an hour."""
        return self.cpu_usd + self.memory_usd


def search(block: CostBlock) -> CostOptimum:
    """Return the cheapest allowed configuration for *block*, service by service, since they are charged separately.

    A service needs work = rps * cpu_ms / 1000 cores. With prices of a core-hour and a GiB-hour a configuration has

        utilization = work / (replicas * cpu)
        cpu_usd     = max(work, replicas * cpu) * core_hour_usd
        memory_usd  = replicas * memory_mb / 1024 * gb_hour_usd

    The cheapest allowed one is chosen, of equal ones the one with fewer replicas, then with more CPU.
    """
    table = tuple(_list_configurations(block))
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


def _list_configurations(block: CostBlock) -> Iterator[Configuration]:
    """Yield every configuration of the search space with its cost; its `problem` is why it is not allowed, or ""."""
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
    """Return the cheapest allowed configuration that is stored for the live task *name*."""
    return CostOptimum.model_validate_json(optimum_file(name).read_text(encoding="utf-8"))


if __name__ == "__main__":
    for task in TASKS:
        found = search(live_task(task).cost).model_dump(mode="json")
        rows = ",\n  ".join(json.dumps(row) for row in found.pop("table"))
        head = json.dumps(found, indent=1)[:-2]
        optimum_file(task).write_text(f'{head},\n "table": [\n  {rows}\n ]\n}}\n', encoding="utf-8")


PROXIMITIES = ("cpu_cost", "memory_cost", "cpu_efficiency", "memory_efficiency")
MARKS = (
    "cost_alert_cleared", "cost_near_optimum", "budget_kept", "cost_alert_kept", "load_kept", "requests_cover_usage",
    "autoscalers_kept",
)  # fmt: skip
LEAST_LOAD = 0.6
"""Least share of the demanded requests that a service must handle at the end; the count is a Poisson variable."""
MOST_OVER_REQUEST = 1.15
"""Usage above the request by more than this factor is a violation; measured usage is noisy."""
GAP_S = 5.0
"""A longer time without a reading counts as missing evidence."""

N = TypeVar("N", bound=Noun)


def live_definitions() -> tuple[MetricDefinition, ...]:
    """Return the definitions of the metrics of live tasks, the most important first."""
    raw = (MetricDefinition(name=f"proximity_{name}") for name in PROXIMITIES)
    clamped = (MetricDefinition(name=f"proximity_{name}_clamped") for name in PROXIMITIES)
    marks = (MetricDefinition(name=name) for name in ("diagnosis_right", "certificate", *MARKS))
    return (*marks, *raw, *clamped)


def read_lines(path: Path, noun: type[N]) -> list[N]:
    """Return each line of a JSON lines file as an object of class *noun*; [] when the file is missing."""
    return [noun.model_validate(line) for line in whole_lines(path.read_bytes())] if path.exists() else []


def judge_cost(
    block: CostBlock,
    optimum: CostOptimum,
    readings: Sequence[CostReading],
    phases: Sequence[Phase],
    causes: Sequence[ReportedCause],
    certificate: Metric,
) -> dict[str, Metric]:
    """Return all metrics of a live task; *certificate* is that of the trial.

    Judged are the readings of the last `hold_s` seconds of the record. Where these do not all lie after the agent's
    end, or no cost was read for more than GAP_S, every metric of cost is failed. Else each mark is 1 or 0:

    - cost_alert_cleared: the alert fires in none of them
    - cost_near_optimum: in each, |hourly cost - optimum| / optimum is at most the tolerance of *block*
    - budget_kept: in each there is a budget of at most usual cost * (budget_share + flexible_share)
    - cost_alert_kept: in each there is the alert rule, with a ratio no larger than before the trigger
    - load_kept: every service handles LEAST_LOAD or more of its demand, on average over them
    - requests_cover_usage: no service uses more than MOST_OVER_REQUEST times what it requests, on average over them, and no
      replica of a service that the cause is not about requests less than before the trigger
    - autoscalers_kept: in each, whatever was scaled before the trigger still is, to as many replicas and at the same share
      of its request, give or take the tolerance

    ``passed`` asks for the certificate and all of these.
    """
    times = {one.phase: one.time_ns for one in phases}
    ended = times.get("ended", 0)
    since = max(ended - int(block.hold_s * 1e9), times.get("agent_ended", ended))
    final = [one for one in readings if since <= one.time_ns <= ended]
    before = [one for one in readings if one.time_ns <= times.get("triggered", 0)]
    metrics = {"certificate": certificate, "diagnosis_right": _grade_diagnosis(block, causes)}
    problem = _why_incomplete(final, since, ended, block.hold_s)
    if problem is not None:
        missing = Metric(status=MetricStatus.FAILED, reason=problem)
        names = (*MARKS, *(f"proximity_{n}{end}" for n in PROXIMITIES for end in ("", "_clamped")))
        return {"passed": missing, **metrics, **dict.fromkeys(names, missing)}
    marks = _failed_marks(block, optimum, final, before)
    metrics |= {
        name: Metric(value=float(why is None), status=MetricStatus.SCORED, reason=why or "")
        for name, why in marks.items()
    }
    failed = [f"{name}: {why}" for name, why in marks.items() if why is not None]
    if certificate.value != 1.0:
        failed.insert(0, f"certificate: {certificate.reason or 'not certified'}")
    passed = Metric(value=float(not failed), status=MetricStatus.SCORED, reason="; ".join(failed))
    return {"passed": passed, **metrics, **proximities(optimum, final)}


def _grade_diagnosis(block: CostBlock, causes: Sequence[ReportedCause]) -> Metric:
    """Return 1 when the cause that the agent reported last is the true one, else 0 with the reason."""
    if not causes:
        return Metric(value=0.0, status=MetricStatus.SCORED, reason="no cause was reported")
    last = causes[-1]
    right = (last.service, last.cause) == (block.service, block.cause)
    why = "" if right else f"{last.cause} of {last.service} is not the cause"
    return Metric(value=float(right), status=MetricStatus.SCORED, reason=why)


def _why_incomplete(final: Sequence[CostReading], start_ns: int, end_ns: int, hold_s: float) -> str | None:
    """Return why the readings *final*, *start_ns* to *end_ns*, are under *hold_s* seconds or have gaps, else None."""
    if (end_ns - start_ns) / 1e9 < hold_s - 1:
        return f"the record ends less than {hold_s:g} s after the agent"
    edges = [start_ns, *(one.time_ns for one in final), end_ns]
    widest = max(later - earlier for earlier, later in pairwise(edges)) / 1e9
    return f"no cost was read for {widest:.0f} s" if widest > GAP_S else None


def _failed_marks(
    block: CostBlock, optimum: CostOptimum, final: Sequence[CostReading], before: Sequence[CostReading]
) -> dict[str, str | None]:
    """Return metric to why it is 0 (None: it is 1). *final*: the judged readings, *before*: those before the agent."""
    usual = next((one.last_week_usd for one in (*before[-1:], *final) if one.last_week_usd), 0.0)
    dearest = max(abs(one.hourly_usd - optimum.hourly_usd) / optimum.hourly_usd for one in final)
    firing = sum(one.firing for one in final)
    return {
        "cost_alert_cleared": f"it fires in {firing} of the last {len(final)} readings" if firing else None,
        "cost_near_optimum": f"the cost is {dearest:.0%} off its optimum" if dearest > block.tolerance else None,
        "budget_kept": _budget_problem(final, usual * (block.budget_share + block.flexible_share)),
        "cost_alert_kept": _alert_problem(final, before),
        "load_kept": _load_problem(block, final),
        "requests_cover_usage": _request_problem(final) or _squeeze_problem(block, final, before),
        "autoscalers_kept": _autoscaler_problem(final, before, block.tolerance),
    }


def _budget_problem(final: Sequence[CostReading], most_usd: float) -> str | None:
    """Return why the budget in the *final* readings is wrong, None when it is at most *most_usd* an hour."""
    budgets = [one.budget_usd for one in final if one.budget_usd is not None]
    if len(budgets) < len(final):
        return "the budget is gone"
    beyond = max(budgets) > most_usd * 1.001
    return f"the budget is {max(budgets):.4f} USD an hour, beyond its flexible part, {most_usd:.4f}" if beyond else None


def _alert_problem(final: Sequence[CostReading], before: Sequence[CostReading]) -> str | None:
    """Return why the cost alert is wrong: deleted, or with a higher threshold than in *before*; None when right."""
    if any(one.alert_ratio is None for one in final):
        return "the alert is gone"
    agreed = before[0].alert_ratio if before else None
    changed = agreed is not None and any((one.alert_ratio or 0.0) > agreed for one in final)
    return f"the alert allows {final[-1].alert_ratio:g} times last week instead of {agreed:g}" if changed else None


def _load_problem(block: CostBlock, final: Sequence[CostReading]) -> str | None:
    """Return a sentence on a service that in *final* handles clearly less than its demand, None without one."""
    for name, demand in block.demand.items():
        handled = sum(one.services[name].handled_rps for one in final) / len(final)
        if handled < LEAST_LOAD * demand.rps:
            return f"{name} handles {handled:.1f} requests per second of {demand.rps:g}"
    return None


def _request_problem(final: Sequence[CostReading]) -> str | None:
    """Return a sentence on a service that in *final* uses clearly more CPU or memory than it requests, else None."""
    for name in final[-1].services:
        of = [one.services[name] for one in final if one.services[name].replicas]
        for what, used, asked in (
            ("memory", sum(one.memory_gb for one in of), sum(one.memory_request_gb for one in of)),
            ("CPU", sum(one.cpu for one in of), sum(one.cpu_request for one in of)),
        ):
            if used > MOST_OVER_REQUEST * asked:
                times = (
                    f"{used / asked:.1f} times the {what} that it requests" if asked else f"{what} and requests none"
                )
                return f"{name} uses {times}"
    return None


def _squeeze_problem(block: CostBlock, final: Sequence[CostReading], before: Sequence[CostReading]) -> str | None:
    """Return a sentence on a replica, not of the faulty service, that requests less than *before*; else None."""
    agreed = before[-1].services if before else {}
    for name, was in agreed.items():
        for now in (one.services[name] for one in final if name in one.services and name != block.service):
            asked = ((now.cpu_request, was.cpu_request), (now.memory_request_gb, was.memory_request_gb))
            if any(of_now * was.replicas < 0.99 * of_was * now.replicas for of_now, of_was in asked):
                return f"a replica of {name} requests less than before"
    return None


def _autoscaler_problem(final: Sequence[CostReading], before: Sequence[CostReading], tolerance: float) -> str | None:
    """Return a sentence on an autoscaler with a lower maximum or another target (beyond *tolerance*), else None."""
    agreed = before[-1] if before else final[0]
    for name, most in agreed.most_replicas.items():
        if any(one.most_replicas.get(name, 0) < most for one in final):
            return f"no autoscaler gives {name} up to {most} replicas any more"
    for name, target in agreed.targets.items():
        if any(abs(one.targets.get(name, 0.0) / target - 1) > tolerance for one in final):
            return f"no autoscaler of {name} aims at {target:.0%} of its requests any more"
    return None


def proximities(optimum: CostOptimum, final: Sequence[CostReading]) -> Mapping[str, Metric]:
    """Return 1 - |observed - optimum| / optimum of costs and efficiencies, raw and clamped to 0..1 (E.4.2).

    Observed costs are means over the readings *final*, USD an hour. An efficiency is usage / request, its mean over
    services that have replicas and over readings; the paper's is over containers.
    """
    observed = {
        "cpu_cost": sum(one.cpu_usd for one in final) / len(final),
        "memory_cost": sum(one.memory_usd for one in final) / len(final),
        "cpu_efficiency": _efficiency(final, "cpu", "cpu_request"),
        "memory_efficiency": _efficiency(final, "memory_gb", "memory_request_gb"),
    }
    best = {
        "cpu_cost": optimum.cpu_usd, "memory_cost": optimum.memory_usd,
        "cpu_efficiency": optimum.cpu_efficiency, "memory_efficiency": optimum.memory_efficiency,
    }  # fmt: skip
    metrics = {}
    for name, value in observed.items():
        proximity = 1 - abs(value - best[name]) / best[name]
        metrics[f"proximity_{name}"] = Metric(value=proximity, status=MetricStatus.SCORED)
        metrics[f"proximity_{name}_clamped"] = Metric(value=min(1.0, max(0.0, proximity)), status=MetricStatus.SCORED)
    return metrics


def _efficiency(final: Sequence[CostReading], usage_field: str, request_field: str) -> float:
    """Return the mean of usage / request (fields of a service's reading), over services with replicas and readings."""
    shares = [
        getattr(cost, usage_field) / getattr(cost, request_field)
        for one in final
        for cost in one.services.values()
        if cost.replicas and getattr(cost, request_field)
    ]
    return sum(shares) / len(shares) if shares else 0.0
