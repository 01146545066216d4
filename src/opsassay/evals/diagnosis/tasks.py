"""Recorded incidents as tasks, identified by the hash of the files that solvers get; and the oracles of each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from opsassay.core.errors import DatapackError, OpsAssayError, UserError
from opsassay.core.schema.causal_graph import Annotation
from opsassay.core.schema.diagnosis import Diagnosis, PropagationClaim, RootCauseClaim
from opsassay.core.schema.incident import Incident
from opsassay.core.schema.run import Suite
from opsassay.core.schema.task import Task
from opsassay.evals.runner.oracles import AnswerOracle
from opsassay.scoring.outcome import true_roots
from opsassay.scoring.profiles import PROFILES
from opsassay.telemetry.content import content_hash
from opsassay.telemetry.datapack import Datapack
from opsassay.telemetry.tree import Case, read_noun, resolve


@dataclass(frozen=True)
class IncidentItem:
    """An incident with the hash of the files that solvers get, computed once for all runs on it."""

    datapack: Datapack
    content_hash: str

    @classmethod
    def from_datapack(cls, datapack: Datapack) -> IncidentItem:
        """Return *datapack* with the hash of its content; raises DatapackError."""
        return cls(datapack, content_hash(datapack.path))

    @property
    def incident(self) -> Incident:
        """The incident's description: system, windows and alerts."""
        return self.datapack.incident

    @property
    def task(self) -> Task:
        """The public description of the task, without the ground truth."""
        incident = self.incident
        return Task(
            id=incident.id,
            domain="diagnosis",
            name=incident.id,
            description=incident.description,
            stratum=incident.system,
            system=incident.system,
            goal="Name the root causes, how the failure spread, and the evidence for each.",
            commitment=self.content_hash,
        )


SUITE = "suite.json"


def open_suite(
    path: Path, on_error: Callable[[Path, OpsAssayError], None] | None = None
) -> list[tuple[Case, IncidentItem]]:
    """Return the cases of the suite or folder at *path*; raises DatapackError when a suite's content was changed.

    *on_error* is called for each case that cannot be read, and the rest goes on.
    """
    opened = [(case, IncidentItem.from_datapack(case.datapack)) for case in resolve(path, on_error)]
    if (path / SUITE).exists():
        recorded = {item.id: item.content_hash for item in read_noun(Suite, path / SUITE).items}
        for case, item in opened:
            if recorded.get(item.incident.id) != item.content_hash:
                raise DatapackError(
                    f"{case.datapack.path} is not what {path / SUITE} lists; restore it, or make the suite anew."
                )
    return opened


RIGHT, WRONG = "right", "wrong"
NAMES = (RIGHT, WRONG)
_PROTOCOL = {"oracle": "it knows the truth"}


def oracle_of(case: Case, name: str) -> AnswerOracle:
    """Return the oracle *name* ("right", "wrong") of *case*: the right answer, or one that blames an innocent service.

    Raises UserError when the truth is missing, or names neither a root cause nor that nothing was broken.
    """
    truth, profile = case.truth, PROFILES["default"]
    roots = true_roots(truth, profile) if truth is not None else ()
    if truth is None or not (roots or truth.broken is False):
        raise UserError(
            f"{case.name} has no truth beside it that names a cause, so nobody knows the right answer to it."
        )
    if name == RIGHT:
        claims = tuple(RootCauseClaim(service=min(root.services), fault_kind=root.kind) for root in roots)
        return AnswerOracle(
            name, Diagnosis(root_causes=claims, propagation=_verified_edges(case.annotation), protocol=_PROTOCOL)
        )
    guilty = {service for root in roots for service in root.services}
    innocent = [service for service in case.datapack.services() if profile.service(service) not in guilty]
    kind = roots[0].kind if roots else None
    claims = tuple(RootCauseClaim(service=service, fault_kind=kind) for service in innocent[:1])
    return AnswerOracle(name, Diagnosis(root_causes=claims, protocol=_PROTOCOL))


def _verified_edges(annotation: Annotation | None) -> tuple[PropagationClaim, ...]:
    """Return the service edges on verified paths from fault to symptom, () without an annotation."""
    if annotation is None:
        return ()
    graph = annotation.graph
    pairs = (
        (graph.service_of(one), graph.service_of(other)) for path in annotation.paths for one, other in pairwise(path)
    )
    return tuple(PropagationClaim.model_validate({"from": a, "to": b}) for a, b in dict.fromkeys(pairs) if a != b)
