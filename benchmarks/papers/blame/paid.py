"""What calls of a model have cost, and a budget that is never passed, also by calls side by side.

Before a call its greatest price is set aside: a token for every two bytes of the question, and the longest answer that may
come. When it has ended its real price takes that place. A call that was cut off or timed out may have been charged, so
its question stays paid; one that was refused with an HTTP status costs nothing.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from opsassay.core.errors import OpsAssayError
from opsassay.core.schema.tool_session import ToolSpec
from opsassay.solvers.agents.models.base import Message

_BYTES_PER_TOKEN_AT_LEAST = 2
_PER_MESSAGE = 16  # tokens around each message and the names in it


class BudgetReachedError(OpsAssayError):
    """The next call could pass the budget, so it was not made; it ends the comparison and is no answer of a technique."""


class Spending:
    """What was spent so far, USD, with what calls under way may cost at most; *budget* None is no limit."""

    def __init__(self, budget: float | None = None, spent: float = 0.0) -> None:
        self._lock = threading.Lock()
        self._budget, self.spent, self._reserved = budget, spent, 0.0

    @contextmanager
    def reserved(self, most: float) -> Iterator[list[float]]:
        """Set *most* aside for one call; its real price is what stands in the list at the end.

        Raises BudgetReachedError when *most* is not left.
        """
        with self._lock:
            left = float("inf") if self._budget is None else self._budget - self.spent - self._reserved
            if most > left:
                raise BudgetReachedError(
                    f"The next call may cost {most:.4f} USD, and {max(left, 0.0):.4f} of the budget of "
                    f"{self._budget:g} are left; raise it to go on."
                )
            self._reserved += most
        price: list[float] = []
        try:
            yield price
        finally:
            with self._lock:
                self._reserved -= most
                self.spent += sum(price)


def tokens_at_most(messages: Sequence[Message], tools: Sequence[ToolSpec]) -> int:
    """Return the most tokens that a question can have: one for every two bytes of JSON, 16 for each message and tool."""
    text = "".join(part.model_dump_json() for part in (*messages, *tools))
    return len(text.encode()) // _BYTES_PER_TOKEN_AT_LEAST + _PER_MESSAGE * (len(messages) + len(tools))
