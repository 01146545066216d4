"""The SRE agent of ITBench (C.5): a diagnosis agent that only looks, then a mitigation agent that plans, acts and checks.

The two work in sequence. A call is linted before it is carried out; what the linter or the system objects to goes back to
the model, which reflects and tries again. Long outputs are summarised by a request of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from opsassay.agents.asking import Asker, LimitError
from opsassay.agents.models.base import Message, ModelError, Reply, ToolRequest, ToolSpec
from opsassay.agents.sre_lint import lint
from opsassay.agents.sre_prompts import (
    DIAGNOSE,
    DIAGNOSIS_REPORT,
    MITIGATE,
    MITIGATION_REPORT,
    SUMMARISE,
    begin_mitigation,
    reflect,
)
from opsassay.model.trajectory import ToolCall

DIAGNOSIS, MITIGATION, SUMMARISER = "diagnosis", "mitigation", "summariser"
LONG_OUTPUT = 4_000
TURNS, REFLECTIONS = 30, 3
"""Turns of each agent; times in a row that a call that failed is given back for reflection."""


class Looking(Protocol):
    """The tools of an operator, as plain callables."""

    def specs(self, *, changing: bool) -> Sequence[ToolSpec]:
        """Return the tools, with those that change something only if *changing*."""

    def call(self, tool: str, arguments: Mapping[str, Any], step_id: int) -> ToolCall:
        """Return the call with what came of it."""


@dataclass
class Report:
    """What the two agents handed in: JSON objects, None where one ended without."""

    diagnosis: dict[str, Any] | None = None
    mitigation: dict[str, Any] | None = None
    notes: list[str] = field(default_factory=list)


class SreAgent:
    """Diagnoses, then mitigates, with *tools*, asking through *asker*; *names* are those that a call may aim at.

    *diagnosed* is called with the diagnosis at the moment when it is handed in.
    """

    name = "sre"
    source = "ITBench (arXiv 2502.05352), C.5: two agents in sequence, linters, reflection, summariser"

    def __init__(
        self,
        asker: Asker,
        tools: Looking,
        names: Collection[str] = (),
        diagnosed: Callable[[Mapping[str, Any]], object] = lambda _: None,
    ) -> None:
        self._asker, self._tools, self._names, self._diagnosed = asker, tools, names, diagnosed

    def run(self, alert: str) -> Report:
        """Work on *alert* until the mitigation is reported, or time or turns are over."""
        report = Report()
        try:
            looking = self._tools.specs(changing=False)
            report.diagnosis = self._converse(DIAGNOSIS, DIAGNOSE, alert, looking, DIAGNOSIS_REPORT, report)
            if report.diagnosis is not None:
                self._diagnosed(report.diagnosis)
            acting = self._tools.specs(changing=True)
            task = begin_mitigation(alert, report.diagnosis)
            report.mitigation = self._converse(MITIGATION, MITIGATE, task, acting, MITIGATION_REPORT, report)
        except LimitError as error:
            report.notes.append(str(error))
        except ModelError as error:
            report.notes.append(f"the model gave no answer: {error}")
        return report

    def _converse(
        self, agent: str, prompt: str, task: str, tools: Sequence[ToolSpec], final: ToolSpec, report: Report
    ) -> dict[str, Any] | None:
        """Let one agent work until it calls the tool *final*; return the arguments of that call."""
        specs = {spec.name: spec for spec in (*tools, final)}
        talk = _Talk(self._asker, self._tools, specs, self._names, final.name)
        talk.messages += [Message(role="system", content=prompt), Message(role="user", content=task)]
        for _ in range(TURNS):
            reply = self._asker.ask(agent, list(talk.messages), (*tools, final), talk.act)
            if talk.handed_in is not None:
                return talk.handed_in
            talk.shorten()
            if not reply.tool_requests:
                talk.messages += [
                    Message(role="assistant", content=reply.text),
                    Message(role="user", content=f"Go on, or call {final.name} when you are done."),
                ]
        report.notes.append(f"{agent}: no report after {TURNS} turns")
        return None


@dataclass
class _Talk:
    """One agent's conversation and its tool calls."""

    asker: Asker
    tools: Looking
    specs: Mapping[str, ToolSpec]
    names: Collection[str]
    final: str
    messages: list[Message] = field(default_factory=list)
    handed_in: dict[str, Any] | None = None
    failures: int = 0

    def act(self, reply: Reply) -> Iterator[ToolCall]:
        """Carry out what *reply* asks for until a report is handed in; take it with its outcome into the conversation."""
        if not reply.tool_requests:
            return
        self.messages.append(Message(role="assistant", content=reply.text, tool_requests=reply.tool_requests))
        step_id = self.asker.recorder.steps + 1
        for request in reply.tool_requests:
            call = self._carry(request, step_id)
            content = self._reflected(call) if call.status == "error" else call.output
            self.messages.append(Message(role="tool", content=content, tool_call_id=request.id))
            yield call
            if self.handed_in is not None:
                return

    def shorten(self) -> None:
        """Put summaries in the place of long outputs; one that nobody summarises is cut."""
        for index, message in enumerate(self.messages):
            if message.role == "tool" and len(message.content) > LONG_OUTPUT:
                self.messages[index] = message.model_copy(update={"content": self._summary(message.content)})

    def _carry(self, request: ToolRequest, step_id: int) -> ToolCall:
        problem = lint(request.tool, request.arguments, self.specs, self.names)
        if problem is not None:
            output = f"Linter: {problem}"
            return ToolCall(tool=request.tool, arguments=request.arguments, output=output, status="error")
        if request.tool == self.final:
            self.handed_in = dict(request.arguments)
            return ToolCall(tool=request.tool, arguments=request.arguments, output="Taken.")
        call = self.tools.call(request.tool, request.arguments, step_id)
        self.failures = self.failures if call.status == "error" else 0
        return call

    def _reflected(self, call: ToolCall) -> str:
        self.failures += 1
        return reflect(call) if self.failures <= REFLECTIONS else call.output

    def _summary(self, output: str) -> str:
        messages = [Message(role="system", content=SUMMARISE), Message(role="user", content=output)]
        try:
            summary = self.asker.ask(SUMMARISER, messages).text
        except ModelError:
            summary = ""
        return f"(summary)\n{summary}" if summary.strip() else output[:LONG_OUTPUT] + "\n(cut)"
