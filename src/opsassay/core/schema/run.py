"""Solver, Run, Verdict, Suite and ScoreTable: runs of solvers and their grades."""

from __future__ import annotations

from enum import StrEnum
from typing import Any, Literal

from pydantic import Field, FiniteFloat

from opsassay.core.schema.base import Artefact, Int64, Noun
from opsassay.core.schema.faults import FaultKind


class Solver(Noun):
    """A graded method or agent with its configuration.

    *parameters* are those of a method that were set, also in the *configuration*; *fault_kinds* are the kinds that it
    declares to be able to name, None without a declaration. Empty ones are left out of files.
    """

    name: str
    kind: Literal["method", "agent"] = "method"
    configuration: dict[str, Any] = Field(default_factory=dict)
    version: str = ""
    parameters: dict[str, Any] = Field(default_factory=dict, exclude_if=lambda given: not given)
    fault_kinds: tuple[FaultKind, ...] | None = Field(default=None, exclude_if=lambda kinds: kinds is None)

    @property
    def label(self) -> str:
        """The name of the solver in results: its name, then ``:parameter=value,...`` for parameters that were set."""
        if not self.parameters:
            return self.name
        given = ",".join(f"{name}={_format_value(value)}" for name, value in self.parameters.items())
        return f"{self.name}:{given}"


def _format_value(value: Any) -> str:
    """Return *value* as text; a float in its shortest form (``:g``)."""
    return f"{value:g}" if isinstance(value, float) else str(value)


class RunStatus(StrEnum):
    """The end of an attempt; a failed run is also a result."""

    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    TIMEOUT = "timeout"
    ABORTED = "aborted"


class Run(Artefact):
    """run.json of one solver on one incident or scenario; its instants are nanoseconds of UTC wall clock."""

    cell: str
    attempt: int
    domain: str | None = Field(
        default=None, exclude_if=lambda domain: domain is None, description="older runs have none"
    )
    item: str
    item_hash: str
    system: str
    solver: Solver
    solver_hash: str
    arm: str = "default"
    seed: int = 0
    isolation: Literal["sealed", "unsealed", "in_process"] = "in_process"
    status: RunStatus = RunStatus.RUNNING
    error: str | None = None
    started_ns: Int64 = 0
    ended_ns: Int64 | None = None
    boot_id: str = ""
    versions: dict[str, str] = Field(default_factory=dict)
    limits: dict[str, FiniteFloat] = Field(default_factory=dict)
    limits_hit: tuple[str, ...] = ()
    spent: dict[str, FiniteFloat] = Field(default_factory=dict)
    flags: tuple[str, ...] = Field(default=(), description="why the run is not ranked: unsealed, canary")
    notes: tuple[str, ...] = ()


class MetricStatus(StrEnum):
    """Whether a metric has a value; a missing one is never 0."""

    SCORED = "scored"
    NOT_APPLICABLE = "not_applicable"
    FAILED = "failed"


class Metric(Noun):
    """One grade; *value* is set exactly when it is scored, *reason* when it is not.

    *judge* is the judging engine with its version, '' for a grade without one.
    """

    value: FiniteFloat | None = None
    status: MetricStatus
    reason: str = ""
    judge: str = Field(default="", exclude_if=lambda judge: not judge)


class EvidenceResult(Noun):
    """The result of one SQL query of an answer when the grader ran it again.

    *executed* is the text that ran, written from the parsed *sql*. *about* is the service, or cause -> effect, that it
    supports. *relevant*: its result comes from rows of that service only; *vacuous*: it uses no telemetry or found only
    zeros; *bound*: its score as bound evidence, None without an expectation; *finding*: the reason. *supported* is a
    judge's verdict with the reason *opinion*, if one was asked.
    """

    sql: str
    executed: str = ""
    claim: str
    status: Literal["ok", "empty", "error", "timeout", "refused"]
    columns: tuple[str, ...] = ()
    rows: tuple[tuple[Any, ...], ...] = ()
    message: str = ""
    about: str = ""
    relevant: bool | None = None
    vacuous: bool | None = None
    bound: float | None = None
    finding: str = ""
    supported: bool | None = None
    opinion: str = ""


class Verdict(Artefact):
    """The grades of one run under one profile.

    *fingerprinted*: the fault follows from what the solver saw, so the grade does not count in rankings.
    """

    run: str
    item: str
    system: str
    solver: str
    profile: str
    label: str | None = None
    fingerprinted: bool = Field(default=False, exclude_if=lambda marked: not marked)
    metrics: dict[str, Metric]
    evidence: tuple[EvidenceResult, ...] = ()


class SuiteItem(Noun):
    """One incident or scenario of a suite, with the hash of its visible part."""

    id: str
    system: str
    content_hash: str


class Suite(Artefact):
    """A named, checksummed set of incidents or scenarios; *canary* is a string that reveals contamination."""

    name: str
    canary: str
    items: tuple[SuiteItem, ...]
    datasheet: dict[str, Any] = Field(default_factory=dict)


class Score(Noun):
    """One row of a ScoreTable: a method's score on a case, in [0, 1], its protocol and its answer."""

    family: str
    system: str
    case: str
    method: str
    protocol: str = ""
    predicted: str | None = None
    expected: str | None = None
    score: float = Field(ge=0, le=1)


SCORE_TABLE_COLUMNS = tuple(Score.model_fields)
"""Columns of the long table that the audit reads, in order."""
