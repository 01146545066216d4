"""Reads responses of Prometheus' ``query_range`` as evidence on a run, by the metric names of common exporters.

``probe_success`` (blackbox exporter) is D3 and ``probe_duration_seconds`` the duration of a probe;
``kube_deployment_spec_replicas`` and ``kube_deployment_status_replicas_ready`` (kube-state-metrics) are D1, ``up`` of
control plane components D4, and ``ALERTS`` the firing alerts.
"""

from __future__ import annotations

import json
import math
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from opsassay.core.errors import DatapackError
from opsassay.core.schema.incident import Alert
from opsassay.core.schema.trajectory import AlertReading, Probe
from opsassay.evals.remediation.foreign.instants import instant_ns
from opsassay.testbed.core.probes import DepthReading
from opsassay.testbed.substrates.kubernetes.api.readings import PARTS

SUCCESS, DURATION, ALERTS = "probe_success", "probe_duration_seconds", "ALERTS"
DESIRED, READY, UP = "kube_deployment_spec_replicas", "kube_deployment_status_replicas_ready", "up"
METRICS = (SUCCESS, DURATION, DESIRED, READY, UP, ALERTS)
NAMES = ("service", "target", "instance", "deployment", "job")
"""Labels that name the workload of a series; the first that is present counts."""
CONTROL_PLANE = frozenset(
    {*PARTS, "apiserver", "kubernetes-apiservers", "coredns", "kube-dns", "kubelet", "kube-proxy"}
)
LOOK_BACK_NS = 300 * 10**9
"""A sample is valid for so long, as in Prometheus."""

Samples = tuple[list[int], list[float]]


@dataclass(frozen=True)
class Ranges:
    """The series of the responses: metric to (labels, samples (ns of UTC, value)); *unused*: names of other metrics."""

    series: Mapping[str, Sequence[tuple[Mapping[str, str], Samples]]] = field(default_factory=dict)
    unused: tuple[str, ...] = ()

    def instants(self) -> list[int]:
        """Return the sorted times of all samples in ns, each once."""
        return sorted({at for rows in self.series.values() for _, (times, _) in rows for at in times})

    def probes(self) -> tuple[Probe, ...]:
        """Return each sample of ``probe_success`` as a probe, sorted by start."""
        took = {_name_owner(labels): samples for labels, samples in self.series.get(DURATION, ())}
        found = []
        for labels, (times, values) in self.series.get(SUCCESS, ()):
            durations = took.get(_name_owner(labels))
            for at, value in zip(times, values, strict=True):
                latency_s = (_sample_at(durations, at) if durations else None) or 0.0
                found.append((at, _name_owner(labels), latency_s, value == 1.0))
        return tuple(
            Probe(id=f"probe-{number}", target=target, started_ns=at, ended_ns=at + round(latency_s * 1e9),
                  latency_s=latency_s, reachable=reachable)
            for number, (at, target, latency_s, reachable) in enumerate(sorted(found), 1)
        )  # fmt: skip

    def ready(self, time_ns: int) -> DepthReading:
        """Return D1 at *time_ns*: the ratio of ready to desired replicas of deployments."""
        want, have = self._values_at(DESIRED, time_ns), self._values_at(READY, time_ns)
        total = sum(want.values())
        if not total:
            return DepthReading(None, (), time_ns)
        short = tuple(sorted(name for name, count in want.items() if have.get(name, 0.0) < count))
        return DepthReading(sum(min(have.get(n, 0.0), c) for n, c in want.items()) / total, short, time_ns)

    def control_plane(self, time_ns: int) -> DepthReading:
        """Return D4 at *time_ns*: the share of control plane components whose ``up`` is 1."""
        parts = {name: up for name, up in self._values_at(UP, time_ns, label="job").items() if name in CONTROL_PLANE}
        down = tuple(sorted(name for name, value in parts.items() if value != 1.0))
        return DepthReading(1 - len(down) / len(parts) if parts else None, down, time_ns)

    def alerts(self) -> tuple[AlertReading, ...]:
        """Return the firing alerts at each sample time, empty when ``ALERTS`` was not queried."""
        if ALERTS not in self.series:
            return ()
        fires: dict[int, list[Alert]] = defaultdict(list)
        for labels, (times, values) in self.series[ALERTS]:
            if labels.get("alertstate", "firing") == "firing":
                name = labels.get("signal") or labels.get("alertname", "alert")
                for at, value in zip(times, values, strict=True):
                    fires[at].append(Alert(time_ns=at, service=_name_owner(labels), signal=name, value=value, threshold=1.0,
                                           message=labels.get("alertname", name)))  # fmt: skip
        return tuple(AlertReading(time_ns=at, firing=tuple(fires.get(at, ()))) for at in self.instants())

    def _values_at(self, metric: str, time_ns: int, label: str | None = None) -> dict[str, float]:
        """Return the minimum of *metric* at *time_ns* by value of *label*, or by owner (workload) when None."""
        found: dict[str, float] = {}
        for labels, samples in self.series.get(metric, ()):
            if (value := _sample_at(samples, time_ns)) is not None:
                name = labels.get(label, "") if label else _name_owner(labels)
                found[name] = min(value, found.get(name, math.inf))
        return found


def read_ranges(paths: Sequence[Path]) -> Ranges:
    """Return the series in the Prometheus range query responses *paths*; raises DatapackError naming file or series."""
    found: dict[str, list[tuple[Mapping[str, str], Samples]]] = defaultdict(list)
    for path in paths:
        for metric, labels, samples in _read_series(path):
            found[metric].append((labels, samples))
    return Ranges({name: found[name] for name in METRICS if name in found}, tuple(sorted(found.keys() - set(METRICS))))


def _read_series(path: Path) -> Iterator[tuple[str, Mapping[str, str], Samples]]:
    """Yield (metric, labels, samples) of each series in a query_range response; raises DatapackError."""
    try:
        answer = json.loads(path.read_text(encoding="utf-8"))
    except json.JSONDecodeError as error:
        raise DatapackError(f"{path}:{error.lineno}: no JSON ({error.msg}); restore the file from a copy.") from error
    except (OSError, UnicodeDecodeError, RecursionError) as error:
        raise DatapackError(f"Cannot read {path} as JSON in UTF-8; check the path.") from error
    data = answer.get("data", answer) if isinstance(answer, dict) else None
    rows = data.get("result") if isinstance(data, dict) and data.get("resultType") == "matrix" else None
    if not isinstance(rows, list):
        raise DatapackError(f"{path} is no answer of query_range; save what /api/v1/query_range answers.")
    for number, row in enumerate(rows, 1):
        try:
            labels = {str(name): str(value) for name, value in row["metric"].items()}
            metric = labels.pop("__name__")
            pairs = sorted((instant_ns(at), float(value)) for at, value in row["values"])
        except KeyError as error:
            raise DatapackError(
                f"{path}: series {number} has no {error.args[0]}; ask for a metric by its name."
            ) from error
        except (ValueError, TypeError, AttributeError) as error:
            raise DatapackError(f"{path}: series {number} is no series of samples ({error}).") from error
        yield metric, labels, ([at for at, _ in pairs], [value for _, value in pairs])


def _name_owner(labels: Mapping[str, str]) -> str:
    """Return the value of the first of `NAMES` in *labels*, "" without one."""
    return next((labels[name] for name in NAMES if labels.get(name)), "")


def _sample_at(samples: Samples, time_ns: int) -> float | None:
    """Return the last sample at or before *time_ns*; None when there is none within the look-back."""
    times, values = samples
    row = bisect_right(times, time_ns) - 1
    return values[row] if row >= 0 and time_ns - times[row] <= LOOK_BACK_NS else None
