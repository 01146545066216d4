"""The one rule by which names and labels of backends become those of a datapack.

A metric keeps its name, but one that OpsAssay itself reads under OpenTelemetry's name gets that back:
``container_cpu_usage`` is ``container.cpu.usage``. The service is the first of the labels `service` that is there.
Places in Kubernetes have columns; ``instance`` stands for the pod where none is said. A label that has no column and is not
dropped goes into the metric's name, so that no two series become one: ``http_requests_total{code="500"}``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from opsassay.core.schema.backends import TeamBackends
from opsassay.telemetry.backends.naming import label_name, metric_name, otlp_label_name
from opsassay.telemetry.schema import SCHEMA

_NETWORK = ("transmit.packets", "transmit.bytes", "receive.packets", "receive.bytes", "tcp.retransmits")
_READ_METRICS = (
    "container.cpu.usage", "container.cpu.time", "container.cpu.throttled.time", "container.cpu.runqueue.time",
    "container.cpu.limit_utilization", "container.memory.working_set", "container.memory.limit_utilization",
    *(f"container.network.{name}" for name in _NETWORK), "container.network.tcp.checksum_errors",
    "k8s.container.restarts", "k8s.pod.ready", "k8s.node.cpu.usage", "process.runtime.thread_count",
    "process.runtime.memory", "process.runtime.gc.duration", "process.runtime.cpu.time",
    "http.server.request.duration", "http.client.request.duration",
)  # fmt: skip
_UNITS = ("", "_total", "_seconds", "_seconds_total", "_bytes", "_bytes_total", "_ratio")
KNOWN: Mapping[str, str] = {f"{metric_name(raw)}{unit}": raw for raw in _READ_METRICS for unit in _UNITS}
"""Names of Prometheus, with the units that OpenTelemetry's translation adds, to those of a datapack."""

_POD = "attr.k8s.pod.name"


def label_columns(modality: str) -> dict[str, str]:
    """Return label to column for *modality*, with all spellings of a label, such as ``pod`` and ``k8s_pod_name``."""
    columns = [name for name in SCHEMA[modality] if name.startswith(("attr.k8s.", "attr.jvm."))]
    return {name: column for column in columns for name in (label_name(column), otlp_label_name(column), column[5:])
            if name != "service"}  # fmt: skip


class PlacedSeries(NamedTuple):
    """A series of Prometheus in a datapack: the suffix of its name, its service, its columns."""

    suffix: str
    service: str
    columns: dict[str, str]


class Placing:
    """Applies the rule with the overrides of *settings*."""

    def __init__(self, settings: TeamBackends) -> None:
        self._settings = settings
        self._dropped = {*settings.drop_labels, *settings.service, "__name__"}
        self._columns = label_columns("metrics_histogram") | label_columns("metrics")
        self.service_labels = settings.service

    def service(self, labels: Mapping[str, str]) -> str:
        """Return the service that *labels* name, '' without one."""
        found = next((labels[name] for name in self._settings.service if labels.get(name)), "")
        return self.renamed(found)

    def renamed(self, service: str) -> str:
        """Return *service* under the name that incident.yaml gives it."""
        return self._settings.services.get(service, service)

    def name(self, metric: str) -> str:
        """Return the name in the datapack of the Prometheus *metric*."""
        given = self._settings.metrics.get(metric)
        return (given.name if given else "") or KNOWN.get(metric, metric)

    def table(self, metric: str, kind: str) -> str:
        """Return the table for *metric*, whose type in Prometheus is *kind* ('' when unknown)."""
        given = self._settings.metrics.get(metric)
        counts = kind == "counter" or (kind in {"", "unknown", "untyped"} and metric.endswith("_total"))
        return (given.table if given else "") or ("metrics_sum" if counts else "metrics")

    def series(self, labels: Mapping[str, str]) -> PlacedSeries:
        """Return service, table columns and remaining labels of the series with *labels*."""
        columns = {self._columns[name]: value for name, value in labels.items() if name in self._columns}
        rest = {name for name in labels if name not in self._columns} - self._dropped
        if "instance" in rest:
            columns.setdefault(_POD, labels["instance"])
            rest.remove("instance")
        inner = ",".join(f'{name}="{labels[name]}"' for name in sorted(rest))
        return PlacedSeries(f"{{{inner}}}" if inner else "", self.service(labels), columns)
