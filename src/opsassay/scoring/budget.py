"""The time limit for grading one answer, which can also be cancelled."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any

from opsassay.core.errors import OpsAssayError
from opsassay.telemetry.sql import LockedSql, QueryResult

ANSWER_SECONDS = 300.0
"""Wall clock, in seconds, for all statements of one answer together."""


class GradingEndedError(OpsAssayError):
    """The grading was cancelled before this answer was graded."""


class TimeBudget:
    """A limit of *seconds* of wall clock from now on; setting *ended* cancels the grading."""

    def __init__(self, seconds: float = ANSWER_SECONDS, ended: threading.Event | None = None) -> None:
        self.seconds, self._ended = seconds, ended or threading.Event()
        self._until = time.monotonic() + seconds

    @property
    def left_s(self) -> float:
        """The seconds left for all queries of the answer; at least 0."""
        return max(0.0, self._until - time.monotonic())

    def query(
        self,
        sql: LockedSql,
        statement: str,
        parameters: Mapping[str, Any],
        *,
        schemas: Sequence[str] = (),
        max_rows: int | None = None,
        with_tree: bool = False,
    ) -> QueryResult:
        """Run *statement* by `LockedSql.query`, whose parameters the others are; status "timeout" when no time is left.

        Raises GradingEndedError when the grading was cancelled.
        """
        self.require()
        if not self.left_s:
            return QueryResult(
                "timeout", message=f"The {self.seconds:g} s for all statements of this answer are used up."
            )
        answer = sql.query(
            statement, parameters, schemas=schemas, max_rows=max_rows, timeout_s=self.left_s, with_tree=with_tree
        )
        self.require()
        return answer

    def require(self) -> None:
        """Raise GradingEndedError if the grading has been cancelled."""
        if self._ended.is_set():
            raise GradingEndedError("The grading was cancelled; what was graded is kept, grade again for the rest.")
