"""Resource metrics of every replica, sampled from outside and sent to the receiver over OTLP like any collector's."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path

import aiohttp
import psutil
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.metrics.v1.metrics_pb2 import AggregationTemporality, Metric, ResourceMetrics

from assay.testbed.local.fleet import Fleet, Replica

UNITS = {
    "container.cpu.time": "s",
    "container.cpu.usage": "{cpu}",
    "container.cpu.limit_utilization": "1",
    "container.memory.working_set": "By",
    "container.memory.limit_utilization": "1",
    "container.network.receive.bytes": "By",
    "container.network.receive.packets": "{packet}",
    "container.network.transmit.bytes": "By",
    "container.network.transmit.packets": "{packet}",
    "container.network.tcp.retransmits": "{segment}",
    "container.network.tcp.checksum_errors": "{segment}",
    "k8s.container.restarts": "{restart}",
    "k8s.pod.ready": "1",
    "k8s.node.cpu.usage": "{cpu}",
}
CUMULATIVE = frozenset({"container.cpu.time", *(name for name in UNITS if name.startswith("container.network."))})
"""Sums that only grow; the others are gauges."""


class Sampler:
    """Turns process accounting into container metrics; *companions* are processes that count to a replica's container.

    *interface* is what a replica exchanges data over, in a network namespace of its own; None where it has no such.
    """

    def __init__(
        self, fleet: Fleet, endpoint: str, companions: Mapping[str, Collection[int]], interface: str | None = None
    ) -> None:
        self._fleet, self._endpoint, self._companions, self._interface = fleet, endpoint, companions, interface
        self._cpu: dict[int, tuple[float, float]] = {}

    async def send(self, session: aiohttp.ClientSession) -> None:
        """Sample every replica once and send the readings."""
        body = self.request().SerializeToString()
        headers = {"Content-Type": "application/x-protobuf"}
        async with session.post(f"{self._endpoint}/v1/metrics", data=body, headers=headers) as response:
            await response.read()

    def request(self) -> ExportMetricsServiceRequest:
        """Return one reading of every replica and host as an OTLP request."""
        now_ns = time.time_ns()
        by_host: dict[str, float] = {}
        resources = []
        for replica in self._fleet.replicas.values():
            values = self._reading(replica)
            by_host[replica.host] = by_host.get(replica.host, 0.0) + values.get("container.cpu.usage", 0.0)
            resources.append(_resource_metrics(self._fleet.resource(replica), values.items(), now_ns))
        for host, cores in by_host.items():
            cores += sum(self._cores_of(pid) for pid in self._companions.get(host, ()))  # noqa: PLW2901
            resources.append(_resource_metrics({"k8s.node.name": host}, [("k8s.node.cpu.usage", cores)], now_ns))
        return ExportMetricsServiceRequest(resource_metrics=resources)

    def _reading(self, replica: Replica) -> dict[str, float]:
        values = {"k8s.container.restarts": float(replica.restarts), "k8s.pod.ready": float(replica.ready)}
        cores, seconds, memory, alive = 0.0, 0.0, 0, False
        for pid in (replica.pid, *self._companions.get(replica.id, ())):
            if pid is None:
                continue
            try:
                process = psutil.Process(pid)
                cores += self._cores(process)
                seconds += sum(process.cpu_times()[:2])
                own = pid == replica.pid  # a companion is forked: most of its pages are the template's
                memory += process.memory_info().rss if own else process.memory_full_info().uss
                alive = True
            except psutil.Error:
                continue  # it has just ended; the next reading tells
        if alive:
            limit_bytes = replica.spec.memory_limit_mb * 2**20
            values |= {
                "container.cpu.time": seconds,
                "container.cpu.usage": cores,
                "container.cpu.limit_utilization": cores / replica.spec.cpu_limit,
                "container.memory.working_set": float(memory),
                "container.memory.limit_utilization": memory / limit_bytes,
            }
        if self._interface is not None and replica.pid is not None:
            values |= network_counters(replica.pid, self._interface)
        return values

    def _cores_of(self, pid: int) -> float:
        try:
            return self._cores(psutil.Process(pid))
        except psutil.Error:
            return 0.0  # it has just ended

    def _cores(self, process: psutil.Process) -> float:
        """Return the cores that *process* used since the last reading; 0 at the first."""
        times, now = process.cpu_times(), time.monotonic()
        used = times.user + times.system
        before = self._cpu.get(process.pid)
        self._cpu[process.pid] = (now, used)
        if before is None or used < before[1] or now <= before[0]:
            return 0.0
        return (used - before[1]) / (now - before[0])


def network_counters(pid: int, interface: str) -> dict[str, float]:
    """Return what the network namespace of *pid* counts on *interface* and of TCP; {} when the process has ended."""
    try:
        devices = Path(f"/proc/{pid}/net/dev").read_text().splitlines()
        names, numbers = (
            line.split()[1:] for line in Path(f"/proc/{pid}/net/snmp").read_text().splitlines() if line[:4] == "Tcp:"
        )
    except OSError:
        return {}
    moved = next(line.partition(":")[2].split() for line in devices if line.strip().startswith(f"{interface}:"))
    tcp = dict(zip(names, numbers, strict=True))
    return {
        "container.network.receive.bytes": float(moved[0]),
        "container.network.receive.packets": float(moved[1]),
        "container.network.transmit.bytes": float(moved[8]),
        "container.network.transmit.packets": float(moved[9]),
        "container.network.tcp.retransmits": float(tcp["RetransSegs"]),
        "container.network.tcp.checksum_errors": float(tcp["InCsumErrors"]),
    }


def _resource_metrics(resource: Mapping[str, str], values: Iterable[tuple[str, float]], now_ns: int) -> ResourceMetrics:
    message = ResourceMetrics()
    message.resource.attributes.extend(KeyValue(key=k, value=AnyValue(string_value=v)) for k, v in resource.items())
    scope = message.scope_metrics.add()
    for name, value in values:
        metric = Metric(name=name, unit=UNITS[name])
        if name in CUMULATIVE:
            metric.sum.is_monotonic = True
            metric.sum.aggregation_temporality = AggregationTemporality.AGGREGATION_TEMPORALITY_CUMULATIVE
        points = metric.sum.data_points if name in CUMULATIVE else metric.gauge.data_points
        points.add(time_unix_nano=now_ns, as_double=value)
        scope.metrics.append(metric)
    return message
