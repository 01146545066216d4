"""Annotates cases and keeps the result beside their truth."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

from assay.causes.annotate import annotate
from assay.errors import AssayError, UserError
from assay.model.causal_graph import Annotation, CausalGraph
from assay.model.incident import EffectCheck, Label
from assay.telemetry.tree import Case, resolve, write_annotation


@dataclass(frozen=True)
class Annotated:
    """What became of one case: the annotation, or the reason why there is none."""

    name: str
    datapack: Path
    annotation: Annotation | None
    error: str | None
    seconds: float


def annotate_path(path: Path) -> Annotated:
    """Annotate the one case at *path* and write the result to its truth; a case that cannot be read is reported."""
    began = time.perf_counter()
    try:
        (case,) = resolve(path)
        annotation = annotate_case(case)
        if case.truth_path is not None:
            write_annotation(case.truth_path, annotation)
    except AssayError as error:
        return Annotated(path.name, path, None, str(error), time.perf_counter() - began)
    return Annotated(case.name, path, annotation, None, time.perf_counter() - began)


def annotate_case(case: Case, root: str | None = None) -> Annotation:
    """Return the annotation of *case*; a fault whose effect check failed is no_effect whatever the telemetry says.

    *root* pretends that the fault was on that service. Raises UserError for a case without truth.
    """
    if case.truth is None:
        raise UserError(
            f"{case.datapack.path} has no truth beside it, so there is no known fault to follow; give its tree."
        )
    annotation = annotate(case.datapack, case.truth.faults, root=root)
    if case.truth.effect is not None and not case.truth.effect.passed:
        return _without_effect(annotation, case.truth.effect)
    return annotation


def _without_effect(annotation: Annotation, effect: EffectCheck) -> Annotation:
    reason = f"The fault did not bite: {effect.signature} {effect.after:.3g} against {effect.threshold:.3g}."
    none = {"label": Label.NO_EFFECT, "reason": reason, "graph": CausalGraph(), "paths": ()}
    return annotation.model_copy(update=none)
