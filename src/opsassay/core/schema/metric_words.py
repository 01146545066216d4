"""What every metric is called, in which unit it is, and what it means: the one table that all tables and pages read."""

from __future__ import annotations

from opsassay.core.schema.base import Noun


class MetricWord(Noun):
    """A metric's column title, its *unit* ("share" is written in percent) and one sentence on it."""

    title: str
    unit: str
    about: str


def _share(title: str, about: str) -> MetricWord:
    return MetricWord(title=title, unit="share", about=about)


METRICS: dict[str, MetricWord] = {
    "exact_match": _share("Exact", "The claimed roots are exactly the true roots."),
    "precision": _share("Precision", "Share of the claimed roots that are true."),
    "recall": _share("Recall", "Share of the true roots that were claimed."),
    "f1": _share("F1", "Harmonic mean of precision and recall of the roots."),
    "any_service": _share("Right service", "One of the first services that were claimed is a root cause."),
    "fault_kind_accuracy": _share("Fault kind", "The kind of fault was named rightly."),
    "component_match": _share("Component", "Claims below the service (pod, container, function, span) that are right."),
    "precision_at_full_recall": _share(
        "ITBench-AA", "Share of the claimed services that are roots where every root is named, else 0."
    ),
    "path_reachability": _share("Path", "Claimed edges lead from a right root to a service that raised a true alarm."),
    "path_reachability_hit": _share("Path, kind", "The same, from a root whose fault kind is right too."),
    "ungrounded": _share("Ungrounded", "A right root whose claimed edges lead to no alarm. Lower is better."),
    "node_f1": _share("Node F1", "F1 of the services of the cascade."),
    "node_precision": _share("Node prec.", "Share of the claimed services that are in the cascade."),
    "node_recall": _share("Node rec.", "Share of the cascade's services that were claimed."),
    "edge_f1": _share("Edge F1", "F1 of the cause-to-effect edges of the cascade."),
    "edge_precision": _share("Edge prec.", "Share of the claimed edges that are in the cascade."),
    "edge_recall": _share("Edge rec.", "Share of the cascade's edges that were claimed."),
    "acc_at_1": _share("Acc@1", "A root cause is the first of the ranking, claimed or not."),
    "acc_at_3": _share("Acc@3", "A root cause is among the first three of the ranking."),
    "sql_exec": _share("SQL runs", "Share of the evidence statements that run and return rows."),
    "evidence_relevant": _share("Relevant", "Share of the evidence that is about the claimed service."),
    "evidence_vacuous": _share("Vacuous", "Share of the evidence that would hold of any service. Lower is better."),
    "evidence_bound": _share("Bound", "Share of the evidence whose rows bear out the claim."),
    "evidence_supported": _share(
        "Supported", "Share of the evidence whose rows support the claim, as a judge sees it."
    ),
    "ntam_fl": _share("NTAM loc.", "Topology-aware match of the localisation (ITBench)."),
    "ntam_fpc": _share("NTAM chain", "Topology-aware match of the propagation chain (ITBench)."),
    "time_to_diagnosis_s": MetricWord(title="To diagnosis", unit="s", about="Seconds until the answer was given."),
    "diagnosis_right": _share("Diagnosis", "The operator named the root causes while it worked."),
    "time_to_repair_s": MetricWord(title="To repair", unit="s", about="Seconds until the alerts had cleared."),
    "alerts_cleared": _share("Cleared", "Share of the alerts that cleared."),
    "v_outcome": _share("Final state", "The final state is as it was committed to be."),
    "v_temporal": _share("Availability on the way", "Availability never fell below its floor on the way."),
    "v_depth": _share("Final state, deeper", "The outcome also holds at the deeper observation depths."),
    "v_probe": _share("Probes answered", "End-to-end probes were answered throughout."),
    "v_placement": _share("Placement kept", "Workloads are where they were."),
    "v_no_regression": _share("Nothing else broken", "Nothing that worked before is broken after."),
    "v_control_plane": _share("Control plane answers", "The control plane answers as committed."),
    "v_settings": _share("Settings kept", "What protects the system is as it was, and nothing waits for a restart."),
    "v_cause": _share("Cause gone", "What was broken is repaired where it sits."),
    "v_users": _share("Users served", "Users lost no more than the fault explains, and are served as before it."),
    "lost_requests": MetricWord(title="Lost", unit="requests", about="Requests lost beyond what the fault explains."),
    "v_impact": _share("Users' losses", "Users lost no more than was committed."),
    "v_blast_radius": _share("Changes within bounds", "Only what may be changed was changed."),
    "certificate": _share("Certificate", "All committed verifiers passed."),
    "impact_user_minutes": MetricWord(title="Impact", unit="user min", about="User minutes lost on the way."),
    "blast_radius": MetricWord(title="Blast radius", unit="services", about="Services hurt on the way."),
    "detoured_services": MetricWord(title="Detours", unit="services", about="Services touched without need."),
    "covered_services": _share("Covered", "Share of the true cascade that was looked at."),
    "passed": _share("Passed", "All that the task asks for is right."),
    "artefact": _share("Artefact", "It left files of the form that was asked for."),
    "evidence": _share("Evidence", "Every world could be judged."),
    "asked": _share("Asked", "What was collected of a world tells it from its mutant."),
    "kept": _share("Kept", "What was not to be changed is as it was."),
    "posture": _share("Posture", "Every world and mutant was judged as it is."),
    "false_positive_rate": _share("False alarms", "Share of the compliant worlds that were called violating."),
    "false_negative_rate": _share("Missed", "Share of the violating worlds that were called compliant."),
    "mutation_kill_rate": _share("Mutants", "Share of the mutants that were judged rightly."),
    "tool_calls": MetricWord(title="Tool calls", unit="", about="Tool calls made."),
    "tool_errors": MetricWord(title="Tool errors", unit="", about="Tool calls that failed."),
    "tool_invalid": MetricWord(
        title="Invalid calls", unit="", about="Failed calls of no tool, or with wrong arguments."
    ),
    "tool_syntax": MetricWord(title="Syntax errors", unit="", about="Failed calls whose query could not be read."),
    "tool_repeats": MetricWord(title="Repeats", unit="", about="Tool calls made before with the same arguments."),
    "tokens": MetricWord(title="Tokens", unit="", about="Tokens read and written."),
    "cost": MetricWord(title="Cost", unit="USD", about="What the model calls cost."),
    "path_reachability_per_any_service": _share("Path / right service", "Of the right services, those with a path."),
    "succeeded": _share("Succeeded", "The run did all that its task asks for."),
    "correct": _share("Right answer", "The right service, or that nothing is wrong where nothing was broken."),
    "hidden_failure": _share("Hidden failures", "It looked repaired at the end, and the whole run does not hold."),
    "impact_failed_requests": MetricWord(
        title="Failed requests", unit="requests", about="Requests of users that failed."
    ),
    "cells_right": _share("Cells right", "Share of the cells of the table that are right."),
    "anomaly_f1": _share("Anomaly F1", "F1 of the anomalies that were planted."),
    "anomaly_precision": _share("Anomaly prec.", "Share of the named anomalies that were planted."),
    "anomaly_recall": _share("Anomaly rec.", "Share of the planted anomalies that were named."),
    "rank_importance": _share("Ranking", "How far the order of the anomalies agrees with their importance."),
    "rank_relative": _share("Ranking, relative", "The same, of the relative sizes."),
    "detector_f1": _share("Detector F1", "F1 of what the declared detector finds."),
    "cost_alert_cleared": _share("Cost alert cleared", "The alert on the cost cleared."),
    "cost_near_optimum": _share("Near the optimum", "The cost at the end is near its optimum."),
    "budget_kept": _share("Budget kept", "The budget is as it was."),
    "cost_alert_kept": _share("Cost alert kept", "The alert on the cost is as it was."),
    "load_kept": _share("Load kept", "Every service handles its share of the load at the end."),
    "requests_cover_usage": _share("Requests cover usage", "What is requested covers what is used."),
    "missed_names": MetricWord(
        title="Missed names", unit="statements", about="Statements that named what is not there."
    ),
}
"""Known metrics in the order of their columns."""


def is_share(metric: str, unit: str = "share") -> bool:
    """Return whether *metric* is a share in [0, 1]; one that is not known is of the *unit* that it is declared with."""
    return (METRICS[metric].unit if metric in METRICS else unit) == "share"


def word(metric: str) -> MetricWord:
    """Return the words for *metric*; one that is not known is called by its own name."""
    return METRICS.get(metric) or MetricWord(title=metric, unit="", about="")
