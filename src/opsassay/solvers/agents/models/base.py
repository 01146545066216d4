"""The messages and replies of a conversation with a model, and the protocol of every model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, Protocol

from pydantic import Field

from opsassay.core.errors import OperationError
from opsassay.core.schema.base import Noun
from opsassay.core.schema.tool_session import ToolSpec
from opsassay.solvers.proxy.apis.base import ModelAnswer

Broken = Literal["garbage", "half", "hang"]


class ModelError(OperationError):
    """A model gave no reply: with the HTTP *status*, None when no whole response came; *pause_s* is its Retry-After."""

    def __init__(self, message: str, status: int | None = None, pause_s: float | None = None) -> None:
        self.status, self.pause_s = status, pause_s
        super().__init__(message)

    @property
    def passing(self) -> bool:
        """Whether the call may succeed when repeated: after a rate limit, timeout, server error or broken connection."""
        return self.status is None or self.status in {408, 409, 429} or self.status >= 500


class ToolRequest(Noun):
    """A call of a tool that the model asks for."""

    id: str = ""
    tool: str
    arguments: dict[str, Any] = Field(default_factory=dict)


class Message(Noun):
    """One message; *tool_call_id* names the request that a tool message answers."""

    role: Literal["system", "user", "assistant", "tool"]
    content: str = ""
    tool_requests: tuple[ToolRequest, ...] = ()
    tool_call_id: str | None = None


COUNTED = ("input_tokens", "output_tokens", "cached_tokens", "cache_write_tokens")
"""The kinds of tokens with their own price; input_tokens includes both kinds of cached tokens."""


class Reply(Noun):
    """A model's reply.

    A scripted reply may be a failure: *error_status* is its HTTP status; *broken* is "garbage" (no JSON), "half" (cut off)
    or "hang" (never sent).
    """

    text: str = ""
    tool_requests: tuple[ToolRequest, ...] = ()
    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    cache_write_tokens: int = 0
    error_status: int | None = None
    broken: Broken | None = None

    @property
    def usage(self) -> dict[str, int]:
        """The token counts by names of `COUNTED`; those of caches only if above 0."""
        counts = {name: int(getattr(self, name)) for name in COUNTED}
        return {name: count for name, count in counts.items() if count or name in COUNTED[:2]}


def reply_of(answer: ModelAnswer) -> Reply:
    """Return *answer*, parsed from an API's response, as a `Reply`."""
    return Reply(
        text=answer.text,
        tool_requests=tuple(ToolRequest(id=u.id, tool=u.tool, arguments=u.arguments) for u in answer.tool_uses),
        **{name: answer.usage[name] for name in COUNTED if name in answer.usage},
    )


class Model(Protocol):
    """Anything that replies to messages."""

    @property
    def name(self) -> str:
        """The model's name in results."""
        ...

    def complete(
        self, messages: Sequence[Message], tools: Sequence[ToolSpec] = (), *, temperature: float | None = None
    ) -> Reply:
        """Return the reply to *messages*, which may call *tools*; raises ModelError or OperationError when none comes."""
        ...
