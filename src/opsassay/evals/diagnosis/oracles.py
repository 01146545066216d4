"""The oracles of an incident: the right answer by its truth, and one that blames whom nothing happened to."""

from __future__ import annotations

from itertools import pairwise

from opsassay.core.errors import UserError
from opsassay.core.schema.causal_graph import Annotation
from opsassay.core.schema.diagnosis import Diagnosis, PropagationClaim, RootCauseClaim
from opsassay.evals.runner.oracles import AnswerOracle
from opsassay.scoring.outcome import true_roots
from opsassay.scoring.profiles import PROFILES
from opsassay.telemetry.tree import Case

RIGHT, WRONG = "right", "wrong"
NAMES = (RIGHT, WRONG)
_PROTOCOL = {"oracle": "it knows the truth"}


def oracle_of(case: Case, name: str) -> AnswerOracle:
    """Return the oracle *name* of *case*; raises UserError without a truth, or when that names neither fault nor root."""
    truth, profile = case.truth, PROFILES["default"]
    roots = true_roots(truth, profile) if truth is not None else ()
    if truth is None or not (roots or truth.broken is False):
        raise UserError(
            f"{case.name} has no truth beside it that names a cause, so nobody knows the right answer to it."
        )
    if name == RIGHT:
        claims = tuple(RootCauseClaim(service=min(root.services), fault_kind=root.kind) for root in roots)
        return AnswerOracle(
            name, Diagnosis(root_causes=claims, propagation=_edges(case.annotation), protocol=_PROTOCOL)
        )
    guilty = {service for root in roots for service in root.services}
    innocent = [service for service in case.datapack.services() if profile.service(service) not in guilty]
    kind = roots[0].kind if roots else None
    claims = tuple(RootCauseClaim(service=service, fault_kind=kind) for service in innocent[:1])
    return AnswerOracle(name, Diagnosis(root_causes=claims, protocol=_PROTOCOL))


def _edges(annotation: Annotation | None) -> tuple[PropagationClaim, ...]:
    """Return the verified cascade between services, none where it was not verified."""
    if annotation is None:
        return ()
    graph = annotation.graph
    pairs = (
        (graph.service_of(one), graph.service_of(other)) for path in annotation.paths for one, other in pairwise(path)
    )
    return tuple(PropagationClaim.model_validate({"from": a, "to": b}) for a, b in dict.fromkeys(pairs) if a != b)
