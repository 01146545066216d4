"""Resource metrics of every replica, read from outside and sent to the receiver over OTLP, as by a collector."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path

import aiohttp
import psutil
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.metrics.v1.metrics_pb2 import AggregationTemporality, Metric, ResourceMetrics

from opsassay.testbed.core.fleet import Fleet, Replica
from opsassay.testbed.kernel.cgroups import Usage
from opsassay.testbed.kernel.runqueue import Waits, threads_of
from opsassay.testbed.workload.containers import Containers

UNITS = {
    "container.cpu.time": "s",
    "container.cpu.usage": "{cpu}",
    "container.cpu.limit_utilization": "1",
    "container.cpu.throttled.time": "s",
    "container.cpu.runqueue.time": "s",
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
CUMULATIVE = frozenset(
    {
        "container.cpu.time",
        "container.cpu.throttled.time",
        "container.cpu.runqueue.time",
        *(name for name in UNITS if name.startswith("container.network.")),
    }
)
"""Metrics that are cumulative sums; the others are gauges."""


class Sampler:
    """Converts the usage of control groups, or of processes without them, to container metrics.

    *companions* are processes that count for a replica's container or a host. *interface* is the replica's data interface
    in its network namespace, None without one.
    """

    def __init__(
        self,
        fleet: Fleet,
        endpoint: str,
        companions: Mapping[str, Collection[int]],
        containers: Containers,
        interface: str | None = None,
    ) -> None:
        self._fleet, self._endpoint, self._companions = fleet, endpoint, companions
        self._containers, self._interface = containers, interface
        self._cpu: dict[str, tuple[float, float]] = {}
        self._waits: defaultdict[str, Waits] = defaultdict(Waits)

    async def send(self, session: aiohttp.ClientSession) -> None:
        """Read the resource usage of all replicas and hosts once and send it to the receiver by *session*."""
        body = self.request().SerializeToString()
        headers = {"Content-Type": "application/x-protobuf"}
        async with session.post(f"{self._endpoint}/v1/metrics", data=body, headers=headers) as response:
            await response.read()

    def request(self) -> ExportMetricsServiceRequest:
        """Return one reading of the resource usage of all replicas and hosts as an OTLP export request."""
        now_ns = time.time_ns()
        resources = [
            resource_metrics(self._fleet.resource(replica), self._read_replica(replica).items(), now_ns)
            for replica in self._fleet.replicas.values()
        ]
        for host in self._fleet.system.hosts:
            used = self._of_host(host)
            cores = self._cores(host, used.cpu_s)
            resources.append(resource_metrics({"k8s.node.name": host}, [("k8s.node.cpu.usage", cores)], now_ns))
        return ExportMetricsServiceRequest(resource_metrics=resources)

    def _read_replica(self, replica: Replica) -> dict[str, float]:
        """Return {metric name: value} for the container of *replica*."""
        values = {"k8s.container.restarts": float(replica.restarts), "k8s.pod.ready": float(replica.ready)}
        inside = replica.pid is not None or self._companions.get(replica.id)
        if not inside or (used := self._of_container(replica)) is None:
            return values
        cores, limit_bytes = self._cores(replica.id, used.cpu_s), replica.spec.memory_limit_mb * 2**20
        values |= {
            "container.cpu.time": used.cpu_s,
            "container.cpu.usage": cores,
            "container.cpu.limit_utilization": cores / replica.spec.cpu_limit,
            "container.memory.working_set": float(used.memory_bytes),
            "container.memory.limit_utilization": used.memory_bytes / limit_bytes,
        }
        if self._containers.there:
            values["container.cpu.throttled.time"] = used.throttled_s
        if (waited_s := self._waits[replica.id].add(self._threads(replica))) is not None:
            values["container.cpu.runqueue.time"] = waited_s
        if self._interface is not None and replica.pid is not None:
            values |= network_counters(replica.pid, self._interface)
        return values

    def _of_container(self, replica: Replica) -> Usage | None:
        """Return the resource usage of the container of *replica*, None when it does not run."""
        if (used := self._containers.usage(self._containers.group_of(replica))) is not None:
            return used
        own = _of_processes([replica.pid] if replica.pid is not None else [])
        beside = _of_processes(self._companions.get(replica.id, ()), forked=True)
        return (
            Usage(own.cpu_s + beside.cpu_s, own.memory_bytes + beside.memory_bytes, 0.0) if own.memory_bytes else None
        )

    def _threads(self, replica: Replica) -> list[int]:
        """Return the thread ids in the container of *replica*, those of processes of faults included."""
        own = [replica.pid] if replica.pid is not None else []
        return self._containers.threads(self._containers.group_of(replica)) or threads_of(
            [*own, *self._companions.get(replica.id, ())]
        )

    def _of_host(self, host: str) -> Usage:
        """Return the resource usage of all replicas on *host*, and of processes by which faults use its resources."""
        if (used := self._containers.usage(self._containers.of_host(host))) is not None:
            return used
        here = [replica for replica in self._fleet.replicas.values() if replica.host == host]
        pids = [replica.pid for replica in here if replica.pid is not None]
        pids += [pid for name in (host, *(replica.id for replica in here)) for pid in self._companions.get(name, ())]
        return _of_processes(pids)

    def _cores(self, name: str, cpu_s: float) -> float:
        """Return the cores that *name* used since its last reading, from its CPU seconds *cpu_s*; 0 if unknown."""
        now = time.monotonic()
        before = self._cpu.get(name)
        self._cpu[name] = (now, cpu_s)
        if before is None or cpu_s < before[1] or now <= before[0]:
            return 0.0
        return (cpu_s - before[1]) / (now - before[0])


def _of_processes(pids: Iterable[int], *, forked: bool = False) -> Usage:
    """Return the summed resource usage of *pids*; *forked*: without memory shared with the process they came from."""
    cpu_s, memory = 0.0, 0
    for pid in pids:
        try:
            process = psutil.Process(pid)
            cpu_s += sum(process.cpu_times()[:2])
            memory += process.memory_full_info().uss if forked else process.memory_info().rss
        except psutil.Error:
            continue  # it has just ended; the next reading tells
    return Usage(cpu_s, memory, 0.0)


def network_counters(pid: int, interface: str) -> dict[str, float]:
    """Return counters of *interface* and of TCP in the network namespace of *pid*; {} when the process has ended."""
    try:
        devices = Path(f"/proc/{pid}/net/dev").read_text().splitlines()
        names, numbers = (
            line.split()[1:] for line in Path(f"/proc/{pid}/net/snmp").read_text().splitlines() if line[:4] == "Tcp:"
        )
    except OSError:
        return {}
    own = (line.partition(":")[2].split() for line in devices if line.strip().startswith(f"{interface}:"))
    if (moved := next(own, None)) is None:
        return {}  # it has just been forked and is not in its own network yet
    tcp = dict(zip(names, numbers, strict=True))
    return {
        "container.network.receive.bytes": float(moved[0]),
        "container.network.receive.packets": float(moved[1]),
        "container.network.transmit.bytes": float(moved[8]),
        "container.network.transmit.packets": float(moved[9]),
        "container.network.tcp.retransmits": float(tcp["RetransSegs"]),
        "container.network.tcp.checksum_errors": float(tcp["InCsumErrors"]),
    }


def resource_metrics(resource: Mapping[str, str], values: Iterable[tuple[str, float]], now_ns: int) -> ResourceMetrics:
    """Return (metric name, number) pairs *values* of one *resource* at *now_ns* (UTC) as an OTLP message."""
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
