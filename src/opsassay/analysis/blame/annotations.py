"""Annotation by several people in three rounds, from files.

Round 1: each labels alone and marks uncertain labels; agreement is measured on these. Round 2: traces with different or
uncertain labels are resolved by all annotators. Round 3: each reviews labels of others; a contested one is open again.
Source: "trace-elephant", App. A.5. The files are saved by the annotation page: annotator, and attributions by trace.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pydantic import Field

from opsassay.core.errors import UserError
from opsassay.core.schema.base import Artefact, Written
from opsassay.core.schema.files import load_yaml
from opsassay.core.schema.trajectory import Attribution
from opsassay.telemetry.tree import read_noun

Status = Literal["agreed", "uncertain", "disagreed", "missing", "resolved", "contested"]
SETTLED = frozenset({"agreed", "resolved"})


class Annotations(Artefact):
    """One annotator's label of each trace."""

    annotator: str
    attributions: dict[str, Attribution]


class Resolution(Written):
    """The label that the annotators *by* agreed on for one trace; it counts only if these are all annotators."""

    agent: str
    step: int = Field(ge=1)
    reason: str = ""
    by: tuple[str, ...]


class Resolutions(Written):
    """The file of rounds 2 and 3: resolutions by trace, and the reviewers who contest a trace."""

    resolved: dict[str, Resolution] = Field(default_factory=dict)
    contested: dict[str, tuple[str, ...]] = Field(
        default_factory=dict, description="trace to the reviewers who contest it"
    )


@dataclass(frozen=True)
class LabelAgreement:
    """Krippendorff's alpha (nominal) of the labels of round 1, for agents and steps; None where undefined.

    alpha = 1 - observed disagreement / disagreement expected by chance: 1 is agreement, 0 what chance gives.
    """

    agent_alpha: float | None
    step_alpha: float | None
    annotators: tuple[str, ...]
    traces: int


@dataclass(frozen=True)
class Settled:
    """One trace after the rounds so far; *attribution* is set if it is settled, else *note* says why it is not."""

    trace: str
    status: Status
    attribution: Attribution | None
    labels: Mapping[str, Attribution]
    note: str


def read_annotations(paths: Sequence[Path]) -> list[Annotations]:
    """Return the annotators' labels in the files *paths*; raises UserError, DatapackError."""
    for path in paths:
        if not path.exists():
            raise UserError(f"There is no {path}; save one file per annotator from the annotation page.")
    found = [read_noun(Annotations, path) for path in paths]
    names = [one.annotator for one in found]
    if len(set(names)) != len(names):
        raise UserError(f"The annotator {max(names, key=names.count)!r} is given twice; give one file for each.")
    if len(found) < 2:
        raise UserError("Agreement needs the files of at least two annotators.")
    return found


def read_resolutions(path: Path) -> Resolutions:
    """Return the resolved and contested labels in the YAML file *path* (rounds 2 and 3); raises ConfigError."""
    return load_yaml(path, Resolutions)


def agreement(annotations: Sequence[Annotations]) -> LabelAgreement:
    """Return Krippendorff's alpha of the annotators' labels in round 1, for agents and for steps; gaps are allowed."""
    traces = _trace_ids(annotations)
    agents = [[_labelled_agent(one, trace) for trace in traces] for one in annotations]
    steps = [[_labelled_step(one, trace) for trace in traces] for one in annotations]
    return LabelAgreement(
        _krippendorff_alpha(agents),
        _krippendorff_alpha(steps),
        tuple(one.annotator for one in annotations),
        len(traces),
    )


def settle(annotations: Sequence[Annotations], resolutions: Resolutions | None = None) -> list[Settled]:
    """Return each annotated trace with its status and label so far; UserError if *resolutions* name another trace."""
    given = resolutions or Resolutions()
    traces = _trace_ids(annotations)
    if unknown := sorted({*given.resolved, *given.contested} - set(traces)):
        raise UserError(f"The resolutions name {unknown[0]!r}, which nobody annotated; known: {', '.join(traces[:8])}.")
    return [_settle_trace(trace, annotations, given) for trace in traces]


def review_plan(annotations: Sequence[Annotations], settled: Sequence[Settled]) -> dict[str, list[str]]:
    """Return annotator to the traces to review in round 3: settled traces are dealt to annotators in turn."""
    names = [one.annotator for one in annotations]
    plan: dict[str, list[str]] = {name: [] for name in names}
    for number, one in enumerate(one for one in settled if one.status in SETTLED):
        plan[names[number % len(names)]].append(one.trace)
    return plan


def _settle_trace(trace: str, annotations: Sequence[Annotations], resolutions: Resolutions) -> Settled:
    """Return *trace* with its agreed or resolved label, or with none while it is contested or open."""
    labels = {one.annotator: one.attributions[trace] for one in annotations if trace in one.attributions}
    status, attribution, note = _settle_by_labels(labels, [one.annotator for one in annotations])
    if (resolution := resolutions.resolved.get(trace)) is not None:
        absent = sorted({one.annotator for one in annotations} - set(resolution.by))
        if absent:
            note = f"resolved without {', '.join(absent)}"
        else:
            status, note = "resolved", f"by {', '.join(resolution.by)}"
            attribution = Attribution(agent_name=resolution.agent, step_id=resolution.step, reason=resolution.reason)
    if contesting := resolutions.contested.get(trace):
        status, attribution, note = "contested", None, f"contested by {', '.join(contesting)}"
    return Settled(trace, status, attribution, labels, note)


def _settle_by_labels(
    labels: Mapping[str, Attribution], annotators: Sequence[str]
) -> tuple[Status, Attribution | None, str]:
    """Return (status, agreed label or None, note) of one trace; *labels*: annotator to label, some may be missing."""
    absent = [name for name in annotators if name not in labels or labels[name].step_id is None]
    if absent:
        return "missing", None, f"not annotated by {', '.join(absent)}"
    answers = {(label.agent_name, label.step_id) for label in labels.values()}
    if len(answers) > 1:
        said = "; ".join(f"{name}: {label.agent_name} at {label.step_id}" for name, label in labels.items())
        return "disagreed", None, said
    if unsure := [name for name, label in labels.items() if label.uncertain]:
        return "uncertain", None, f"{', '.join(unsure)} uncertain"
    first = next(iter(labels.values()))
    return "agreed", first, ""


def _krippendorff_alpha(labels: list[list[str | None]]) -> float | None:
    """Return alpha of nominal *labels* (a list per annotator), None without two different comparable ones."""
    import krippendorff
    import numpy as np

    values = sorted({label for row in labels for label in row if label is not None})
    paired = any(sum(row[i] is not None for row in labels) > 1 for i in range(len(labels[0]) if labels else 0))
    if len(values) < 2 or not paired:
        return None
    codes = [[np.nan if label is None else values.index(label) for label in row] for row in labels]
    return float(krippendorff.alpha(reliability_data=codes, level_of_measurement="nominal"))


def _trace_ids(annotations: Sequence[Annotations]) -> list[str]:
    """Return the ids of all annotated traces, sorted."""
    return sorted({trace for one in annotations for trace in one.attributions})


def _labelled_agent(annotations: Annotations, trace: str) -> str | None:
    """Return the agent that the annotator blames in *trace*, None without a label."""
    return annotations.attributions[trace].agent_name if trace in annotations.attributions else None


def _labelled_step(annotations: Annotations, trace: str) -> str | None:
    """Return the step that the annotator blames in *trace* as text, None without a label."""
    step = annotations.attributions[trace].step_id if trace in annotations.attributions else None
    return None if step is None else str(step)
