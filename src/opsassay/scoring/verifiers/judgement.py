"""Judgement: what one predicate says of a run, why, and the tick that decided it."""

from __future__ import annotations

from enum import StrEnum

from opsassay.core.schema.base import Int64, Noun
from opsassay.core.schema.run import Metric, MetricStatus


class Judged(StrEnum):
    """What a predicate can say; missing evidence is a failure with its own reason, never a pass."""

    PASSED = "passed"
    FAILED = "failed"
    NOT_APPLICABLE = "not_applicable"


class Judgement(Noun):
    """One predicate on one run.

    *value* is what was measured (the least availability, user-minutes ...), *limit* what it was held against; *tick* and
    *time_ns* say where it was decided, None when it was decided by what is not there. *subtracted* names failures that
    stood before the fault and therefore do not count.
    """

    predicate: str
    status: Judged
    reason: str
    value: float | None = None
    limit: float | None = None
    tick: int | None = None
    time_ns: Int64 | None = None
    subtracted: tuple[str, ...] = ()

    @property
    def passed(self) -> bool:
        """Whether the predicate holds; False also when it is not applicable."""
        return self.status is Judged.PASSED

    @property
    def failed(self) -> bool:
        """Whether the predicate is applicable and does not hold."""
        return self.status is Judged.FAILED

    def metric(self) -> Metric:
        """Return the judgement as a metric: 1, 0, or not applicable with the reason."""
        if self.status is Judged.NOT_APPLICABLE:
            return Metric(status=MetricStatus.NOT_APPLICABLE, reason=self.reason)
        return Metric(value=float(self.passed), status=MetricStatus.SCORED)


def not_applicable(predicate: str, reason: str) -> Judgement:
    """Return the judgement that *predicate* is not applicable, with *reason*."""
    return Judgement(predicate=predicate, status=Judged.NOT_APPLICABLE, reason=reason)


def missing(predicate: str, reason: str, subtracted: tuple[str, ...] = ()) -> Judgement:
    """Return the judgement that *predicate* fails for *reason*, missing evidence; failures *subtracted* are ignored."""
    return Judgement(
        predicate=predicate, status=Judged.FAILED, reason=f"missing evidence: {reason}", subtracted=subtracted
    )
