"""CaseReport: the data of one incident for the report page, made from a datapack."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from opsassay.core.schema.base import Noun
from opsassay.core.schema.causal_graph import Annotation
from opsassay.core.schema.diagnosis import Diagnosis
from opsassay.core.schema.incident import Incident, Truth
from opsassay.core.schema.run import Run, Verdict
from opsassay.ui.signals import (
    CallEdge,
    ServiceSignals,
    Signals,
    TopologyPayload,
    golden_signals,
    linked_spans,
    topology,
)

if TYPE_CHECKING:
    from opsassay.telemetry.datapack import Datapack

__all__ = ["AnswerPayload", "CallEdge", "CaseReport", "ServiceSignals", "Signals", "TopologyPayload", "build_case"]


class AnswerPayload(Noun):
    """One solver's attempt: *diagnosis* is None without an answer, *verdict* is None without a grade."""

    run: Run
    diagnosis: Diagnosis | None = None
    verdict: Verdict | None = None


class CaseReport(Noun):
    """One incident with its truth, a summary of its telemetry, and every answer; *reproduce* are shell commands."""

    incident: Incident
    truth: Truth | None = None
    annotation: Annotation | None = None
    topology: TopologyPayload = TopologyPayload()
    signals: Signals = Signals()
    answers: tuple[AnswerPayload, ...] = ()
    reproduce: tuple[str, ...] = ()


def build_case(
    datapack: Datapack,
    truth: Truth | None,
    annotation: Annotation | None,
    answers: Sequence[AnswerPayload],
    *,
    reproduce: Sequence[str] = (),
) -> CaseReport:
    """Return an incident's report with graph, signals, *answers* and the commands *reproduce*; raises DatapackError."""
    incident = datapack.incident
    services = datapack.services()
    spans = linked_spans(datapack.both("traces"), services)
    return CaseReport(
        incident=incident,
        truth=truth,
        annotation=annotation,
        topology=topology(spans, services),
        signals=golden_signals(spans, incident.normal, incident.abnormal),
        answers=tuple(answers),
        reproduce=tuple(reproduce),
    )
