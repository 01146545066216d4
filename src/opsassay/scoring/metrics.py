"""Metrics with their status (scored, not applicable, failed), and ratios that several of them share."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from functools import cache

from opsassay.core.registry import Registry
from opsassay.core.schema.causal_graph import Annotation
from opsassay.core.schema.diagnosis import Diagnosis
from opsassay.core.schema.incident import Truth
from opsassay.core.schema.run import Metric, MetricStatus, Run

Metrics = dict[str, Metric]
"""Metrics by name."""

OUTCOME = ("exact_match", "precision", "recall", "f1", "any_service", "fault_kind_accuracy")
LEVEL = ("component_match",)
ENTITIES = ("precision_at_full_recall",)
RANKING = ("acc_at_1", "acc_at_3")
GRAPH = ("node_precision", "node_recall", "node_f1", "edge_precision", "edge_recall", "edge_f1")
PATH = ("path_reachability", "path_reachability_hit", "ungrounded")
EVIDENCE = ("sql_exec", "evidence_relevant", "evidence_vacuous", "evidence_bound")
TOPOLOGY = ("ntam_fl", "ntam_fpc")
TIME = ("time_to_diagnosis_s",)
TRAJECTORY = (
    "detoured_services",
    "covered_services",
    "tool_calls",
    "tool_errors",
    "tool_invalid",
    "tool_syntax",
    "tool_repeats",
)
ALL = (*OUTCOME, *LEVEL, *ENTITIES, *RANKING, *PATH, *GRAPH, *EVIDENCE, *TOPOLOGY, *TIME, *TRAJECTORY)
"""Every metric of this package, in the order of a verdict."""

AGAINST_TRUTH = (
    *OUTCOME, *LEVEL, *ENTITIES, *RANKING, *PATH, *GRAPH, *TOPOLOGY, *TIME, "detoured_services", "covered_services"
)  # fmt: skip
"""Metrics that compare an answer with the truth; the others are of its evidence and tool calls."""

FurtherMetric = Callable[[Run, Diagnosis, Truth, Annotation | None], Metric]
"""A function of a run with an answer, the answer, the truth and its annotation, if there is one."""

METRICS = Registry("metric", "opsassay.metrics", {})
"""Further metrics by name; an installed package adds `FurtherMetric` through the entry-point group ``opsassay.metrics``."""


@cache
def further_metrics() -> Mapping[str, FurtherMetric]:
    """Return the metrics that installed packages add, by name; they cannot replace a built-in one."""
    return {name: METRICS.load(name) for name in METRICS.names() if name not in ALL}


def scored(value: float | bool) -> Metric:
    """Return a metric of *value* with the status scored."""
    return Metric(value=float(value), status=MetricStatus.SCORED)


def not_applicable(names: Iterable[str], reason: str) -> Metrics:
    """Return a metric with the status not applicable and *reason* for each of *names*."""
    return {name: Metric(status=MetricStatus.NOT_APPLICABLE, reason=reason) for name in names}


def failed(names: Iterable[str], reason: str) -> Metrics:
    """Return a metric with the status failed and *reason* for each of *names*."""
    return {name: Metric(status=MetricStatus.FAILED, reason=reason) for name in names}


def harmonic_mean(precision: float, recall: float) -> float:
    """Return F1 = 2 P R / (P + R) of precision P and recall R, 0 when both are 0."""
    return 2 * precision * recall / (precision + recall) if precision + recall else 0.0


def set_scores(prefix: str, claimed: Collection[object], true: Collection[object]) -> Metrics:
    """Return precision, recall, F1 of *claimed* against *true* as ``prefix_...`` metrics; both empty: all 1 (G.2.1)."""
    if not claimed and not true:
        precision = recall = f1 = 1.0
    else:
        hits = len(set(claimed) & set(true))
        precision = hits / len(claimed) if claimed else 0.0
        recall = hits / len(true) if true else 0.0
        f1 = harmonic_mean(precision, recall)
    return {f"{prefix}_precision": scored(precision), f"{prefix}_recall": scored(recall), f"{prefix}_f1": scored(f1)}
