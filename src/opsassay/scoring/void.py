"""Void cases: incidents whose annotation says that they cannot grade a solver."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from opsassay.core.schema.causal_graph import Annotation
from opsassay.core.schema.incident import Label, Truth
from opsassay.core.schema.run import Metric, MetricStatus, Verdict
from opsassay.core.text import plural

VOID: Mapping[Label, str] = {
    Label.NO_EFFECT: "the fault had no measurable effect",
    Label.UNEXPLAINED: "no verified path leads from the fault to the alarms",
    Label.DRIFTED: "its normal window was not normal",
}
"""The labels that make a case with a fault void, each with the reason."""

_BEGINS = "the incident is labelled "


def void_reason(truth: Truth, annotation: Annotation | None) -> str:
    """Return why the incident is void, that is, cannot grade any solver; '' when it can.

    An incident without fault is never void: "nothing is wrong" is right whatever its label. Nor is one with a published
    graph, which says nothing of the telemetry.
    """
    if truth.broken is False or annotation is None or annotation.is_published or annotation.label not in VOID:
        return ""
    label = annotation.label
    return f"{_BEGINS}{label.value}: {VOID[label]}, so no answer is graded"


def is_void(metrics: Mapping[str, Metric]) -> bool:
    """Return whether *metrics* are from a run on a void incident, which grades no solver."""
    return bool(void_words(metrics))


def void_words(metrics: Mapping[str, Metric]) -> str:
    """Return the reason why the incident of *metrics* is void, '' when it is not."""
    reasons = (m.reason for m in metrics.values() if m.status is MetricStatus.NOT_APPLICABLE)
    return next((reason for reason in reasons if reason.startswith(_BEGINS)), "")


def void_items(verdicts: Iterable[Verdict]) -> frozenset[str]:
    """Return the ids of the void incidents among *verdicts*."""
    return frozenset(verdict.item for verdict in verdicts if is_void(verdict.metrics))


def void_note(void: int, cases: int, noun: str = "case") -> str:
    """Return the sentence that *void* of *cases* cases (called *noun*) are void, '' for 0."""
    if not void:
        return ""
    return (
        f"{void} of {plural(cases, noun)} {'is' if void == 1 else 'are'} void and grade{'s' * (void == 1)} no solver."
    )
