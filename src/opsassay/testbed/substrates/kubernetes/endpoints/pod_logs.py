"""Records pods of an existing namespace through the Kubernetes API: log lines, container states and use, events.

A container is followed from the start of the session or of the container; its lines are kept when its pod is gone.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from datetime import datetime
from pathlib import Path

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord, ResourceLogs

from opsassay.core.errors import OpsAssayError
from opsassay.telemetry.otlp.spool import Kind, SpoolFile, frame_header, spool_path
from opsassay.testbed.substrates.kubernetes.api.client import Api, DeniedError, Object
from opsassay.testbed.substrates.kubernetes.api.mirror import Mirror
from opsassay.testbed.substrates.kubernetes.api.readings import (
    cores,
    is_over,
    is_ready,
    memory_bytes,
    owner_of,
    service_of,
)
from opsassay.testbed.workload.runtime.program_output import LEVELS, OutputLine, read_line
from opsassay.testbed.workload.sampler import resource_metrics

STATES_EVERY_S, RECORDS_PER_FRAME = 5.0, 5_000
RETRY_S, TRIES = 0.5, 20
"""A container whose log cannot be read is asked again: it may be about to start."""


class PodLogs:
    """Follows the pods of *services* in *namespace* from now on, until `stop`."""

    def __init__(self, api: Api, namespace: str, services: tuple[str, ...]) -> None:
        self._api, self._namespace, self._services = api, namespace, frozenset(services)
        self._opened_ns = time.time_ns()
        self._records: list[tuple[Object, LogRecord]] = []
        self._states: list[ExportMetricsServiceRequest] = []
        self._followed: set[tuple[str, str, int]] = set()
        self._seen: dict[str, Object] = {}
        self._measured: dict[tuple[str, str], str | None] = {}
        self._stopping = threading.Event()
        self._pods = Mirror(api, "Pod", namespace, self._follow_pod)
        self._sampling = threading.Thread(target=self._sample, name="pod-states", daemon=True)
        self._pods.start()
        self._pods.wait()
        self._sampling.start()

    def stop(self) -> None:
        """Stop following pods; the threads are not awaited: each ends with its next line or wait."""
        self._stopping.set()
        self._pods.stop()

    def write(self, folder: Path) -> None:
        """Stop, and append lines, states and events to a closed session's spool in *folder*; events only if permitted."""
        self.stop()
        events = list[Object]()
        with suppress(DeniedError):
            events = self._api.list("Event", self._namespace)
        records = sorted([*self._records, *self._records_of_events(events)], key=lambda one: one[1].time_unix_nano)
        for start in range(0, len(records), RECORDS_PER_FRAME):
            part = records[start : start + RECORDS_PER_FRAME]
            _append(folder, "logs", ExportLogsServiceRequest(resource_logs=list(_by_resource(part))))
        for request in self._states:
            _append(folder, "metrics", request)

    def _follow_pod(self, event: str, pod: Object) -> None:
        """Start a reader thread per newly running container of *pod* (a watch *event*), if the pod is of a service."""
        if event == "DELETED" or service_of(pod) not in self._services:
            return
        self._seen[pod["metadata"]["name"]] = pod
        for state in pod.get("status", {}).get("containerStatuses") or ():
            name, starts = state["name"], int(state["restartCount"])
            key = (pod["metadata"]["uid"], name, starts)
            if "running" not in state.get("state", {}) or key in self._followed:
                continue
            self._followed.add(key)
            thread = threading.Thread(target=self._read_container, args=(pod, name), name=f"log-{name}", daemon=True)
            thread.start()

    def _read_container(self, pod: Object, container: str) -> None:
        """Store the log lines of *container* of *pod* until the container or the session ends; runs in a thread."""
        path = f"{self._api.path_of('Pod', self._namespace, pod['metadata']['name'])}/log"
        since = datetime.fromtimestamp(self._opened_ns / 1e9).astimezone().isoformat(timespec="seconds")
        query = {"container": container, "follow": "true", "timestamps": "true", "sinceTime": since}
        for _ in range(TRIES):
            try:
                for line in self._api.lines(path, query):
                    if self._stopping.is_set():
                        return
                    self._keep(pod, container, line.decode(errors="replace"))
            except OpsAssayError:
                if self._stopping.wait(RETRY_S):
                    return
            else:
                return

    def _keep(self, pod: Object, container: str, line: str) -> None:
        """Store *line* ("TIME TEXT") of *container* of *pod* as a log record, unless it is older than the session."""
        time_text, _, text = line.partition(" ")
        with suppress(ValueError):
            time_ns = _nanoseconds(time_text)
            if text.strip() and time_ns >= self._opened_ns:
                self._records.append((resource_of(pod, container), _record(time_ns, read_line(text.rstrip()))))

    def _sample(self) -> None:
        """Every STATES_EVERY_S s store readiness of pods, and restarts and use of containers; runs in a thread."""
        while not self._stopping.wait(STATES_EVERY_S):
            now_ns, found = time.time_ns(), []
            there = [one for one in self._pods.all() if service_of(one) in self._services and not is_over(one)]
            used = self._usage({pod["spec"].get("nodeName") for pod in there} - {None})
            for pod in there:
                for state in pod.get("status", {}).get("containerStatuses") or ():
                    values = {
                        "k8s.container.restarts": float(state["restartCount"]),
                        "k8s.pod.ready": float(is_ready(pod)),
                    }
                    resource = resource_of(pod, state["name"])
                    found.append(resource_metrics(resource, values.items(), now_ns))
                    measured = used.get((pod["metadata"]["uid"], state["name"]), {})
                    if usage := usage_of(pod, state["name"], measured):
                        found.append(resource_metrics(resource, usage.items(), _nanoseconds(measured["cpu"]["time"])))
            self._states.append(ExportMetricsServiceRequest(resource_metrics=found))

    def _usage(self, nodes: set[str]) -> dict[tuple[str, str], Object]:
        """Return {(pod uid, container): its new entry in the kubelet's summary}; *nodes* that refuse are skipped."""
        found = {}
        for node in sorted(nodes):
            with suppress(OpsAssayError):  # this user may not ask it, or it is down
                path = f"{self._api.path_of('Node', None, node)}/proxy/stats/summary"
                summary = self._api.request("GET", path, timeout_s=STATES_EVERY_S, tries=1)
                for pod in summary["pods"]:
                    for container in pod.get("containers") or ():
                        key, at = (pod["podRef"]["uid"], container["name"]), container.get("cpu", {}).get("time")
                        if self._measured.get(key) != at:
                            self._measured[key], found[key] = at, container
        return found

    def _records_of_events(self, events: list[Object]) -> Iterator[tuple[Object, LogRecord]]:
        """Yield (resource, log record) for each of *events* on a pod of the services since the session began."""
        for event in events:
            about, when = event.get("involvedObject") or {}, event.get("lastTimestamp") or event.get("eventTime")
            pod = self._seen.get(about.get("name", ""))
            if (
                about.get("kind") != "Pod"
                or pod is None
                or not when
                or (time_ns := _nanoseconds(when)) < self._opened_ns
            ):
                continue
            level = "WARN" if event.get("type") == "Warning" else "INFO"
            said = OutputLine(LEVELS[level], level, f"{event.get('reason', '')}: {event.get('message', '')}")
            yield resource_of(pod, ""), _record(time_ns, said)


def usage_of(pod: Object, name: str, measured: Object) -> dict[str, float]:
    """Return {metric: value} of container *name* of *pod* from *measured*, its kubelet's summary; {} if incomplete."""
    cpu, memory = measured.get("cpu", {}), measured.get("memory", {})
    if "usageNanoCores" not in cpu or "workingSetBytes" not in memory:
        return {}
    used, held = cpu["usageNanoCores"] / 1e9, float(memory["workingSetBytes"])
    found = {
        "container.cpu.usage": used,
        "container.cpu.time": cpu.get("usageCoreNanoSeconds", 0) / 1e9,
        "container.memory.working_set": held,
    }
    container: Object = next((one for one in pod["spec"]["containers"] if one["name"] == name), {})
    limits = (container.get("resources") or {}).get("limits") or {}
    if "cpu" in limits:
        found["container.cpu.limit_utilization"] = used / cores(str(limits["cpu"]))
    if "memory" in limits:
        found["container.memory.limit_utilization"] = held / memory_bytes(str(limits["memory"]))
    return found


def resource_of(pod: Object, container: str) -> dict[str, str]:
    """Return the OpenTelemetry resource attributes of *container* of *pod*; of the pod alone for ''."""
    kind, owner = owner_of(pod) or ("", "")
    service, metadata = service_of(pod), pod["metadata"]
    found = {
        "service.name": service,
        "k8s.namespace.name": metadata["namespace"],
        "k8s.node.name": pod["spec"].get("nodeName", ""),
        "k8s.deployment.name" if kind == "ReplicaSet" else "k8s.statefulset.name": service,
        "k8s.replicaset.name": owner if kind == "ReplicaSet" else "",
        "k8s.pod.name": metadata["name"],
        "k8s.container.name": container,
    }
    return {key: value for key, value in found.items() if value}


def _nanoseconds(text: str) -> int:
    """Return the time *text* (RFC 3339 in UTC, with up to nine digits of a second) in ns; raises ValueError."""
    whole, _, rest = text.partition(".")
    digits = rest.removesuffix("Z")
    seconds = datetime.fromisoformat(f"{whole.removesuffix('Z')}+00:00").timestamp()
    return int(seconds) * 10**9 + int(digits[:9].ljust(9, "0") or 0)


def _record(time_ns: int, line: OutputLine) -> LogRecord:
    """Return the log *line*, written at *time_ns* (ns since 1970), as an OTLP log record."""
    record = LogRecord(time_unix_nano=time_ns, severity_text=line.level, severity_number=line.number)  # type: ignore[arg-type]
    record.body.string_value = line.body
    if line.trace_id and line.span_id:
        record.trace_id, record.span_id = line.trace_id.to_bytes(16, "big"), line.span_id.to_bytes(8, "big")
    return record


def _by_resource(records: Iterable[tuple[Object, LogRecord]]) -> Iterator[ResourceLogs]:
    """Yield one message for each resource of *records*, with its records in order of time."""
    groups: dict[tuple[tuple[str, str], ...], list[LogRecord]] = {}
    for resource, record in records:
        groups.setdefault(tuple(resource.items()), []).append(record)
    for attributes, own in groups.items():
        message = ResourceLogs()
        message.resource.attributes.extend(KeyValue(key=k, value=AnyValue(string_value=v)) for k, v in attributes)
        message.scope_logs.add().log_records.extend(own)
        yield message


def _append(folder: Path, signal: str, request: ExportLogsServiceRequest | ExportMetricsServiceRequest) -> None:
    """Append *request* to the spool file of *signal* (logs, metrics) in *folder*, as the receiver does."""
    payload = request.SerializeToString()
    spool = SpoolFile(spool_path(folder, signal))
    try:
        spool.append(frame_header(time.time_ns(), Kind.PROTOBUF, payload), payload)
    finally:
        spool.close()
