"""The FinOps agent of ITBench (E.3): natural language to SQL over cost data, a detector of anomalies, one JSON answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from opsassay.agents.asking import Asker
from opsassay.agents.conversing import Conversation, Looking
from opsassay.agents.models.base import ToolSpec

SUBMIT = "submit"
ANALYST = "analyst"

ANALYSE = """\
You are a FinOps analyst. You answer one question about cloud cost data in the columns of FOCUS 1.2. Look at the schema
before you write SQL: columns that are not in it do not exist, and the dialect is the one that the tool names. Read the
question to its end: which cost column, which days of which time zone, which currency, whether credits count.
Compute with SQL, never in your head. If the question is for anomalies, a detector can point at candidates; the definition
in the question decides. When a statement fails, read the error, mend the statement, and go on.
Hand in the answer with submit, once, by the contract in the question."""


class FinopsAgent:
    """Asks for SQL through *tools* until it submits; *problem_of* says what breaks the contract of an answer."""

    name = "finops"
    source = "ITBench (arXiv 2502.05352), E.3: SQL that is linted before it runs, an anomaly detector, a summary"

    def __init__(
        self,
        asker: Asker,
        tools: Looking,
        offered: Sequence[ToolSpec],
        problem_of: Callable[[Mapping[str, Any]], str | None],
    ) -> None:
        self._asker, self._tools, self._offered, self._problem_of = asker, tools, offered, problem_of

    def run(self, goal: str) -> dict[str, Any] | None:
        """Return the answer to *goal*, None when its turns are over; raises LimitError, OperationError."""
        talk = Conversation(self._asker, self._tools, self._offered, SUBMIT, problem_of=self._problem_of)
        return talk.hold(ANALYST, ANALYSE, goal)
