"""Tools as an agent sees them, and the session in which one run calls them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from pydantic import Field

from opsassay.core.schema.base import Noun
from opsassay.core.schema.trajectory import ToolCall


class ToolSpec(Noun):
    """A tool as a model sees it; *parameters* is a JSON schema."""

    name: str
    description: str = ""
    parameters: dict[str, Any] = Field(default_factory=lambda: {"type": "object", "properties": {}})


class ToolSession(Protocol):
    """The tools of one run, and every call of them; a socket, an agent and a script all take it."""

    def specs(self) -> Sequence[ToolSpec]:
        """Return the descriptions of the agent's tools; the last is the one that submits the answer."""

    def call(self, tool: str, arguments: Mapping[str, Any], step_id: int | None = None) -> ToolCall:
        """Run *tool* with *arguments* at the agent's step *step_id*.

        Return the call with its output, which holds any error: none is raised.
        """


class TracedToolSession(ToolSession, Protocol):
    """A tool session that keeps its calls for the trace."""

    calls: list[ToolCall]
