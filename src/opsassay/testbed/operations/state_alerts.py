"""Alert rules over a system's state, besides golden signals: pods, workloads, nodes, control plane, autoscalers, budgets.

The state is the observer's record, tick by tick, so that the rules apply to every substrate. A rule has a severity, and
fires when its condition has held for ``for_s``.
"""

from __future__ import annotations

import statistics
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Generic, Literal, NamedTuple, Protocol, TypeVar

from opsassay.core.schema.cost import CostReading
from opsassay.core.schema.incident import Alert
from opsassay.core.schema.run_folder import COST
from opsassay.core.schema.scenario import AlertSignal, Spread, Verification
from opsassay.core.schema.trajectory import CONTROL_PLANE_SUFFIX, ControlPlaneReading, Entity, Tick


class AlertDefinition(NamedTuple):
    """The severity of an alert, the seconds for which its condition must hold, and its subject."""

    severity: Literal["critical", "warning"]
    for_s: float
    about: Literal["request", "pod", "workload", "node", "control plane", "autoscaler", "budget"]


DEFINITIONS: Mapping[AlertSignal, AlertDefinition] = {
    "error_rate": AlertDefinition("critical", 0.0, "request"),
    "latency_p99_ms": AlertDefinition("warning", 0.0, "request"),
    "traffic_rps": AlertDefinition("warning", 0.0, "request"),
    "saturation": AlertDefinition("warning", 0.0, "request"),
    "probe_failed": AlertDefinition("critical", 0.0, "request"),
    "pod_not_ready": AlertDefinition("warning", 15.0, "pod"),
    "replicas_missing": AlertDefinition("critical", 6.0, "workload"),
    "backends_missing": AlertDefinition("critical", 6.0, "workload"),
    "placement": AlertDefinition("warning", 6.0, "workload"),
    "node_not_ready": AlertDefinition("critical", 6.0, "node"),
    "control_plane_part": AlertDefinition("critical", 6.0, "control plane"),
    "control_plane_latency_s": AlertDefinition("warning", 6.0, "control plane"),
    "autoscaler_at_limit": AlertDefinition("warning", 30.0, "autoscaler"),
    "budget_spent": AlertDefinition("warning", 0.0, "budget"),
}
"""The rules by signal. A golden signal needs no time, since its window is ten seconds already."""
LATENCY_READINGS = 3


@dataclass
class ObservedState:
    """The state of a system at one instant.

    *autoscalers* are (replicas, most replicas) by service, *budgets* (spent, granted) in USD per hour; both are empty where
    costs are not read.
    """

    entities: dict[str, Entity] = field(default_factory=dict)
    without_backends: tuple[str, ...] = ()
    failing_parts: tuple[str, ...] = ()
    unreachable: dict[str, bool] = field(default_factory=dict)
    nodes_not_ready: tuple[str, ...] = ()
    latencies_s: deque[float] = field(default_factory=lambda: deque(maxlen=LATENCY_READINGS))
    autoscalers: dict[str, tuple[float, float]] = field(default_factory=dict)
    budgets: dict[str, tuple[float, float]] = field(default_factory=dict)

    def take(self, tick: Tick) -> None:
        """Update the state by *tick* of the timeline; values that could not be read leave it unchanged."""
        self.entities.update((entity.id, entity) for entity in tick.entities)
        for name in tick.gone:
            self.entities.pop(name, None)
        for one in tick.observations:
            if one.value is not None and one.depth == "D2":
                self.without_backends = one.failing
            elif one.value is not None and one.depth == "D4":
                self.failing_parts = one.failing
        self.unreachable |= {probe.target: not probe.reachable for probe in tick.probes}

    def take_health(self, reading: ControlPlaneReading) -> None:
        """Update lost nodes and the API server's latency by the *reading* of a cluster's control plane."""
        self.nodes_not_ready = reading.nodes_not_ready
        self.latencies_s.append(reading.latency_s)

    def take_cost(self, reading: CostReading) -> None:
        """Update autoscalers (present and most replicas) and the budget by the cost *reading*."""
        self.autoscalers = {
            service: (reading.services[service].replicas, most)
            for service, most in reading.most_replicas.items()
            if service in reading.services
        }
        self.budgets = {} if reading.budget_usd is None else {"budget": (reading.hourly_usd, reading.budget_usd)}

    def ready(self) -> Counter[str]:
        """Return {service: number of ready replicas}; services without one are left out."""
        return Counter(entity.service for entity in self.entities.values() if entity.ready)


class StateFinding(NamedTuple):
    """One condition that holds: its service or part, signal, value and threshold, and a description."""

    service: str
    signal: AlertSignal
    value: float
    threshold: float
    words: str


class AlertSource(Protocol):
    """An object that evaluates alert rules."""

    def firing(self) -> tuple[int, list[Alert]]:
        """Return (latest UTC ns with complete data, alerts that fire then); raises OpsAssayError when unknown."""


class StateAlerts:
    """The rules over the state in the observer's *timeline*, with the latency and placement limits of *committed*.

    Costs are read from the file next to the timeline, if any. The replicas that were ready at *usual_until_ns*, before the
    fault, are the required ones.
    """

    def __init__(self, timeline: Path, committed: Verification, usual_until_ns: int) -> None:
        self._ticks = _Lines(timeline, Tick.model_validate_json, _last_end_ns)
        self._health = _Lines(
            timeline.with_suffix(CONTROL_PLANE_SUFFIX), ControlPlaneReading.model_validate_json, lambda one: one.time_ns
        )
        self._costs = _Lines(timeline.with_name(COST), CostReading.model_validate_json, lambda one: one.time_ns)
        self._spread = committed.placement.spread if committed.placement is not None else ()
        self._latency_s = committed.control_plane.api_latency_s if committed.control_plane is not None else None
        self._usual_until_ns = usual_until_ns
        self._expected: Counter[str] = Counter()
        self.state = ObservedState()

    def findings(self, at_ns: int) -> list[StateFinding]:
        """Return every alert condition that holds at *at_ns*."""
        for tick in self._ticks.read_until(at_ns):
            self.state.take(tick)
            if _last_end_ns(tick) <= self._usual_until_ns:
                self._expected = self.state.ready()
        for reading in self._health.read_until(at_ns):
            self.state.take_health(reading)
        for cost in self._costs.read_until(at_ns):
            self.state.take_cost(cost)
        return [*self._find_in_workloads(), *self._find_in_parts(), *_find_at_limits(self.state)]

    def _find_in_workloads(self) -> Iterator[StateFinding]:
        """Yield findings on pods, missing replicas and backends, placement and failed probes."""
        state, ready = self.state, self.state.ready()
        for service, count in Counter(e.service for e in state.entities.values() if not e.ready).items():
            yield StateFinding(service, "pod_not_ready", count, 0, f"{count} replicas are not ready")
        for service, count in self._expected.items():
            if ready[service] < count:
                words = f"{ready[service]} of {count} replicas are ready"
                yield StateFinding(service, "replicas_missing", ready[service], count, words)
        for service in state.without_backends:
            yield StateFinding(service, "backends_missing", 0, 1, "no backend is ready")
        for rule in self._spread:
            if (problem := _find_crowding(rule, state.entities.values())) is not None:
                yield problem
        for service, unreachable in state.unreachable.items():
            if unreachable:
                yield StateFinding(service, "probe_failed", 0, 1, "a request from outside is not answered")

    def _find_in_parts(self) -> Iterator[StateFinding]:
        """Yield findings on nodes, parts of the control plane and the API server's latency."""
        for node in self.state.nodes_not_ready:
            yield StateFinding(node, "node_not_ready", 0, 1, "the node is not Ready")
        for part in self.state.failing_parts:
            yield StateFinding(part, "control_plane_part", 0, 1, "a critical part fails")
        if self._latency_s is not None and len(self.state.latencies_s) == LATENCY_READINGS:
            latency_s = statistics.median(self.state.latencies_s)
            if latency_s > self._latency_s:
                words = f"the API server answers in {latency_s:.2f} s"
                yield StateFinding("control-plane", "control_plane_latency_s", latency_s, self._latency_s, words)


class AlertRules:
    """All rules: the golden signals of *live* telemetry, if any, and those over the *state*.

    A condition fires when it has held for its ``for_s``; without *live*, evaluation is *delay_s* behind the present.
    """

    def __init__(self, live: AlertSource | None, state: StateAlerts, delay_s: float) -> None:
        self._live, self._state, self._delay_s = live, state, delay_s
        self._since: dict[tuple[str, str], int] = {}
        self._lock = threading.Lock()

    def firing(self) -> tuple[int, list[Alert]]:
        """Return (time_ns, alerts): the latest UTC time with complete data, and the alerts that fire then."""
        with self._lock:
            at_ns, golden = (time.time_ns() - int(self._delay_s * 1e9), list[Alert]())
            if self._live is not None:
                at_ns, golden = self._live.firing()
            held = [_make_alert(one, at_ns) for one in self._state.findings(at_ns)]
            return at_ns, self._keep_lasting([*golden, *held], at_ns)

    def _keep_lasting(self, alerts: Iterable[Alert], at_ns: int) -> list[Alert]:
        """Return those *alerts*, which fire at *at_ns*, that have lasted their rule's ``for_s``, with its severity."""
        present = {(alert.service, alert.signal): alert for alert in alerts}
        self._since = {key: self._since.get(key, at_ns) for key in present}
        return [
            alert.model_copy(update={"severity": definition.severity})
            for key, alert in sorted(present.items())
            for definition in (DEFINITIONS[alert.signal],)  # type: ignore[index]
            if at_ns - self._since[key] >= definition.for_s * 1e9
        ]


T = TypeVar("T")


class _Lines(Generic[T]):
    """Reads the lines that are appended to the file at *path*, parsed, each once its end time has come."""

    def __init__(self, path: Path, parse: Callable[[str], T], ends_ns: Callable[[T], int]) -> None:
        self._path, self._parse, self._ends_ns = path, parse, ends_ns
        self._offset, self._waiting = 0, deque[T]()

    def read_until(self, at_ns: int) -> Iterator[T]:
        """Yield, parsed, the file's lines not yet yielded that end at *at_ns* or before; an incomplete one waits."""
        if self._path.exists():
            with self._path.open("rb") as stream:
                stream.seek(self._offset)
                whole, newline, _ = stream.read().rpartition(b"\n")
            self._offset += len(whole) + len(newline)
            lines = [line for line in whole.decode().splitlines() if line and "boot_id" not in line[:12]]
            self._waiting.extend(self._parse(line) for line in lines)
        while self._waiting and self._ends_ns(self._waiting[0]) <= at_ns:
            yield self._waiting.popleft()


def _last_end_ns(tick: Tick) -> int:
    """Return the UTC ns when the last observation of *tick* ended, 0 without one; request probes do not count."""
    return max((one.ended_ns for one in tick.observations if one.depth != "D3"), default=0)


def _find_at_limits(state: ObservedState) -> Iterator[StateFinding]:
    """Yield a finding for each autoscaler at its maximum and each budget that is exceeded."""
    for name, (replicas, most) in state.autoscalers.items():
        if replicas >= most:
            yield StateFinding(name, "autoscaler_at_limit", replicas, most, f"it runs all of its {most:g} replicas")
    for name, (spent, granted) in state.budgets.items():
        if spent > granted:
            yield StateFinding(
                name, "budget_spent", spent, granted, f"{spent:.4g} of {granted:.4g} USD an hour are spent"
            )


def _find_crowding(rule: Spread, entities: Iterable[Entity]) -> StateFinding | None:
    """Return a finding when ready replicas among *entities* are on too few hosts for *rule*, or too uneven; or None."""
    hosts = Counter(e.host for e in entities if e.service == rule.service and e.ready and e.host is not None)
    skew = max(hosts.values(), default=0) - min(hosts.values(), default=0)
    uneven = rule.max_skew is not None and skew > rule.max_skew
    if not hosts or (len(hosts) >= rule.min_hosts and not uneven):
        return None
    words = f"its replicas run on {len(hosts)} hosts, at most {max(hosts.values())} on one"
    return StateFinding(rule.service, "placement", len(hosts), rule.min_hosts, words)


def _make_alert(finding: StateFinding, at_ns: int) -> Alert:
    """Return the alert of *finding* at *at_ns* (UTC)."""
    message = f"{finding.service}: {finding.words}"
    return Alert(time_ns=at_ns, service=finding.service, signal=finding.signal, value=finding.value,
                 threshold=finding.threshold, message=message)  # fmt: skip
