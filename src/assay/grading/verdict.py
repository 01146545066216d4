"""The verdict: every metric of one run, each scored, not applicable or failed to grade; never a silent zero."""

from __future__ import annotations

from assay.grading import metrics
from assay.grading.evidence import evidence_metrics
from assay.grading.metrics import Metrics
from assay.grading.outcome import is_fault_free, outcome_metrics
from assay.grading.process import graph_metrics, path_metrics
from assay.grading.profiles import PROFILES, Profile
from assay.model.causal_graph import Annotation
from assay.model.diagnosis import Diagnosis
from assay.model.incident import Label, Truth
from assay.model.run import EvidenceResult, Run, RunStatus, Verdict
from assay.telemetry.sql import LockedSql

NAMES_KINDS = "names_fault_kinds"
"""Key of a solver's configuration; False declares that it ranks services and never names a fault kind."""


def grade(
    run: Run,
    diagnosis: Diagnosis | None,
    truth: Truth,
    annotation: Annotation | None,
    sql: LockedSql | None,
    profile: Profile = PROFILES["default"],
) -> Verdict:
    """Return the grades of *run* under *profile*: the metrics of `metrics.ALL`, all of them, always.

    - A run that did not end with an answer: all failed, with what became of it.
    - No annotation, or a label other than attributed: process metrics not applicable, outcome and evidence scored.
    - *sql* None: sql_exec failed, unless the answer gives no evidence.

    Deterministic, but for statements that give other rows each time they are run.
    """
    results: tuple[EvidenceResult, ...] = ()
    if run.status is not RunStatus.DONE or diagnosis is None:
        graded = metrics.failed(metrics.ALL, _what_became_of(run))
    else:
        names_kinds = run.solver.configuration.get(NAMES_KINDS) is not False
        graded = outcome_metrics(diagnosis.root_causes, truth, profile, names_kinds=names_kinds)
        graded |= _process_metrics(diagnosis, truth, annotation, profile, names_kinds=names_kinds)
        of_evidence, results = evidence_metrics(diagnosis, sql)
        graded |= of_evidence
    return Verdict(
        run=f"{run.cell}/{run.attempt}",
        item=run.item,
        system=run.system,
        solver=run.solver.name,
        profile=profile.name,
        label=None if annotation is None else annotation.label.value,
        metrics={name: graded[name] for name in metrics.ALL},
        evidence=results,
    )


def _process_metrics(
    diagnosis: Diagnosis, truth: Truth, annotation: Annotation | None, profile: Profile, *, names_kinds: bool
) -> Metrics:
    names = (*metrics.GRAPH, *metrics.PATH)
    if is_fault_free(truth):
        return metrics.not_applicable(names, "nothing was broken")
    if annotation is None:
        return metrics.not_applicable(names, "the case has no annotation")
    if annotation.label is not Label.ATTRIBUTED:
        return metrics.not_applicable(names, f"the case is labelled {annotation.label.value}, not attributed")
    graph = annotation.graph
    return {
        **graph_metrics(diagnosis, graph, profile),
        **path_metrics(diagnosis, truth, graph, profile, names_kinds=names_kinds),
    }


def _what_became_of(run: Run) -> str:
    if run.status is RunStatus.DONE:
        return "the run ended without an answer"
    return f"the run is {run.status.value}" + (f": {run.error}" if run.error else "")
