"""Diagnosis: the answer of a solver, in the form of the public agent contract (OpenRCA 2.0, F.3) plus a ranking."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from opsassay.core.schema.base import Artefact, Noun
from opsassay.core.schema.faults import FaultKind


class Expectation(Noun):
    """How the number that a bound query gives moves from the normal to the abnormal period: by at least *ratio*."""

    change: Literal["up", "down", "gone"]
    ratio: float = Field(default=1.5, ge=1)


class Evidence(Noun):
    """One claim and the statement that is said to support it.

    With an *expectation* the statement is bound: it has ``$service`` and ``$period`` and gives one number.
    """

    kind: Literal["metric", "trace", "log"]
    sql: str
    claim: str = ""
    expectation: Expectation | None = None


class RootCauseClaim(Noun):
    """A service, what is claimed to be wrong with it, and why; *fault_kind* None when the solver names no kind."""

    service: str
    fault_kind: FaultKind | None = None
    evidence: tuple[Evidence, ...] = ()
    level: Literal["service", "pod", "container", "function", "span"] = "service"
    component: str | None = None


class PropagationClaim(Noun):
    """An edge of the claimed cascade, cause to effect."""

    source: str = Field(alias="from")
    target: str = Field(alias="to")
    evidence: tuple[Evidence, ...] = ()


class RankedService(Noun):
    """A service with its score, higher is more suspect."""

    service: str
    score: float


class Diagnosis(Artefact):
    """What broke and how it spread; no root causes at all is the answer "nothing is wrong"."""

    root_causes: tuple[RootCauseClaim, ...] = ()
    propagation: tuple[PropagationClaim, ...] = ()
    ranking: tuple[RankedService, ...] = ()
    protocol: dict[str, Any] = Field(
        default_factory=dict, description="the choices that move accuracy, as the solver states them"
    )
    notes: tuple[str, ...] = ()
