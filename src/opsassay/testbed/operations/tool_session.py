"""The tool session of an operator: it checks arguments, records every call and returns errors as output.

Every call, also a refused one, becomes an `Action` on the run's clock.
"""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from pydantic import ValidationError

from opsassay.core.errors import OpsAssayError, RefusedError
from opsassay.core.schema.base import Written
from opsassay.core.schema.tool_session import FurtherTools, ToolSpec, joined_tools
from opsassay.core.schema.trajectory import Action, ToolCall
from opsassay.core.schema.validation_errors import problem
from opsassay.testbed.operations import telemetry_queries

if TYPE_CHECKING:
    from opsassay.testbed.operations.alert_watch import AlertWatch
    from opsassay.testbed.operations.telemetry_view import TelemetryView

OUTPUT_LIMIT = 8_000
ARGUMENTS_LIMIT = 2_000
"""Most characters of a call's arguments in its record."""
ARGUMENTS_TRACED = 2**16
"""Most characters of a call's arguments in the trace: enough for a manifest."""
CALLS_LIMIT = 2_000
"""Most calls of one agent; further ones are refused and not recorded, so that they cannot fill the disk."""


class Tool(NamedTuple):
    """One tool: the model of its arguments, its operator's verb if any, and whether it changes something."""

    arguments: type[Written]
    verb: str | None = None
    mutating: bool = False


class Done(NamedTuple):
    """The result of a tool: its output, the entities that it changed, and its status."""

    output: str
    touched: tuple[str, ...] = ()
    status: Literal["ok", "error"] = "ok"


def specs_of(tools: Mapping[str, Tool], *, changing: bool = True) -> tuple[ToolSpec, ...]:
    """Return the descriptions of *tools* for a model; without *changing*, only of tools that change nothing."""
    return tuple(
        ToolSpec(name=name, description=(tool.arguments.__doc__ or "").strip(), parameters=_schema(tool.arguments))
        for name, tool in tools.items()
        if changing or not tool.mutating
    )


class OperatorToolSession(ABC):
    """The *tools* of an operator; every call is passed to *record*. Calls are serialised, from any thread.

    *view* is the telemetry that they query, None without any.
    """

    watch: AlertWatch | None = None
    """The watch over the alerts that fire, None without alerts."""
    kubeconfig: Path | None = None
    """The agent's own access to the cluster, None without a cluster."""

    def __init__(
        self, tools: Mapping[str, Tool], record: Callable[[Action], None], view: TelemetryView | None = None
    ) -> None:
        self.tools, self.record, self.view = tools, record, view
        self._turn = threading.Lock()
        self._calls = self._late = 0
        self._under_way: str | None = None
        self._closed = threading.Event()
        self._joined: dict[str, tuple[ToolSpec, FurtherTools]] = {}

    def allow_undo(self) -> None:
        """Add the tool that undoes the agent's last change; raises RefusedError if changes are not journalled."""
        raise RefusedError(
            "Only an operator of a system on this machine has undo_last; leave `rollback` out of the plan."
        )

    def fill(self, value: Any) -> Any:
        """Return *value* with the scenario's placeholders replaced by real names; a local system has none."""
        return value

    @abstractmethod
    def carry_out(self, tool: Tool, arguments: Written) -> Done:
        """Carry out a call of *tool*; return output, changed entities and status; raises OpsAssayError if it fails."""

    def changes(self, tool: Tool, arguments: Mapping[str, Any]) -> bool:
        """Return whether a call of *tool* with *arguments* may change the system."""
        del arguments
        return tool.mutating

    def join(self, servers: Sequence[FurtherTools]) -> None:
        """Add the tools of *servers*, which do not change the system; raises StartError if a name is taken."""
        self._joined = joined_tools(servers, self.own_specs())

    def specs(self, *, changing: bool = True) -> tuple[ToolSpec, ...]:
        """Return the descriptions of the tools for a model; without *changing*, only of tools that change nothing."""
        return (*self.own_specs(changing=changing), *(spec for spec, _ in self._joined.values()))

    def own_specs(self, *, changing: bool = True) -> tuple[ToolSpec, ...]:
        """Return the descriptions of the tools that work on the system, as `specs`."""
        return specs_of(self.tools, changing=changing)

    def close(self) -> None:
        """Refuse all further calls, since the agent's time is over, and end a wait in progress."""
        self._closed.set()

    def finish(self, timeout_s: float) -> str | None:
        """Wait at most *timeout_s* for the call in progress; return its tool, ended or not, None without a call."""
        under_way = self._under_way
        if self._turn.acquire(timeout=timeout_s):
            self._turn.release()
        return under_way

    @property
    def call_count(self) -> int:
        """The number of calls, refused ones included."""
        return self._calls

    @property
    def late_calls(self) -> int:
        """The number of calls that were refused because the agent's time was over."""
        return self._late

    def call(self, tool: str, arguments: Mapping[str, Any], step_id: int | None = None) -> ToolCall:
        """Carry out one call, record it for the agent's step *step_id*, and return it; errors are not raised."""
        name = str(tool)
        traced = recorded_arguments({str(key): value for key, value in arguments.items()}, ARGUMENTS_TRACED)
        with self._turn:
            self._calls += 1
            if self._calls > CALLS_LIMIT:
                refused = f"Error: there are no more than {CALLS_LIMIT} calls."
                return ToolCall(tool=name[:64], arguments=traced, output=refused, status="error")
            began_ns = time.time_ns()
            self._late += self._closed.is_set()
            self._under_way = name[:64]
            done = self._attempt_call(name, arguments)
            call = ToolCall(tool=name[:64], arguments=traced, output=_shorten_output(done.output), status=done.status)
            known = self.tools.get(name)
            self.record(
                Action(
                    tool=call.tool,
                    arguments=recorded_arguments(arguments),
                    started_ns=began_ns,
                    ended_ns=time.time_ns(),
                    step_id=step_id,
                    status=call.status,
                    output=call.output,
                    mutating=known is not None and self.changes(known, arguments),
                    touched=done.touched,
                )
            )
            self._under_way = None
            return call

    def _attempt_call(self, name: str, arguments: Mapping[str, Any]) -> Done:
        """Check *arguments* of the tool *name*, carry out the call, and return its result, also one of an error."""
        tool = self.tools.get(name)
        if self._closed.is_set():
            return _error_result("the time for repairs is over.")
        if name in self._joined:
            called = self._joined[name][1].call(name, arguments)
            return Done(called.output, status="ok" if called.status == "ok" else "error")
        if tool is None:
            return _error_result(
                f"there is no tool {name[:40]!r}; there are {', '.join((*self.tools, *self._joined))}."
            )
        try:
            return self.carry_out(tool, tool.arguments.model_validate(dict(arguments), strict=True))
        except ValidationError as error:
            return _error_result(f"invalid arguments of {name}: {problem(error, 'the arguments')[:200]}.")
        except OpsAssayError as error:
            return _error_result(str(error))

    def pause(self, seconds: float) -> str:
        """Wait *seconds*, or until the agent's time is over; return "Waited N s."."""
        self._closed.wait(seconds)
        return f"Waited {seconds:g} s."


def _error_result(message: str) -> Done:
    """Return the result of a failed call with *message*."""
    return Done(f"Error: {message}", status="error")


def _shorten_output(output: str) -> str:
    """Return *output*, cut at OUTPUT_LIMIT characters with a note on how many are missing."""
    if len(output) <= OUTPUT_LIMIT:
        return output
    return output[:OUTPUT_LIMIT] + f"\n... ({len(output) - OUTPUT_LIMIT} more characters; ask for less)"


def recorded_arguments(arguments: Mapping[str, Any], limit: int = ARGUMENTS_LIMIT) -> dict[str, Any]:
    """Return *arguments* as recorded: values are shortened strings if their JSON exceeds *limit* characters."""
    try:
        if len(telemetry_queries.as_json(dict(arguments))) <= limit:
            return dict(arguments)
    except (TypeError, ValueError, RecursionError):
        return {"unreadable": True}
    return {str(key)[:64]: str(value)[:200] for key, value in list(arguments.items())[:20]}


def _schema(model: type[Written]) -> dict[str, Any]:
    """Return the JSON schema of *model*, the arguments of a tool, without its titles."""
    schema = model.model_json_schema()
    schema.pop("description", None)
    schema.pop("title", None)
    for about in schema.get("properties", {}).values():
        about.pop("title", None)
    return schema
