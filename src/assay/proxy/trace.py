"""From a recorded session to the Trace: one step per LLM call, tool results read from the requests that follow."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from assay.model.trajectory import ToolCall, Trace, TraceStep
from assay.proxy.apis import Answer, Asked, ToolResult
from assay.proxy.exchanges import Exchange
from assay.proxy.steps import AgentIds, persona, render_messages, speaker, tool_in_text

_FAILED = re.compile(r"\A\s*(?:error\b|traceback|exception\b|\{\s*\"error\"|exitcode: [1-9])", re.IGNORECASE)


def trace_of(exchanges: Sequence[Exchange], session: str) -> Trace:
    """Return the Trace of a recorded session; requests that are no LLM calls are no steps."""
    calls = [_Call.of(exchange) for exchange in exchanges if exchange.api and exchange.asked()]
    results = _results(calls)
    ids = AgentIds()
    steps = []
    for number, call in enumerate(calls, 1):
        name = call.agent()
        later = calls[number] if number < len(calls) else None
        logs = call.tool_logs(results) or call.logs_in_text(later)
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
class _Call:
    exchange: Exchange
    asked: Asked
    answer: Answer | None

    @classmethod
    def of(cls, exchange: Exchange) -> _Call:
        asked = exchange.asked()
        assert asked is not None
        return cls(exchange, asked, exchange.answer())

    def agent(self) -> str:
        """Return the name in the request, in the answer's header, or in the system prompt; "agent" when nobody says."""
        spoken = speaker(self.answer.text) if self.answer else None
        prompt = next((text for role, text in self.asked.messages if role in {"system", "developer"}), "")
        return self.asked.agent or spoken or persona(prompt) or "agent"

    def tool_logs(self, results: dict[str, ToolResult]) -> tuple[ToolCall, ...]:
        """Return the tools that the answer calls with what came back for each."""
        uses = self.answer.tool_uses if self.answer else ()
        return tuple(_tool_call(use.tool, use.arguments, results.get(use.id)) for use in uses)

    def logs_in_text(self, later: _Call | None) -> tuple[ToolCall, ...]:
        """Return the call that the text makes, with the message after that text in the next request as its output."""
        text = self.answer.text if self.answer else ""
        tool = tool_in_text(text)
        if tool is None:
            return ()
        texts = [message for _, message in later.asked.messages] if later else []
        at = texts.index(text) + 1 if text in texts else len(texts)
        came_back = ToolResult("", texts[at]) if at < len(texts) else None
        return (_tool_call(tool, {"text": text}, came_back),)

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


def _results(calls: Sequence[_Call]) -> dict[str, ToolResult]:
    """Return tool results by the id of their call, each as it was told first."""
    found: dict[str, ToolResult] = {}
    for call in calls:
        for result in call.asked.results:
            found.setdefault(result.id, result)
    return found


def _tool_call(tool: str, arguments: dict[str, Any], result: ToolResult | None) -> ToolCall:
    if result is None:
        return ToolCall(tool=tool, arguments=arguments, output="", status="unanswered")
    status: Literal["ok", "error"] = "error" if result.failed or _FAILED.search(result.output) else "ok"
    return ToolCall(tool=tool, arguments=arguments, output=result.output, status=status)


def _roster(calls: Sequence[_Call]) -> dict[str, Any]:
    """Return each agent's first system prompt, tools and model."""
    roster: dict[str, Any] = {}
    for call in calls:
        if call.agent() not in roster:
            prompt = next((text for role, text in call.asked.messages if role in {"system", "developer"}), "")
            roster[call.agent()] = {"system_prompt": prompt, "tools": list(call.asked.tools), "model": call.asked.model}
    return roster
