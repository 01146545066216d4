"""Words and units of the page: what a metric is called, what it means, and how its value is written."""

from __future__ import annotations

import re

from opsassay.model.base import Noun
from opsassay.model.incident import Label

BASELINES = frozenset({"constant", "chance", "random", "loudest", "gap", "row_count_gap", "row-count-gap"})
"""Solvers that are in every table to show what no skill looks like."""

_PREDICATE = re.compile(r"\bV_[a-z_]+\b")


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
    "any_service": _share("Any root", "At least one claimed root is a true root."),
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
}
"""Known metrics in the order of their columns."""

SORTED_BY = ("any_service", "exact_match", "f1", "path_reachability", "edge_f1")
"""Metrics that order the answers, the first that differs decides: the one that is defined on most answers leads."""

LABELS: dict[Label, str] = {
    Label.ATTRIBUTED: "attributed: the cascade was verified from the root to the alarms",
    Label.NO_EFFECT: "no effect: the fault did not bite at this load",
    Label.ABSORBED: "absorbed: the fault bit, but no alarm followed from it",
    Label.UNEXPLAINED: "unexplained: alarms fired that no verified path explains",
    Label.DRIFTED: "drifted: the system changed for other reasons",
}


def word(metric: str) -> MetricWord:
    """Return the words for *metric*; one that is not known is called by its own name."""
    return METRICS.get(metric) or MetricWord(title=metric, unit="", about="")


def in_words(text: str) -> str:
    """Return *text* with what a metric is called in the place of names such as V_temporal."""
    return _PREDICATE.sub(lambda found: f"\u201c{word(found[0].lower()).title.lower()}\u201d", text)


def written(value: float, unit: str) -> str:
    """Return *value* as the page writes it: a share in percent, anything else with up to four digits and its unit."""
    if unit == "share":
        return f"{100 * value:.0f} %"
    number = f"{value:,.0f}" if value == int(value) and abs(value) < 1e15 else f"{value:.4g}"
    return f"{number} {unit}".rstrip()
