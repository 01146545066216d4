"""Annotates cases and keeps the result beside their truth."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from assay.causes.annotate import annotate
from assay.errors import AssayError, UserError
from assay.model.causal_graph import Annotation, CausalGraph
from assay.model.incident import EffectCheck, Fault, Label, Struck
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

    A fault on a host is one on each of its services. *root* pretends that the fault was on that service. Raises UserError
    for a case without truth.
    """
    if case.truth is None:
        raise UserError(
            f"{case.datapack.path} has no truth beside it, so there is no known fault to follow; give its tree."
        )
    struck = case.truth.struck()
    acting = [one for one in struck if one.acted]
    annotation = annotate(case.datapack, _by_service(acting or struck), root=root)
    return annotation if acting or not struck else _without_effect(annotation, case.truth.effects)


def _by_service(struck: Sequence[Struck]) -> list[Fault]:
    """Return the faults, one for each service that they hit."""
    return [
        fault.model_copy(update={"service": service})
        for fault, services, _ in struck
        for service in (*sorted(services),) or (fault.service,)
    ]


def _without_effect(annotation: Annotation, effects: Sequence[EffectCheck]) -> Annotation:
    seen = "; ".join(f"{effect.signature} {effect.after:.3g} against {effect.threshold:.3g}" for effect in effects)
    reason = f"The fault did not bite: {seen}."
    none = {"label": Label.NO_EFFECT, "reason": reason, "graph": CausalGraph(), "paths": ()}
    return annotation.model_copy(update=none)
