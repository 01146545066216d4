"""LLM calls, each a request with its answer; results of tool calls are found in later requests."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice, pairwise
from typing import Any, Literal

from opsassay.core.schema.trajectory import ToolCall
from opsassay.solvers.proxy.apis import Asked, ModelAnswer, ToolResult
from opsassay.solvers.proxy.steps import tool_in_text

_LOOKED_AT = 100
"""Most later requests that are searched for a tool's result."""
_FAILED = re.compile(r"\A\s*(?:error\b|traceback|exception\b|\{\s*\"error\"|exitcode: [1-9])", re.IGNORECASE)


@dataclass(frozen=True)
class ModelCall:
    """A request with its answer, None when it has none or the API is unknown."""

    asked: Asked
    answer: ModelAnswer | None

    def tool_logs(self, results: Sequence[ToolResult | None]) -> tuple[ToolCall, ...]:
        """Return the tool calls of the answer, in order, with *results*; None is a call without a result."""
        uses = self.answer.tool_uses if self.answer else ()
        return tuple(
            _make_tool_call(use.tool, use.arguments, result) for use, result in zip(uses, results, strict=True)
        )

    def logs_in_text(self, later: LaterRequests) -> tuple[ToolCall, ...]:
        """Return the tool call in the answer's text, with the message that follows it in *later* as output; else ()."""
        text = self.answer.text if self.answer else ""
        tool = tool_in_text(text)
        return (_make_tool_call(tool, {"text": text}, later.sent_after(text)),) if tool else ()


class LaterRequests:
    """The requests after each answer, searched for the results of the tools that the answer calls."""

    def __init__(self, calls: Sequence[ModelCall]) -> None:
        self._calls = calls
        self._with_id: dict[str, list[int]] = defaultdict(list)
        self._after: dict[str, str] = {}
        for number, call in enumerate(calls):
            for id_ in dict.fromkeys(result.id for result in call.asked.results):
                self._with_id[id_].append(number)
            for (_, text), (_, following) in pairwise(call.asked.messages):
                self._after.setdefault(text, following)

    def results(self, number: int) -> list[ToolResult | None]:
        """Return the result of each tool call of LLM call *number* (from 0), in order; None where no request has it.

        Call ids may repeat, also in parallel conversations. The result is the new one in the first later request of the
        same conversation; in any later request if none continues these messages; else the one in the answer itself, as
        for tools that the API runs.
        """
        call = self._calls[number]
        uses = call.answer.tool_uses if call.answer else ()
        given = {result.id: result for result in call.answer.results} if call.answer else {}
        asked: Counter[str] = Counter()
        found = []
        for use in uses:
            known = sum(result.id == use.id for result in call.asked.results) + asked[use.id]
            asked[use.id] += 1
            found.append(self._find_result(number, use.id, known) or given.get(use.id))
        return found

    def sent_after(self, text: str) -> ToolResult | None:
        """Return the message that follows *text* in any request, as a result; None without one."""
        following = self._after.get(text)
        return None if following is None else ToolResult("", following)

    def _find_result(self, number: int, id_: str, known: int) -> ToolResult | None:
        """Return the result of the call *id_* in a request after *number*, past the *known* older ones."""
        with_id = self._with_id[id_]
        requests = [self._calls[n] for n in islice(with_id, bisect_right(with_id, number), None)]
        own = self._calls[number].asked.messages
        goes_on = next((c for c in requests[:_LOOKED_AT] if c.asked.messages[: len(own)] == own), None)
        for request in (goes_on, *requests[:_LOOKED_AT]):
            sent = [r for r in request.asked.results if r.id == id_] if request else []
            if len(sent) > known:
                return sent[known]
            if sent and request is not goes_on:  # a conversation whose beginning was cut off
                return sent[-1]
        return None


def _make_tool_call(tool: str, arguments: dict[str, Any], result: ToolResult | None) -> ToolCall:
    """Return the call of *tool* with the output of *result*; its status is "unanswered" without one."""
    if result is None:
        return ToolCall(tool=tool, arguments=arguments, output="", status="unanswered")
    status: Literal["ok", "error"] = "error" if result.failed or _FAILED.search(result.output) else "ok"
    return ToolCall(tool=tool, arguments=arguments, output=result.output, status=status)
