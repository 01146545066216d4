"""Tool sessions that count and record the calls of one run, and store the answer that the agent submits."""

from __future__ import annotations

import json
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from opsassay.core.schema.tool_session import FurtherTools, ToolSpec, joined_tools
from opsassay.core.schema.trajectory import ToolCall
from opsassay.solvers.agents.limits import Meter
from opsassay.solvers.agents.record import AgentRecorder

SUBMIT = "submit"
ARGUMENTS_KEPT = 2**16
"""Most characters of a call's arguments that are recorded."""
BEYOND_KEPT = 50
"""Calls that are recorded beyond the limit: submissions and the first refused ones."""


class CanCall(Protocol):
    """Tools by their names."""

    def call(self, tool: str, arguments: Mapping[str, Any]) -> ToolCall:
        """Call *tool*; return the call with its output; a failure is a call with status "error"."""


class CountedToolSession(ABC):
    """A tool session whose calls of *tools* count against the limit in *meter*; submit does not count. Thread-safe."""

    def __init__(self, tools: CanCall, meter: Meter, recorder: AgentRecorder) -> None:
        self._tools, self._meter, self._recorder = tools, meter, recorder
        self._lock = threading.Lock()
        self._joined: dict[str, tuple[ToolSpec, FurtherTools]] = {}
        self.calls: list[ToolCall] = []

    @abstractmethod
    def own_specs(self) -> tuple[ToolSpec, ...]:
        """Return the specifications of the session's own tools, without those of joined servers; submit is last."""

    def join(self, servers: Sequence[FurtherTools]) -> None:
        """Offer the tools of the MCP *servers* too, counted and recorded; raises StartError for a name that is taken."""
        self._joined = joined_tools(servers, self.own_specs())

    def specs(self) -> tuple[ToolSpec, ...]:
        """Return the specifications of all tools: the session's own, those of joined servers, submit last."""
        *own, submit = self.own_specs()
        return (*own, *(spec for spec, _ in self._joined.values()), submit)

    @abstractmethod
    def submitted(self, answer: dict[str, Any]) -> ToolCall:
        """Store *answer* if it is valid; return the call of submit, with status "error" and the reason if it is not."""

    def call(self, tool: str, arguments: Mapping[str, Any], step_id: int | None = None) -> ToolCall:
        """Run and record a call of *tool*; beyond the limit of calls only ``submit`` runs. *step_id* is not used."""
        del step_id
        began_ns = time.time_ns()
        given = {str(key): value for key, value in arguments.items()}
        with self._lock:
            if len(self.calls) >= self._meter.limits.tool_calls + BEYOND_KEPT:
                output = "Error: this run has no more calls."
                return ToolCall(tool=tool[:64], arguments={}, output=output, status="error")
            call = self.submitted(given) if tool == SUBMIT else self._call_counted(tool, given)
            kept = call.model_copy(update={"tool": tool[:64], "arguments": _recorded_arguments(given)})
            self.calls.append(kept)
            self._recorder.action(kept, began_ns)
        return kept

    def last_error(self) -> str:
        """Return the last failed call's error on one line, or a phrase that no call failed."""
        errors = [call.output for call in self.calls if call.status == "error"]
        return errors[-1].removeprefix("Error: ").splitlines()[0][:300] if errors else "it ended without one"

    def _call_counted(self, tool: str, given: dict[str, Any]) -> ToolCall:
        """Count the call and run *tool* with the arguments *given*; beyond the limit return an error call."""
        limit = self._meter.limits.tool_calls
        if self._meter.tool_calls >= limit:
            self._meter.note("tool_calls")
            output = f"Error: the hard cap of {limit} tool calls is reached; submit your answer."
            return ToolCall(tool=tool, arguments=given, output=output, status="error")
        self._meter.tool_calls += 1
        return (self._joined[tool][1] if tool in self._joined else self._tools).call(tool, given)


def _recorded_arguments(arguments: dict[str, Any]) -> dict[str, Any]:
    """Return *arguments* as they are recorded: unchanged, or {"cut": beginning of their JSON} when too long."""
    text = json.dumps(arguments, ensure_ascii=False, default=str)
    return arguments if len(text) <= ARGUMENTS_KEPT else {"cut": text[:ARGUMENTS_KEPT]}
