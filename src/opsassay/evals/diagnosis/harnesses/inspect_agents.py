"""Built-in agents under inspect_ai: its model behind the interface that they call, from a thread."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import anyio.from_thread
from inspect_ai.model import (
    ChatMessage,
    ChatMessageAssistant,
    ChatMessageSystem,
    ChatMessageTool,
    ChatMessageUser,
    GenerateConfig,
    ModelOutput,
    get_model,
)
from inspect_ai.tool import ToolCall, ToolInfo, ToolParams

from opsassay.core.schema.incident import Incident
from opsassay.core.schema.tool_session import ToolSpec
from opsassay.solvers.agents.asking import Asker, LimitError
from opsassay.solvers.agents.base import Exam, agent_named
from opsassay.solvers.agents.contract import AnswerError
from opsassay.solvers.agents.limits import Limits, Meter
from opsassay.solvers.agents.models.base import COUNTED, Message, Reply, ToolRequest
from opsassay.solvers.agents.record import AgentRecorder
from opsassay.solvers.agents.tools import TelemetryToolbox
from opsassay.solvers.proxy.apis.counts import usage_by_total


def answer_of(name: str, incident: Incident, services: list[str], tools: TelemetryToolbox, limits: Limits) -> str:
    """Run the built-in agent *name* on *incident* with *tools*; return its answer as JSON, or why it has none.

    *services*: the names that it may blame. Must be called in a thread that anyio started for a sample. Raises
    NotFoundError, UserError, and errors of the model.
    """
    meter = Meter(limits)
    with TemporaryDirectory(prefix="opsassay-") as folder:  # the log of inspect_ai has the steps
        asker = Asker(_InspectModel(), meter, AgentRecorder(Path(folder)))
        try:
            answer = agent_named(name).solve(Exam(incident, tuple(services), tools, asker, meter))
        except (AnswerError, LimitError) as error:
            return str(error)
    return answer.diagnosis.model_dump_json(by_alias=True, include={"root_causes", "propagation"})


class _InspectModel:
    """inspect_ai's model of the current sample, with the interface of a model of OpsAssay."""

    def __init__(self) -> None:
        self._model = get_model()

    @property
    def name(self) -> str:
        """The model's name in inspect_ai, for results."""
        return str(self._model)

    def complete(
        self, messages: Sequence[Message], tools: Sequence[ToolSpec] = (), *, temperature: float | None = None
    ) -> Reply:
        """Return the reply of inspect_ai's model to *messages*; errors and limits of inspect_ai end the sample."""
        return _reply_of_output(anyio.from_thread.run(self._generate_output, messages, tools, temperature))

    async def _generate_output(
        self, messages: Sequence[Message], tools: Sequence[ToolSpec], temperature: float | None
    ) -> ModelOutput:
        """Ask inspect_ai's model with *messages* and *tools*, on its event loop; return its output."""
        return await self._model.generate(
            [_message_for_inspect(one) for one in messages],
            [ToolInfo(name=s.name, description=s.description, parameters=_parameters_of_tool(s)) for s in tools],
            config=GenerateConfig(temperature=temperature),
        )


def _parameters_of_tool(spec: ToolSpec) -> ToolParams:
    """Return the tool's JSON schema of parameters as inspect_ai's type."""
    return ToolParams.model_validate({**spec.parameters, "type": "object"})


def _message_for_inspect(message: Message) -> ChatMessage:
    """Return *message* as inspect_ai's message class for its role."""
    match message.role:
        case "system":
            return ChatMessageSystem(content=message.content)
        case "user":
            return ChatMessageUser(content=message.content)
        case "tool":
            return ChatMessageTool(content=message.content, tool_call_id=message.tool_call_id)
    calls = [ToolCall(id=one.id, function=one.tool, arguments=one.arguments) for one in message.tool_requests]
    return ChatMessageAssistant(content=message.content, tool_calls=calls or None)


def _reply_of_output(output: ModelOutput) -> Reply:
    """Return inspect_ai's *output* as a reply: text, tool calls and token counts."""
    asked = output.message.tool_calls or ()
    usage = usage_by_total("inspect", output.usage.model_dump() if output.usage else None)
    return Reply(
        text=output.completion,
        tool_requests=tuple(ToolRequest(id=one.id, tool=one.function, arguments=one.arguments) for one in asked),
        **{name: usage[name] for name in COUNTED if name in usage},
    )
