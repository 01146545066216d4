"""Root causes at every level that applies: service, pod, container, function, span, metric (OpenRCA 2.0, Table 4)."""

from __future__ import annotations

from collections.abc import Sequence

from opsassay.annotation.reading.graph import SystemGraph
from opsassay.annotation.verdict.cascade import Trial, public
from opsassay.core.schema.faults import OBSERVATION, Category, Level, fault_type
from opsassay.core.schema.incident import Fault, RootLabel

_METRIC_OF = {"cpu": "container.cpu.usage", "mem": "container.memory.working_set", "restart": "k8s.container.restarts"}


def root_labels(accepted: Sequence[Trial], graph: SystemGraph) -> tuple[RootLabel, ...]:
    """Return the label of each accepted fault: names by level; levels that do not apply to its type are empty."""
    return tuple(_build_root_label(trial, graph) for trial in accepted)


def _build_root_label(trial: Trial, graph: SystemGraph) -> RootLabel:
    """Return the names of the root at every level (service, pod, function, ...) that its fault type has."""
    fault, row = trial.fault, fault_type(trial.fault.type)
    routed = sorted({p.removeprefix("pod|") for service in trial.services for p in graph.pods_of(service)})
    pods = (fault.pod,) if fault.pod else tuple(routed)
    at_pod = Level.POD in row.levels or Level.CONTAINER in row.levels
    stopped = row.category in (Category.POD, Category.STRESS)
    return RootLabel(
        service=tuple(s for s in trial.services if s),
        pod=pods if at_pod else (),
        container=tuple(c.removeprefix("container|") for c in graph.containers_of(pods)) if stopped else (),
        function=_read_operations(fault) if Level.FUNCTION in row.levels else (),
        span=tuple(sorted(_first_spans(trial))) if Level.SPAN in row.levels else (),
        metric=_metrics_of_root(trial),
    )


def _read_operations(fault: Fault) -> tuple[str, ...]:
    """Return the operation, method or class in the fault's parameters, as "class.method"; () when it has none."""
    named = [str(fault.parameters[k]) for k in ("operation", "method", "class") if fault.parameters.get(k)]
    return (".".join(reversed(named)),) if named else ()


def _first_spans(trial: Trial) -> set[str]:
    """Return the names of the first span on each accepted path, without ``span|``."""
    firsts = (next((c for c, _ in path if c.startswith("span|")), None) for path in trial.paths)
    return {public(first).removeprefix("span|") for first in firsts if first}


def _metrics_of_root(trial: Trial) -> tuple[str, ...]:
    """Return (metric that shows the root,), else (telemetry that shows its kind of fault (Table 6),), else ()."""
    kind = trial.fault.kind
    shown = _METRIC_OF.get(trial.signature.reason)
    return (shown,) if shown else (OBSERVATION[kind],) if kind else ()
