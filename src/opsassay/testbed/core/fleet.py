"""The replicas of a system: their hosts, ports, readiness, and restarts of ended ones."""

from __future__ import annotations

import itertools
import random
import string
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from opsassay.core.errors import RefusedError
from opsassay.core.schema.system import Service, System

RESTART_AFTER_S = 2.0
RESTART_AFTER_LIMIT_S = 30.0
STABLE_AFTER_S = 30.0
HISTORY_S = 120
LOAD_GENERATOR = "loadgenerator"
RELEASE = "release"
"""The name of a replica's release among its settings, whose names are in capitals."""

Samples = deque[tuple[float, dict[str, list[int]]]]
"""(monotonic time, {activity: [count, errors, duration_ns]}), in order of time."""


def _recent() -> deque[Any]:
    """Return an empty deque for a process's latest readings; it drops the oldest when it is full."""
    return deque(maxlen=HISTORY_S)


class Counted(Protocol):
    """A process that counts its activities: a replica, or the load generator."""

    @property
    def history(self) -> Samples:
        """The latest (monotonic time, counters) readings of this process, oldest first."""
        ...


@dataclass
class LoadCounters:
    """The counters of the load generator."""

    history: Samples = field(default_factory=_recent)


@dataclass
class Replica:
    """One replica: its identity, its present process and the latest readings of it.

    *started_at* is monotonic; *gauges* are (monotonic time, {gauge: value}), in order.
    """

    id: str
    service: str
    spec: Service
    host: str
    pod: str
    pid: int | None = None
    watched_by: int | None = None  # the process of ours whose end is that of the replica: its own but for containers
    port: int | None = None
    ready: bool = False
    held: bool = False  # not to be started again for now
    desired: bool = True  # False: an operator stopped it, and starts it
    draining: bool = False  # on its way out: takes nothing new
    done: bool = False  # a job that has ended well
    release: str = "v1"
    settings: dict[str, str] = field(default_factory=dict)  # what its process was started with
    started_release: str | None = None  # the release that its process is of
    successor: str | None = None  # name of the pod that succeeds this one when its process ends
    starts: int = 0
    restarts: int = 0
    deaths_in_a_row: int = 0
    started_at: float = 0.0
    hooks: list[dict[str, Any]] = field(default_factory=list)
    watch: list[str] = field(default_factory=list)
    history: Samples = field(default_factory=_recent)
    gauges: deque[tuple[float, dict[str, float]]] = field(default_factory=_recent)

    @property
    def hooks_now(self) -> list[dict[str, Any]]:
        """The faults inside the process (hooks) that its present pod has; those bound to a former pod are left out."""
        return [hook for hook in self.hooks if hook.get("pod", self.pod) == self.pod]

    def pending_restart(self, settings: Mapping[str, str]) -> list[str]:
        """Return the sorted names of *settings* unlike those of the running process, then ``release`` if that differs."""
        if self.pid is None:
            return []
        names = sorted(name for name in {*settings, *self.settings} if settings.get(name) != self.settings.get(name))
        return [*names, *([RELEASE] if self.started_release != self.release else [])]

    def backoff_s(self) -> float:
        """Return the seconds to wait before the next start; they double with each start that soon ends."""
        if time.monotonic() - self.started_at > STABLE_AFTER_S:
            self.deaths_in_a_row = 0
        self.deaths_in_a_row += 1
        return min(RESTART_AFTER_S * 2.0 ** (self.deaths_in_a_row - 1), RESTART_AFTER_LIMIT_S)


class Fleet:
    """All replicas of *system*; pod names are drawn from *seed*."""

    def __init__(self, system: System, seed: int) -> None:
        self.system = system
        self._random = random.Random(f"pods:{seed}")  # noqa: S311
        self._replica_sets = {service: self._letters(8) for service in system.services}
        self.replicas: dict[str, Replica] = {}
        self.load = LoadCounters()
        places = 0
        for service, spec in system.services.items():
            for index in range(spec.replicas):
                host = spec.host or system.hosts[places % len(system.hosts)]
                places += 1
                self.add(service, index, host)

    def add(self, service: str, index: int, host: str) -> Replica:
        """Add the replica *index* of *service* on *host* to the fleet and return it; it does not start a process."""
        spec = self.system.services[service]
        replica = Replica(f"{service}-{index}", service, spec, host, self.pod_name(service), release=spec.release)
        self.replicas[replica.id] = replica
        return replica

    def pod_name(self, service: str) -> str:
        """Return a new random pod name as Kubernetes makes them: SERVICE-REPLICASET-xxxxx."""
        return f"{service}-{self._replica_sets[service]}-{self._letters(5)}"

    def _letters(self, count: int) -> str:
        """Return *count* random letters and digits."""
        return "".join(self._random.choices(string.ascii_lowercase + string.digits, k=count))

    def lasting(self) -> list[Replica]:
        """Return all replicas except those of jobs that have ended successfully."""
        return [replica for replica in self.replicas.values() if not replica.done]

    def replicas_of(self, service: str) -> list[Replica]:
        """Return the replicas of *service*."""
        return [replica for replica in self.lasting() if replica.service == service]

    def lost_ledger_lines(self) -> int:
        """Return how many lines on what faults caused (the ledger) the replicas report as not written."""
        return sum(int(r.gauges[-1][1].get("ledger_lost", 0)) for r in self.replicas.values() if r.gauges)

    def not_ready(self) -> list[str]:
        """Return the ids of the replicas that are not ready."""
        return [replica.id for replica in self.lasting() if not replica.ready]

    def links(self) -> list[tuple[str, str]]:
        """Return (caller, callee) ids of all processes that communicate: replicas, stores and the load generator."""
        pairs = [
            (caller.id, callee.id)
            for a, b in sorted(self.system.calls())
            for caller in self.replicas_of(a)
            for callee in self.replicas_of(b)
        ]
        pairs += [
            (user.id, store) for service, store in sorted(self.system.uses()) for user in self.replicas_of(service)
        ]
        return pairs + [
            (LOAD_GENERATOR, callee.id) for asked in sorted(self.system.asked()) for callee in self.replicas_of(asked)
        ]

    def resource(self, replica: Replica) -> dict[str, str]:
        """Return the OpenTelemetry resource attributes of *replica*: service and Kubernetes names."""
        return {
            "service.name": replica.service,
            "k8s.namespace.name": self.system.system,
            "k8s.node.name": replica.host,
            "k8s.service.name": replica.service,
            "k8s.deployment.name": replica.service,
            "k8s.replicaset.name": f"{replica.service}-{self._replica_sets[replica.service]}",
            "k8s.pod.name": replica.pod,
            "k8s.container.name": replica.service,
        }


def window_difference(process: Counted, since: float, until: float | None = None) -> dict[str, tuple[int, int, int]]:
    """Return {activity: (count, errors, duration_ns)} of *process* between two monotonic times (None: now)."""
    samples = [(t, s) for t, s in process.history if t >= since and (until is None or t <= until)]
    totals: dict[str, tuple[int, int, int]] = {}
    for (_, earlier), (_, later) in itertools.pairwise(samples):
        for activity, row in later.items():
            base = earlier.get(activity, [0, 0, 0])
            step = tuple(b - a for a, b in zip(base, row, strict=True)) if row[0] >= base[0] else tuple(row)
            before = totals.get(activity, (0, 0, 0))
            totals[activity] = (before[0] + step[0], before[1] + step[1], before[2] + step[2])
    return totals


def require_own_rate(system: System) -> None:
    """Raise RefusedError when the load of *system* is a command, whose rate OpsAssay cannot change."""
    if system.load.command:
        raise RefusedError(
            f"The load of {system.system} is {system.load.command_line}, which alone says how much it sends."
        )


async def sleep_until(condition: Any, timeout_s: float, every_s: float = 0.05) -> bool:
    """Call *condition* every *every_s* seconds until it is true; return False if it is not after *timeout_s*."""
    import asyncio  # 30 ms, which each reader of the catalogue would pay

    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            return False
        await asyncio.sleep(every_s)
    return True
