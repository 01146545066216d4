"""The verdict: every metric of one run, each scored, not applicable or failed.

It also grades claims below the level of services: a pod, a container, a function or a span (OpenRCA 2.0, Table 4).
"""

from __future__ import annotations

from collections.abc import Sequence

from opsassay.core.schema.causal_graph import Annotation
from opsassay.core.schema.diagnosis import Diagnosis, RootCauseClaim
from opsassay.core.schema.incident import Label, RootLabel, Truth
from opsassay.core.schema.run import EvidenceResult, MetricStatus, Run, RunStatus, Verdict
from opsassay.core.schema.trajectory import Trace
from opsassay.scoring import metrics
from opsassay.scoring.budget import TimeBudget
from opsassay.scoring.evidence import evidence_metrics
from opsassay.scoring.metrics import Metrics, scored
from opsassay.scoring.ntam import Ntam, chains_of
from opsassay.scoring.outcome import entity_metrics, outcome_metrics, ranking_metrics, true_roots
from opsassay.scoring.process import claimed_graph, graph_metrics, path_metrics, true_graph
from opsassay.scoring.profiles import PROFILES, Profile
from opsassay.scoring.topology import Topology
from opsassay.scoring.trajectory import trajectory_metrics
from opsassay.scoring.void import void_reason
from opsassay.telemetry.sql import LockedSql


def level_metrics(
    claims: Sequence[RootCauseClaim], truth: Truth, annotation: Annotation | None, profile: Profile
) -> Metrics:
    """Return component_match: the share that are right of the claims that name a component below the service.

    A claim is right if it names a service of a true root and, at its own level (pod, ...), a true component there, by
    the labels of the truth or of *annotation*. Not applicable to claims at a level that no label has, and to answers
    that name services only, which the other metrics grade.
    """
    finer = [claim for claim in claims if claim.level != "service"]
    if not finer or truth.broken is False:
        reason = "nothing was broken" if truth.broken is False else "no claim goes below the service"
        return metrics.not_applicable(metrics.LEVEL, reason)
    labels = (*truth.roots, *(annotation.roots if annotation else ()))
    known = [claim for claim in finer if any(_true_components(label, claim) for label in labels)]
    if not known:
        return metrics.not_applicable(metrics.LEVEL, f"the truth names no {finer[0].level}")
    right = [claim for claim in known if any(_is_right_component(claim, label, profile) for label in labels)]
    return {metrics.LEVEL[0]: scored(len(right) / len(known))}


def _true_components(label: RootLabel, claim: RootCauseClaim) -> tuple[str, ...]:
    """Return the component names in *label* at the level of *claim* (service, pod, container, ...)."""
    names: tuple[str, ...] = getattr(label, claim.level)
    return names


def _is_right_component(claim: RootCauseClaim, label: RootLabel, profile: Profile) -> bool:
    """Return whether *claim* names a service of *label* and, at its own level, a component of *label*."""
    services = {profile.service(name) for name in label.service}
    component = (claim.component or "").strip().casefold()
    return profile.service(claim.service) in services and component in {
        n.casefold() for n in _true_components(label, claim)
    }


NAMES_KINDS = "names_fault_kinds"
"""Key of a solver's configuration; False declares that it ranks services and never names a fault kind."""


def grade(
    run: Run,
    diagnosis: Diagnosis | None,
    truth: Truth,
    annotation: Annotation | None,
    sql: LockedSql | None,
    profile: Profile = PROFILES["default"],
    *,
    topology: Topology | None = None,
    trace: Trace | None = None,
    budget: TimeBudget | None = None,
) -> Verdict:
    """Return the grades of *run* under *profile*: the metrics of `metrics.ALL` and `further_metrics`, always all.

    - A void case (`void_reason`): what compares with the truth, and what packages add, is not applicable.
    - A run that did not end with an answer: failed, with the reason, except metrics that the case does not ask for.
    - No annotation, or a label other than attributed: process metrics not applicable, outcome and evidence scored.
    - *sql* None: metrics of evidence failed, unless the answer gives none.
    - *topology* None (names in the normal form of *profile*): no topology-aware match. *trace* None: the solver called
      no tools.
    - *budget*: the time that all statements of the answer have together; its own when left out. GradingEndedError is
      raised when it is cancelled.

    Deterministic, but for statements that give other rows each time they are run.
    """
    results: tuple[EvidenceResult, ...] = ()
    further = metrics.further_metrics()
    if run.status is not RunStatus.DONE or diagnosis is None:
        unnamed = _why_kind_unnamed(run, Diagnosis(), truth, profile)
        asked = outcome_metrics((), truth, profile, unnamed=unnamed)
        asked |= entity_metrics((), truth, profile)
        asked |= _compute_process_metrics(Diagnosis(), truth, annotation, profile, unnamed=unnamed)
        graded = metrics.failed((*metrics.ALL, *further), _describe_run_status(run))
        graded |= {name: asked[name] for name in asked if asked[name].status is MetricStatus.NOT_APPLICABLE}
    else:
        unnamed = _why_kind_unnamed(run, diagnosis, truth, profile)
        graded = outcome_metrics(diagnosis.root_causes, truth, profile, unnamed=unnamed)
        graded |= entity_metrics(diagnosis.root_causes, truth, profile)
        graded |= level_metrics(diagnosis.root_causes, truth, annotation, profile)
        graded |= _compute_process_metrics(diagnosis, truth, annotation, profile, unnamed=unnamed)
        graded |= ranking_metrics(diagnosis.ranking, truth, profile)
        of_evidence, results = evidence_metrics(diagnosis, sql, profile, budget)
        graded |= of_evidence
        graded |= _topology_metrics(diagnosis, truth, annotation, profile, topology)
        graded |= _time_metrics(run, graded)
        services = () if topology is None else topology.entities
        graded |= trajectory_metrics(trace, services, _services_of_cascade(truth, annotation, profile), profile)
        graded |= {name: metric(run, diagnosis, truth, annotation) for name, metric in further.items()}
    if reason := void_reason(truth, annotation):
        graded |= metrics.not_applicable((*metrics.AGAINST_TRUTH, *further), reason)
    return Verdict(
        run=f"{run.cell}/{run.attempt}",
        item=run.item,
        system=run.system,
        solver=run.solver.label,
        profile=profile.name,
        label=None if annotation is None else annotation.label.value,
        fingerprinted=truth.is_fingerprinted,
        metrics={name: graded[name] for name in (*metrics.ALL, *further)},
        evidence=results,
    )


def _why_kind_unnamed(run: Run, diagnosis: Diagnosis, truth: Truth, profile: Profile) -> str:
    """Return why the solver of *diagnosis* cannot, by its own declaration, name this fault kind; '' when it can."""
    if run.solver.configuration.get(NAMES_KINDS) is False:
        return "the solver names no fault kinds"
    declared = run.solver.fault_kinds
    if declared is None or any(claim.fault_kind not in (None, *declared) for claim in diagnosis.root_causes):
        return ""
    kinds = (root.kind for root in true_roots(truth, profile) if root.kind is not None)
    lacking = next((kind for kind in kinds if not any(profile.same_kind(one, kind) for one in declared)), None)
    return f"the solver declares that it cannot name {lacking.value}" if lacking else ""


def _compute_process_metrics(
    diagnosis: Diagnosis, truth: Truth, annotation: Annotation | None, profile: Profile, *, unnamed: str
) -> Metrics:
    """Return the graph and path metrics (*unnamed* as there), all not applicable without a verified cascade."""
    if reason := _why_no_cascade(truth, annotation):
        return metrics.not_applicable((*metrics.GRAPH, *metrics.PATH), reason)
    assert annotation is not None
    graph = annotation.graph
    return {
        **graph_metrics(diagnosis, graph, profile),
        **path_metrics(diagnosis, truth, graph, profile, unnamed=unnamed),
    }


def _topology_metrics(
    diagnosis: Diagnosis, truth: Truth, annotation: Annotation | None, profile: Profile, topology: Topology | None
) -> Metrics:
    """Return ntam_fl and ntam_fpc of services; not applicable without *topology*, a cascade or its root service."""
    reason = _why_no_cascade(truth, annotation) or ("" if topology else "the topology of the system was not at hand")
    if reason:
        return metrics.not_applicable(metrics.TOPOLOGY, reason)
    assert annotation is not None
    assert topology is not None
    true, claimed = true_graph(annotation.graph, profile), claimed_graph(diagnosis, profile)
    roots = sorted({profile.service(name) for name in annotation.graph.root_services()} & true.nodes)
    named = sorted({profile.service(claim.service) for claim in diagnosis.root_causes} & claimed.nodes)
    if not roots:
        return metrics.not_applicable(metrics.TOPOLOGY, "the verified cascade has no root service")
    match = Ntam(topology)
    correct = chains_of(sorted(true.edges), roots, topology)
    said = chains_of(sorted(claimed.edges), named, topology) if claimed.nodes else ()
    return {"ntam_fl": scored(match.localisation(correct, said)), "ntam_fpc": scored(match.propagation(correct, said))}


def _time_metrics(run: Run, metrics_so_far: Metrics) -> Metrics:
    """Return time_to_diagnosis_s, the run's duration in s, if *metrics_so_far* are right, else not applicable."""
    right = (
        metrics_so_far["exact_match"].value
        if metrics_so_far["exact_match"].value is not None
        else metrics_so_far["any_service"].value
    )
    if not right or run.ended_ns is None:
        return metrics.not_applicable(metrics.TIME, "the diagnosis was not right")
    return {"time_to_diagnosis_s": scored((run.ended_ns - run.started_ns) / 1e9)}


def _services_of_cascade(truth: Truth, annotation: Annotation | None, profile: Profile) -> frozenset[str]:
    """Return the services of the annotation's cascade under *profile*; an empty set without a verified cascade."""
    if annotation is None or _why_no_cascade(truth, annotation):
        return frozenset()
    return true_graph(annotation.graph, profile).nodes


def _why_no_cascade(truth: Truth, annotation: Annotation | None) -> str:
    """Return why there is no verified cascade to compare an answer with, '' when there is one."""
    if truth.broken is False:
        return "nothing was broken"
    if annotation is None:
        return "the case has no annotation"
    return (
        "" if annotation.label is Label.ATTRIBUTED else f"the case is labelled {annotation.label.value}, not attributed"
    )


def _describe_run_status(run: Run) -> str:
    """Return the sentence why the run has no answer that could be graded."""
    if run.status is RunStatus.DONE:
        return "the run ended without an answer"
    return f"the run is {run.status.value}" + (f": {run.error}" if run.error else "")
