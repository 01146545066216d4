"""An operator's tools as agents take them: specifications for a model, and calls with their outcome."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from opsassay.core.schema.trajectory import ToolCall
from opsassay.solvers.agents.models.base import ToolSpec
from opsassay.testbed.operations.toolbox import BaseToolbox, kept

ARGUMENTS_TRACED = 2**16
"""Characters of a call's arguments in the trace: a manifest fits in."""


class OpsToolSession:
    """The tools of *toolbox*; `mcp_server.serving` and the SRE agent both take it."""

    def __init__(self, toolbox: BaseToolbox) -> None:
        self._toolbox = toolbox

    def specs(self, *, changing: bool = True) -> tuple[ToolSpec, ...]:
        """Return the tools, with those that change something only if *changing*."""
        return tuple(
            ToolSpec(name=one.name, description=one.description, parameters=one.parameters)
            for one in self._toolbox.definitions(changing=changing)
        )

    def call(self, tool: str, arguments: Mapping[str, Any], step_id: int | None = None) -> ToolCall:
        """Return the call with what came of it."""
        outcome = self._toolbox.call(tool, arguments, step_id)
        given = kept({str(key): value for key, value in arguments.items()}, ARGUMENTS_TRACED)
        status = "ok" if outcome.status == "ok" else "error"
        return ToolCall(tool=tool[:64], arguments=given, output=outcome.output, status=status)
