"""A conversation of a model with tools: calls are linted, failed calls are reconsidered, long outputs are summarised.

The built-in agents of repair, compliance and FinOps share it. After ITBench, C.5: linters, reflection, summariser.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from opsassay.core.schema.tool_session import ToolSession, ToolSpec
from opsassay.core.schema.trajectory import ToolCall
from opsassay.solvers.agents.asking import Asker
from opsassay.solvers.agents.models.base import Message, ModelError, Reply, ToolRequest
from opsassay.solvers.agents.sre_lint import lint
from opsassay.solvers.agents.sre_prompts import SUMMARISE, reflect
from opsassay.solvers.agents.tool_sessions import SUBMIT

SUMMARISER = "summariser"
LONG_OUTPUT = 4_000
TURNS, REFLECTIONS = 30, 3
"""Most replies of an agent; most failed calls in a row after which the model is asked to reconsider."""


def _accept_any_arguments(_: Mapping[str, Any]) -> str | None:
    """Return None (no problem), for any arguments of the final tool."""
    return None


@dataclass
class Conversation:
    """One agent's conversation and its calls of *tools*, until it calls the tool *final* with valid arguments.

    *names* are the valid targets of a call. *problem_of* returns what is wrong with the final arguments, or None.
    """

    asker: Asker
    tools: ToolSession
    offered: Sequence[ToolSpec]
    final: str
    names: Collection[str] = ()
    problem_of: Callable[[Mapping[str, Any]], str | None] = _accept_any_arguments
    messages: list[Message] = field(default_factory=list)
    handed_in: dict[str, Any] | None = None
    failures: int = 0

    def hold(self, agent: str, system_prompt: str, task: str) -> dict[str, Any] | None:
        """Ask the model as *agent* on *task*, turn by turn; return the final tool's arguments, None after `TURNS` turns."""
        self.messages += [Message(role="system", content=system_prompt), Message(role="user", content=task)]
        for _ in range(TURNS):
            reply = self.asker.ask(agent, list(self.messages), self.offered, self.act)
            if self.handed_in is not None:
                return self.handed_in
            self.shorten()
            if not reply.tool_requests:
                self.messages += [
                    Message(role="assistant", content=reply.text),
                    Message(role="user", content=f"Go on, or call {self.final} when you are done."),
                ]
        return None

    def act(self, reply: Reply) -> Iterator[ToolCall]:
        """Run the tool calls of *reply* until one is final; yield each, and append its result to the messages."""
        if not reply.tool_requests:
            return
        self.messages.append(Message(role="assistant", content=reply.text, tool_requests=reply.tool_requests))
        step_id = self.asker.recorder.steps + 1
        for request in reply.tool_requests:
            call = self._carry_out(request, step_id)
            content = self._output_with_reflection(call) if call.status == "error" else call.output
            self.messages.append(Message(role="tool", content=content, tool_call_id=request.id))
            yield call
            if self.handed_in is not None:
                return

    def shorten(self) -> None:
        """Replace each long tool output in the messages by the model's summary, or cut it without one."""
        for index, message in enumerate(self.messages):
            if message.role == "tool" and len(message.content) > LONG_OUTPUT:
                self.messages[index] = message.model_copy(update={"content": self._summarise_output(message.content)})

    def _carry_out(self, request: ToolRequest, step_id: int) -> ToolCall:
        """Check *request* of step *step_id* and run its tool; a call of the final tool stores its arguments."""
        specs = {spec.name: spec for spec in self.offered}
        problem = lint(request.tool, request.arguments, specs, self.names)
        if problem is None and request.tool == self.final:
            problem = self.problem_of(request.arguments)
        if problem is not None:
            output = f"Linter: {problem}"
            return ToolCall(tool=request.tool, arguments=request.arguments, output=output, status="error")
        if request.tool == self.final:
            self.handed_in = dict(request.arguments)
            return ToolCall(tool=request.tool, arguments=request.arguments, output="Taken.")
        call = self.tools.call(request.tool, request.arguments, step_id)
        self.failures = self.failures if call.status == "error" else 0
        return call

    def _output_with_reflection(self, call: ToolCall) -> str:
        """Return a failed call's output; after the first `REFLECTIONS` failures in a row, with a request to reconsider."""
        self.failures += 1
        return reflect(call) if self.failures <= REFLECTIONS else call.output

    def _summarise_output(self, output: str) -> str:
        """Return the model's summary of a long tool *output*, or its beginning when the model gives none."""
        messages = [Message(role="system", content=SUMMARISE), Message(role="user", content=output)]
        try:
            summary = self.asker.ask(SUMMARISER, messages).text
        except ModelError:
            summary = ""
        return f"(summary)\n{summary}" if summary.strip() else output[:LONG_OUTPUT] + "\n(cut)"


class SubmittingAgent:
    """An agent that calls *tools* until it submits; *problem_of* returns a submission's breach of contract or None."""

    name: ClassVar[str]
    source: ClassVar[str]
    role: ClassVar[str]
    """The agent's name in the steps of a trace."""
    prompt: ClassVar[str]

    def __init__(
        self,
        asker: Asker,
        tools: ToolSession,
        offered: Sequence[ToolSpec],
        problem_of: Callable[[Mapping[str, Any]], str | None],
    ) -> None:
        self._talk = Conversation(asker, tools, offered, SUBMIT, problem_of=problem_of)

    def run(self, goal: str) -> dict[str, Any] | None:
        """Work on the task text *goal*; return the submitted arguments, None after the last turn."""
        return self._talk.hold(self.role, self.prompt, goal)
