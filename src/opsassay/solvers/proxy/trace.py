"""Makes the Trace of a recorded session: one step per LLM call, tool results read from later requests."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from opsassay.core.schema.trajectory import ToolCall, Trace, TraceStep
from opsassay.solvers.proxy.calls import LaterRequests, ModelCall
from opsassay.solvers.proxy.exchanges import Exchange
from opsassay.solvers.proxy.steps import AgentIds, persona, render_messages, speaker

_NUMBERS = re.compile(r"\b(?=[0-9a-f-]*\d)[0-9a-f-]{8,}\b|\d+")
"""Numbers, dates and ids, which are ignored when prompts of agents are compared."""


def trace_of(exchanges: Sequence[Exchange], session: str) -> Trace:
    """Return the Trace of the recorded *session*; only LLM calls become steps."""
    calls = [_RecordedCall(asked, exchange.answer(), exchange) for exchange in exchanges if (asked := exchange.asked())]
    later, ids = LaterRequests(calls), AgentIds()
    steps = []
    names = _agent_names(calls)
    for number, (call, name) in enumerate(zip(calls, names, strict=True), 1):
        logs = call.tool_logs(later.results(number - 1)) or call.logs_in_text(later)
        steps.append(call.step(number, name, ids.id_of(name), logs))
    first = calls[0].asked if calls else None
    return Trace(
        task_id=session,
        task_instruction=next((text for role, text in first.messages if role == "user"), "") if first else "",
        system_name=session,
        agent_configuration=_agent_configuration(calls, names),
        steps=tuple(steps),
    )


@dataclass(frozen=True)
class _RecordedCall(ModelCall):
    exchange: Exchange

    @property
    def system_prompt(self) -> str:
        """The first message of role system or developer, '' without one."""
        return next((text for role, text in self.asked.messages if role in {"system", "developer"}), "")

    def agent(self) -> str | None:
        """Return the agent's name from request, response header or system prompt, None without one."""
        spoken = speaker(self.answer.text) if self.answer else None
        return self.asked.agent or spoken or persona(self.system_prompt)

    def step(self, number: int, name: str, agent_id: str, logs: tuple[ToolCall, ...]) -> TraceStep:
        """Return the call as step *number* of agent *name*, with tool calls *logs*."""
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
            finish_reason=answer.finish_reason if answer else None,
            model=(answer.model if answer else None) or self.asked.model,
            request_id=exchange.header("x-request-id") or (answer.id if answer else None),
            kind="tool" if logs else "plain",
            error=self._describe_error(),
        )

    def _describe_error(self) -> str | None:
        """Return why the call failed (status, error, broken or empty answer), None if it did not."""
        said = self.answer.error if self.answer else None
        if self.exchange.status is not None and self.exchange.status >= 400:
            return f"HTTP {self.exchange.status}" + (f": {said}" if said else "")
        broken = self.exchange.error or (None if self.exchange.outcome == "complete" else self.exchange.outcome)
        if said or broken or not self.exchange.answer_body:
            return said or broken or "the answer is empty"
        if self.exchange.is_cut():
            return "the stream was cut short"
        answer = self.answer
        if answer is None:
            return "the answer is neither a JSON object nor a stream of events"
        is_blank = not (answer.text or answer.tool_uses or answer.results or answer.finish_reason)
        return "the answer has no text, no call and no reason why the model stopped" if is_blank else None


def _agent_names(calls: Sequence[_RecordedCall]) -> list[str]:
    """Return the agent of each call: its stated name, else "agent N" per distinct system prompt (digits ignored)."""
    named = [call.agent() for call in calls]
    prompts = [_NUMBERS.sub("0", call.system_prompt) for call in calls]
    unnamed = list(dict.fromkeys(prompt for prompt, name in zip(prompts, named, strict=True) if name is None))
    numbered = {prompt: f"agent {number}" for number, prompt in enumerate(unnamed, 1)} if len(unnamed) > 1 else {}
    return [name or numbered.get(prompt, "agent") for prompt, name in zip(prompts, named, strict=True)]


def _agent_configuration(calls: Sequence[_RecordedCall], names: Sequence[str]) -> dict[str, Any]:
    """Return system prompt, tools and model of each agent's first call; *names* are the agents of *calls*."""
    roster: dict[str, Any] = {}
    for call, name in zip(calls, names, strict=True):
        about = {"system_prompt": call.system_prompt, "tools": list(call.asked.tools), "model": call.asked.model}
        roster.setdefault(name, about)
    return roster
