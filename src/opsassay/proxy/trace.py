"""From a recorded session to the Trace: one step per LLM call, tool results read from the requests that follow."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice, pairwise
from typing import Any, Literal

from opsassay.model.trajectory import ToolCall, Trace, TraceStep
from opsassay.proxy.apis import Asked, ModelAnswer, ToolResult
from opsassay.proxy.exchanges import Exchange
from opsassay.proxy.steps import AgentIds, persona, render_messages, speaker, tool_in_text

_LOOKED_AT = 100
"""Later requests that are looked at for the result of a tool; nearly always it is the next one."""
_FAILED = re.compile(r"\A\s*(?:error\b|traceback|exception\b|\{\s*\"error\"|exitcode: [1-9])", re.IGNORECASE)


def trace_of(exchanges: Sequence[Exchange], session: str) -> Trace:
    """Return the Trace of a recorded session; requests that are no LLM calls are no steps."""
    calls = [_RecordedCall(exchange, asked, exchange.answer()) for exchange in exchanges if (asked := exchange.asked())]
    later, ids = _Later(calls), AgentIds()
    steps = []
    for number, call in enumerate(calls, 1):
        name = call.agent()
        logs = call.tool_logs(later.results(number - 1)) or call.logs_in_text(later)
        steps.append(call.step(number, name, ids.of(name), logs))
    first = calls[0].asked if calls else None
    return Trace(
        task_id=session,
        task_instruction=next((text for role, text in first.messages if role == "user"), "") if first else "",
        system_name=session,
        agent_configuration=_roster(calls),
        steps=tuple(steps),
    )


@dataclass(frozen=True)
class _RecordedCall:
    exchange: Exchange
    asked: Asked
    answer: ModelAnswer | None

    def agent(self) -> str:
        """Return the name in the request, in the answer's header, or in the system prompt; "agent" when nobody says."""
        spoken = speaker(self.answer.text) if self.answer else None
        prompt = next((text for role, text in self.asked.messages if role in {"system", "developer"}), "")
        return self.asked.agent or spoken or persona(prompt) or "agent"

    def tool_logs(self, results: Sequence[ToolResult | None]) -> tuple[ToolCall, ...]:
        """Return the tools that the answer calls with what came back for each."""
        uses = self.answer.tool_uses if self.answer else ()
        return tuple(_tool_call(use.tool, use.arguments, result) for use, result in zip(uses, results, strict=True))

    def logs_in_text(self, later: _Later) -> tuple[ToolCall, ...]:
        """Return the call that the text makes, with what was sent after that text in a later request as its output."""
        text = self.answer.text if self.answer else ""
        tool = tool_in_text(text)
        return (_tool_call(tool, {"text": text}, later.sent_after(text)),) if tool else ()

    def step(self, number: int, name: str, agent_id: str, logs: tuple[ToolCall, ...]) -> TraceStep:
        """Return the step record."""
        exchange, answer = self.exchange, self.answer
        return TraceStep(
            step_id=number,
            agent_id=agent_id,
            agent_name=name,
            input_context=render_messages(self.asked.messages),
            output_content=answer.text if answer else exchange.answer_body.decode("utf-8", "replace"),
            tool_logs=logs,
            started_at=exchange.started_ns,
            ended_at=exchange.ended_ns,
            usage=answer.usage if answer else {},
            model=(answer.model if answer else None) or self.asked.model,
            request_id=exchange.header("x-request-id") or (answer.id if answer else None),
            kind="tool" if logs else "plain",
            error=self._error(),
        )

    def _error(self) -> str | None:
        said = self.answer.error if self.answer else None
        if self.exchange.status is not None and self.exchange.status >= 400:
            return f"HTTP {self.exchange.status}" + (f": {said}" if said else "")
        return said or self.exchange.error or (None if self.exchange.outcome == "complete" else self.exchange.outcome)


class _Later:
    """What later requests tell of earlier answers: the results of their tools."""

    def __init__(self, calls: Sequence[_RecordedCall]) -> None:
        self._calls = calls
        self._with_id: dict[str, list[int]] = defaultdict(list)
        self._after: dict[str, str] = {}
        for number, call in enumerate(calls):
            for id_ in dict.fromkeys(result.id for result in call.asked.results):
                self._with_id[id_].append(number)
            for (_, text), (_, following) in pairwise(call.asked.messages):
                self._after.setdefault(text, following)

    def results(self, number: int) -> list[ToolResult | None]:
        """Return the result of every tool that call *number* uses, None for one that nobody sent.

        Ids may come again, in one conversation and in others at the same time: taken is the result that is new in the
        first later request of the same conversation, in any later one when none goes on with the same messages.
        """
        call = self._calls[number]
        uses = call.answer.tool_uses if call.answer else ()
        asked: Counter[str] = Counter()
        found = []
        for use in uses:
            known = sum(result.id == use.id for result in call.asked.results) + asked[use.id]
            asked[use.id] += 1
            found.append(self._result(number, use.id, known))
        return found

    def sent_after(self, text: str) -> ToolResult | None:
        """Return the message after *text*, None where none follows."""
        following = self._after.get(text)
        return None if following is None else ToolResult("", following)

    def _result(self, number: int, id_: str, known: int) -> ToolResult | None:
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


def _tool_call(tool: str, arguments: dict[str, Any], result: ToolResult | None) -> ToolCall:
    if result is None:
        return ToolCall(tool=tool, arguments=arguments, output="", status="unanswered")
    status: Literal["ok", "error"] = "error" if result.failed or _FAILED.search(result.output) else "ok"
    return ToolCall(tool=tool, arguments=arguments, output=result.output, status=status)


def _roster(calls: Sequence[_RecordedCall]) -> dict[str, Any]:
    """Return each agent's first system prompt, tools and model."""
    roster: dict[str, Any] = {}
    for call in calls:
        if call.agent() not in roster:
            prompt = next((text for role, text in call.asked.messages if role in {"system", "developer"}), "")
            roster[call.agent()] = {"system_prompt": prompt, "tools": list(call.asked.tools), "model": call.asked.model}
    return roster
