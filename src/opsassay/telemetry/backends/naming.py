"""Names of metrics and labels of a datapack, converted to the names that Prometheus allows.

Each invalid character becomes ``_``, and a leading digit gets one before it: ``k8s.pod.cpu.usage`` becomes
``k8s_pod_cpu_usage``, as OpenTelemetry translates it. If two names become equal, the alphabetically later one gets the
suffix ``_2``, ``_3`` and so on.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

_NO_METRIC = re.compile(r"[^a-zA-Z0-9_:]", re.ASCII)
_NO_LABEL = re.compile(r"[^a-zA-Z0-9_]", re.ASCII)
_SHORT = {
    "service_name": "service",
    **{
        f"attr.k8s.{level}.name": level
        for level in ("node", "namespace", "statefulset", "deployment", "replicaset", "pod", "container")
    },
}


def metric_name(raw: str) -> str:
    """Return *raw*, a metric's name, as a valid Prometheus name; two names may become the same."""
    return _with_letter_first(_NO_METRIC.sub("_", raw))


def label_name(column: str) -> str:
    """Return the Prometheus label for a table's *column*: ``service``, ``pod``, ``node``, ... ``jvm_gc_name``."""
    return _SHORT.get(column) or otlp_label_name(column)


def otlp_label_name(column: str) -> str:
    """Return the label that Loki gives a table's *column* when logs come by OTLP: ``service_name``, ``k8s_pod_name``."""
    return _with_letter_first(_NO_LABEL.sub("_", column.removeprefix("attr.")))


def is_label_name(name: str) -> bool:
    """Return whether *name* is a valid Prometheus label."""
    return re.fullmatch(r"[a-zA-Z_][a-zA-Z0-9_]*", name, re.ASCII) is not None


def apart(names: Iterable[str]) -> list[str]:
    """Return *names* in order, made unique: "x", "x" becomes "x", "x_2"."""
    used: set[str] = set()
    found = []
    for name in names:
        free, number = name, 2
        while free in used:
            free, number = f"{name}_{number}", number + 1
        used.add(free)
        found.append(free)
    return found


def _with_letter_first(name: str) -> str:
    """Return *name*, with "_" in front when it is empty or begins with a digit."""
    return f"_{name}" if not name or name[0].isdigit() else name
