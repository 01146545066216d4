"""Questions to a model with their cost, and tolerant readers of its answers."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from opsassay.core.schema.tool_session import ToolSpec
from opsassay.core.schema.trajectory import Attribution, Trace
from opsassay.solvers.agents.models.base import Message, Model, Reply

_OBJECT = re.compile(r"\{.*\}", re.DOTALL)


@dataclass(frozen=True)
class Cost:
    """The usage of a technique: model calls and tokens."""

    calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0

    @property
    def tokens(self) -> int:
        """The number of input and output tokens together."""
        return self.input_tokens + self.output_tokens

    def __add__(self, other: Cost) -> Cost:
        """Return the costs of both."""
        return Cost(
            self.calls + other.calls, self.input_tokens + other.input_tokens, self.output_tokens + other.output_tokens
        )


class BlameAsker:
    """Asks *model* at one temperature and sums the cost; *notes* are remarks to show with the answer."""

    def __init__(self, model: Model, temperature: float) -> None:
        self._model, self._temperature = model, temperature
        self.cost, self.notes = Cost(), list[str]()

    def ask(self, messages: Sequence[Message], tools: Sequence[ToolSpec] = ()) -> Reply:
        """Return the model's reply to *messages*, which may call *tools*; add its cost. Raises OperationError."""
        reply = self._model.complete(messages, tools, temperature=self._temperature)
        self.cost += Cost(1, reply.input_tokens, reply.output_tokens)
        return reply

    def question(self, instructions: str, question: str) -> str:
        """Return the text of the model's reply to system prompt *instructions* and user message *question*."""
        return self.ask([Message(role="system", content=instructions), Message(role="user", content=question)]).text


def json_in(text: str) -> dict[str, Any] | None:
    """Return the JSON object in *text*, which may have prose around it; None without one."""
    found = _OBJECT.search(text)
    try:
        value = json.loads(found[0]) if found else None
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def attribution_in(value: dict[str, Any] | None, trace: Trace) -> Attribution:
    """Return the blamed agent and step in *value*, a model's JSON answer; a step that *trace* lacks is dropped."""
    if value is None:
        return Attribution(reason="the answer could not be read")
    step = trace.step(whole_number(value.get("step")) or 0)
    if step is None:
        return Attribution(reason=f"the answer names no step of the trace: {value.get('step')!r}")
    name = str(value.get("agent") or step.agent_name)
    return Attribution(agent_name=name, step_id=step.step_id, reason=str(value.get("reason", "")))


def whole_number(value: Any) -> int | None:
    """Return the first whole number in *value* (a number or text), None without one."""
    if isinstance(value, bool) or value is None:
        return None
    found = re.search(r"\d+", str(value))
    return int(found[0]) if found else None
