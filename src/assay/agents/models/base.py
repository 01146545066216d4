"""What a conversation with a model is made of, and the protocol of every model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, Protocol

from pydantic import Field

from assay.model.base import Noun


class ToolRequest(Noun):
    """A tool that the model wants to be called."""

    id: str = ""
    tool: str
    arguments: dict[str, Any] = Field(default_factory=dict)


class Message(Noun):
    """One message; *tool_call_id* names the request that a tool message answers."""

    role: Literal["system", "user", "assistant", "tool"]
    content: str = ""
    tool_requests: tuple[ToolRequest, ...] = ()
    tool_call_id: str | None = None


class ToolSpec(Noun):
    """A tool as a model is told of it; *parameters* is a JSON schema."""

    name: str
    description: str = ""
    parameters: dict[str, Any] = Field(default_factory=lambda: {"type": "object", "properties": {}})


class Reply(Noun):
    """What a model answers; an *error_status* is the HTTP status of a failure that a script plays."""

    text: str = ""
    tool_requests: tuple[ToolRequest, ...] = ()
    input_tokens: int = 0
    output_tokens: int = 0
    error_status: int | None = None


class Model(Protocol):
    """Anything that answers messages."""

    @property
    def name(self) -> str:
        """What the model is called in results."""
        ...

    def complete(
        self, messages: Sequence[Message], tools: Sequence[ToolSpec] = (), *, temperature: float | None = None
    ) -> Reply:
        """Return the answer; raises OperationError when there is none."""
        ...
