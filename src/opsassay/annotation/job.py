"""Annotates cases and stores the result next to their truth; unchanged cases are not annotated again."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from opsassay.annotation.search.rules import RULES_VERSION
from opsassay.annotation.verdict.annotate import annotate, annotate_opened, annotate_seen, decide, open_pack
from opsassay.annotation.verdict.hypothetical_roots import infer_kind, possible_types, pretend, sham
from opsassay.annotation.verdict.settings import AnnotateSettings
from opsassay.core.errors import NotFoundError, OpsAssayError, UserError
from opsassay.core.schema.causal_graph import Annotation, CausalGraph, FaultVerdict
from opsassay.core.schema.faults import CATALOGUE, fault_type
from opsassay.core.schema.incident import AffectedByFault, EffectCheck, Fault, Label, Truth
from opsassay.core.text import number_text
from opsassay.telemetry.tree import Case, resolve, write_annotation

EVERY_TYPE = "every"
"""The value of `AnnotateJob.sham` that tests a placebo of each fault type that a service can have."""

CAUSES_VERSION = "7"
"""Part of the digest in `made_from`; raised whenever annotation yields other results for the same input."""


@dataclass(frozen=True)
class AnnotateJob:
    """The case at *path* to annotate, and how.

    *root* annotates as if the fault had been on that service; *sham* annotates a fault-free case as if a fault of that
    type (or EVERY_TYPE) had been at *root*, or at each service in turn. Neither result is stored. *again* ignores a
    stored annotation of unchanged data. *others* also tests which other roots would explain an incident whose root is
    stated.
    """

    path: Path
    root: str | None = None
    sham: str | None = None
    again: bool = False
    others: bool = False
    settings: AnnotateSettings = field(default_factory=AnnotateSettings)


@dataclass(frozen=True)
class Annotated:
    """The result for one case: the annotation or the *error*. *pretended*: the assumed root; *stated*: a sentence on it."""

    name: str
    datapack: Path
    annotation: Annotation | None
    error: str | None
    seconds: float
    unchanged: bool = False
    pretended: str | None = None
    stated: str | None = (
        None  # whether the recording bears out a root that somebody stated, and what else would explain it
    )


def annotate_path(path: Path) -> Annotated:
    """Annotate the case at *path* and store the result with its truth; an error is in the result, not raised."""
    return run_job(AnnotateJob(path, again=True))[0]


def run_job(job: AnnotateJob) -> list[Annotated]:
    """Annotate the case of *job*, store and return the result; with *sham* one result per type and service, none stored."""
    began = time.perf_counter()
    try:
        (case,) = resolve(job.path)
        if job.sham:
            return _annotate_placebos(case, job)
        known = None if job.again or job.root else _read_unchanged_annotation(case, job.settings)
        annotation = known or annotate_case(case, job.root, job.settings)
        if known is None and job.root is None and case.truth_path is not None:
            write_annotation(case.truth_path, annotation)
        stated = _compare_with_stated(case, annotation, job) if job.root is None else None
    except OpsAssayError as error:
        return [Annotated(job.path.name, job.path, None, str(error), time.perf_counter() - began)]
    seconds = time.perf_counter() - began
    return [Annotated(case.name, job.path, annotation, None, seconds, known is not None, job.root, stated)]


def _compare_with_stated(case: Case, annotation: Annotation, job: AnnotateJob) -> str | None:
    """Return a sentence: whether the recording confirms the root that the team states; None if it states none."""
    if case.truth is None or not case.truth.stated:
        return None
    window, (place, *_) = case.datapack.incident.abnormal, case.truth.roots[0].service
    type_ = annotation.faults[0].type if annotation.faults else next(iter(CATALOGUE))
    fault = Fault(type=type_, service=place, start_ns=window.start_ns, end_ns=window.end_ns)
    fault = case.truth.faults[0] if case.truth.faults else fault
    what = f"{fault.kind} at {place}" if case.truth.faults or annotation.faults else place
    borne_out = annotation.label is Label.ATTRIBUTED
    about = f"The stated root, {what}, is {'' if borne_out else 'not '}borne out by the recording."
    if not job.others:
        return about
    opened = open_pack(case.datapack, job.settings)
    kinds: dict[str, list[str]] = {}
    for tried in pretend(opened, fault, job.settings, case.datapack.services()):
        kind = fault_type(tried.type).kind
        if tried.label is Label.ATTRIBUTED and (tried.service, kind) != (fault.service, fault.kind):
            kinds.setdefault(tried.service, []).append(kind.value)
    also = "; ".join(f"{service} ({', '.join(found)})" for service, found in sorted(kinds.items()))
    return f"{about} What else would explain it: {also or 'nothing that was tried'}."


def annotate_case(case: Case, root: str | None = None, settings: AnnotateSettings | None = None) -> Annotation:
    """Return the annotation of *case*; a fault whose effect check failed is labelled no_effect in any case.

    When the truth names a service but no fault, the kind of fault is inferred. *root* pretends that the fault was on
    that service. Raises UserError for a case without truth, NotFoundError for a *root* that is nowhere in the traces.
    """
    if case.truth is None:
        raise UserError(
            f"{case.datapack.path} has no truth beside it, so there is no known fault to follow; give its tree."
        )
    settings = settings or AnnotateSettings()
    _require_service(case, root)
    unknown = [label.service for label in case.truth.roots if label.service] if not case.truth.faults else []
    if unknown and root is None:
        inferred = _annotate_unknown(case, unknown, settings)
        return inferred.model_copy(update={"made_from": made_from(case, settings)})
    affected = case.truth.affected()
    acting = [one for one in affected if one.acted]
    annotation = annotate(case.datapack, _faults_by_service(acting or affected), root=root, settings=settings)
    if root is None:
        annotation = _without_effect(annotation, case.truth, acting=bool(acting) or not affected)
    return annotation.model_copy(update={"made_from": made_from(case, settings)})


def _annotate_unknown(case: Case, places: Sequence[tuple[str, ...]], settings: AnnotateSettings) -> Annotation:
    """Return the annotation of *case* with the kind of fault inferred at each of *places* (names of one service each)."""
    opened = open_pack(case.datapack, settings)
    seen = opened.since(None, settings)
    known = case.datapack.services()
    found = [
        infer_kind(opened, seen, next((name for name in names if name in known), names[0]), settings)
        for names in places
    ]
    annotation = annotate_seen(opened, seen, [one.fault for one in found if one.fault], settings=settings)
    sentences = tuple(one.sentence for one in found if one.fault)
    unseen = "; ".join(one.sentence for one in found if not one.fault)
    if not sentences:
        drifted = annotation.label is Label.DRIFTED
        label, reason = decide(drifted=drifted, signature=None, alarms=len(seen.alarms), paths=0, instead=unseen)
        return annotation.model_copy(update={"label": label, "reason": reason})
    sentences += (f"Of another root {unseen}.",) if unseen else ()
    return annotation.model_copy(update={"notes": (*annotation.notes, *sentences)})


def _faults_by_service(affected: Sequence[AffectedByFault]) -> list[Fault]:
    """Return the faults, with a fault on a host repeated for each of the host's services."""
    return [
        fault.model_copy(update={"service": service})
        for fault, services, _ in affected
        for service in (*sorted(services),) or (fault.service,)
    ]


def made_from(case: Case, settings: AnnotateSettings) -> str:
    """Return the digest of all inputs of the case's annotation (recording, truth, settings), to detect changes."""
    assert case.truth is not None
    parts = [
        CAUSES_VERSION,
        RULES_VERSION,
        settings.digest(),
        case.datapack.incident.content_hash or case.datapack.incident.canonical_json(),
        *(fault.canonical_json() for fault in case.truth.faults),
        *(effect.canonical_json() for effect in case.truth.effects),
        *(root.canonical_json() for root in case.truth.roots if not case.truth.faults),
    ]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def _read_unchanged_annotation(case: Case, settings: AnnotateSettings) -> Annotation | None:
    """Return the case's stored annotation if it was made from the same data and settings; else None."""
    known = case.annotation
    if known is None or case.truth is None or not known.made_from:
        return None
    return known if known.made_from == made_from(case, settings) else None


def _annotate_placebos(case: Case, job: AnnotateJob) -> list[Annotated]:
    """Return one result per service (or the job's root) and type, as if a fault of *job.sham* had been there."""
    assert job.sham is not None
    _require_service(case, job.root)
    services: Sequence[str] = [job.root] if job.root else case.datapack.services()
    results: list[Annotated] = []
    opened = None
    for service in services:
        began = time.perf_counter()
        type_ = next(iter(CATALOGUE)) if job.sham == EVERY_TYPE else job.sham  # the windows are the same for all
        calm, fault = sham(case.datapack, case.truth, type_, service)
        opened = opened or open_pack(calm, job.settings)
        types = possible_types(opened.calls, service) if job.sham == EVERY_TYPE else (fault.type,)
        for type_ in types:
            found = annotate_opened(opened, [fault.model_copy(update={"type": type_})], settings=job.settings)
            seconds = time.perf_counter() - began
            results.append(Annotated(case.name, job.path, found, None, seconds, pretended=f"{type_} at {service}"))
            began = time.perf_counter()
    return results


def _require_service(case: Case, root: str | None) -> None:
    """Raise NotFoundError when *root* is given and is no service of the case's telemetry."""
    if root is not None and root not in (services := case.datapack.services()):
        raise NotFoundError("service", root, services, f"The datapack is {case.datapack.path}.")


def _without_effect(annotation: Annotation, truth: Truth, *, acting: bool) -> Annotation:
    """Return *annotation* with faults whose effect check failed set to no_effect; *acting*: another fault had an effect."""
    checked = zip(truth.faults, truth.effects, strict=False)
    idle = tuple(_verdict_without_effect(fault, effect) for fault, effect in checked if not effect.passed)
    if acting:
        return annotation.model_copy(update={"faults": (*annotation.faults, *idle)})
    none = {"label": Label.NO_EFFECT, "graph": CausalGraph(), "paths": (), "roots": (), "faults": idle}
    seen = "; ".join(f"{e.signature} {number_text(e.after)} against {number_text(e.threshold)}" for e in truth.effects)
    return annotation.model_copy(update={**none, "reason": f"The fault did not bite: {seen}."})


def _verdict_without_effect(fault: Fault, effect: EffectCheck) -> FaultVerdict:
    """Return the verdict no_effect for *fault*, with the numbers that its effect check measured."""
    seen = f"{effect.signature} {number_text(effect.after)} against {number_text(effect.threshold)}"
    return FaultVerdict(
        type=fault.type, place=fault.place, label=Label.NO_EFFECT, reason=f"The fault did not bite: {seen}."
    )
