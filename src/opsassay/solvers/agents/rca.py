"""The two-phase RCA agent of OpenRCA 2.0 (F.2 to F.4): it investigates with four tools, then writes a JSON answer."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any

from opsassay.core.schema.trajectory import ToolCall
from opsassay.solvers.agents.asking import LimitError
from opsassay.solvers.agents.base import Exam
from opsassay.solvers.agents.contract import Answer, AnswerError, read_answer
from opsassay.solvers.agents.limits import SYNTHESIS_SHARE
from opsassay.solvers.agents.models.base import Message, ModelError, Reply
from opsassay.solvers.agents.prompts import (
    PROMPTS_VERSION,
    describe,
    investigation_prompt,
    repair_request,
    synthesis_prompt,
    synthesis_request,
)

INVESTIGATOR, SYNTHESISER = "investigator", "synthesiser"


class RcaAgent:
    """Asks the model and runs its tool calls until it calls none; then another request asks for the answer."""

    name = "rca"
    source = "OpenRCA 2.0 (arXiv 2606.27154), Appendix F: two phases, four tools, no topology"
    configuration: Mapping[str, Any] = {"prompts": PROMPTS_VERSION, "phases": "investigate, synthesise"}

    def solve(self, exam: Exam) -> Answer:
        """Investigate the incident of *exam* and return the answer; raises AnswerError, LimitError, OperationError."""
        return _synthesise(exam, _investigate(exam))


def _investigate(exam: Exam) -> list[Message]:
    """Let the model query the telemetry by tools; return the messages after the system prompt and the incident's."""
    messages = [
        Message(role="system", content=investigation_prompt(exam.incident, exam.limits)),
        Message(role="user", content=describe(exam.incident)),
    ]
    first = len(messages)

    def act(reply: Reply) -> Iterator[ToolCall]:
        """Run the reply's tool calls in order, add reply and results to the conversation, and yield the calls."""
        messages.append(Message(role="assistant", content=reply.text, tool_requests=reply.tool_requests))
        for request in reply.tool_requests:
            call = _call_tool(exam, request.tool, request.arguments)
            messages.append(Message(role="tool", content=call.output, tool_call_id=request.id))
            yield call

    while exam.meter.exhausted(SYNTHESIS_SHARE) is None:
        try:
            reply = exam.asker.ask(INVESTIGATOR, list(messages), exam.tools.specs(), act)
        except LimitError:
            break
        except ModelError as error:
            if error.passing or len(messages) == first:
                raise
            # the conversation itself is refused, as when it no longer fits: what was found is still worth an answer
            exam.meter.note("context")
            break
        if not reply.tool_requests or "tool_calls" in exam.meter.hit:
            break
    return messages[first:]


def _call_tool(exam: Exam, tool: str, arguments: Mapping[str, Any]) -> ToolCall:
    """Call *tool* and return the call with its output; above the limit of tool calls, an error without calling."""
    limits, meter = exam.limits, exam.meter
    if meter.tool_calls >= limits.tool_calls:
        meter.note("tool_calls")
        output = f"Error: the hard cap of {limits.tool_calls} tool calls is reached."
        return ToolCall(tool=tool, arguments=dict(arguments), output=output, status="error")
    meter.tool_calls += 1
    began = time.time_ns()
    call = exam.tools.call(tool, arguments)
    exam.asker.recorder.action(call, began)
    return call


def _synthesise(exam: Exam, investigation: list[Message]) -> Answer:
    """Ask the model for the answer after the *investigation*, up to `limits.repairs` times again if invalid; return it."""
    transcript = _transcript(investigation)
    if "context" in exam.meter.hit:
        transcript = transcript[-len(transcript) // 2 :]
    messages = [
        Message(role="system", content=synthesis_prompt(exam.incident)),
        Message(role="user", content=synthesis_request(exam.incident, transcript)),
    ]
    kept: Answer | None = None
    for tried in range(exam.limits.repairs + 1):
        try:
            reply = exam.asker.ask(SYNTHESISER, list(messages))
        except LimitError as error:
            if kept is not None:
                return kept
            raise AnswerError(f"{error} before there was an answer") from error
        try:
            answer = read_answer(reply.text, exam.services)
        except AnswerError as error:
            problem = str(error)
            if tried == exam.limits.repairs and kept is None:
                exam.meter.note("repairs")
                raise
        else:
            if not answer.complaints:
                return answer
            kept, problem = answer, "; ".join(answer.complaints)
        if tried < exam.limits.repairs:
            exam.meter.repairs += 1
            messages += [
                Message(role="assistant", content=reply.text),
                Message(role="user", content=repair_request(problem)),
            ]
    exam.meter.note("repairs")
    assert kept is not None
    return kept


def _transcript(investigation: list[Message]) -> str:
    """Return the messages of the *investigation* as text, without calls of the tool think."""
    thought: set[str] = set()
    lines = []
    for message in investigation:
        if message.role == "assistant":
            thought = {request.id for request in message.tool_requests if request.tool == "think"}
        elif message.tool_call_id in thought:
            continue
        called = [f"[calls {r.tool} {r.arguments}]" for r in message.tool_requests if r.tool != "think"]
        text = "\n".join(filter(None, [message.content, *called]))
        if text:
            lines.append(f"[{message.role}]\n{text}")
    return "\n\n".join(lines) or "(nothing was looked at)"
