"""Tools as an agent sees them, and the session in which one run calls them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

from pydantic import Field

from opsassay.core.errors import StartError
from opsassay.core.schema.base import Noun
from opsassay.core.schema.trajectory import ToolCall


class ToolSpec(Noun):
    """A tool as a model sees it; *parameters* is a JSON schema."""

    name: str
    description: str = ""
    parameters: dict[str, Any] = Field(default_factory=lambda: {"type": "object", "properties": {}})


class ToolSession(Protocol):
    """The tools of one run; sockets, agents and scripts call them through it."""

    def specs(self) -> Sequence[ToolSpec]:
        """Return the descriptions of the agent's tools; the last is the one that submits the answer."""

    def call(self, tool: str, arguments: Mapping[str, Any], step_id: int | None = None) -> ToolCall:
        """Run *tool* with *arguments* at the agent's step *step_id*; return the call with its output, also for an error."""


class FurtherTools(Protocol):
    """Tools that are added to those of a session, such as of an MCP server."""

    def specs(self) -> Sequence[ToolSpec]:
        """Return the descriptions of the tools."""

    def call(self, tool: str, arguments: Mapping[str, Any]) -> ToolCall:
        """Call *tool* and return the call with its output; an error is in the result, never raised."""


def joined_tools(servers: Iterable[FurtherTools], own: Iterable[ToolSpec]) -> dict[str, tuple[ToolSpec, FurtherTools]]:
    """Return each tool of *servers* by name, the last of a name; raises StartError for a name of the tools *own*."""
    joined = {spec.name: (spec, server) for server in servers for spec in server.specs()}
    if taken := next((spec.name for spec in own if spec.name in joined), None):
        raise StartError(f"An MCP server has a tool {taken}, which would hide ours; give the server another name.")
    return joined


class TracedToolSession(ToolSession, Protocol):
    """A tool session that stores its calls for the trace."""

    calls: list[ToolCall]
