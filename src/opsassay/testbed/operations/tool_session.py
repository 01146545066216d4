"""The tool session of an operator: arguments are checked, each call is recorded, an error is reported.

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
"""What of the arguments is kept in the record of a call: an agent may send anything."""
ARGUMENTS_TRACED = 2**16
"""Characters of a call's arguments in the trace: a manifest fits in."""
CALLS_LIMIT = 2_000
"""Calls of one agent; what comes after them is refused and not even recorded, so that nobody fills a disk."""


class Tool(NamedTuple):
    """One tool: the model of its arguments, its verb where it has one, and whether it changes something."""

    arguments: type[Written]
    verb: str | None = None
    mutating: bool = False


class Done(NamedTuple):
    """What a tool did: its answer, what it touched, and whether it may have changed something."""

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
    """The *tools* of an operator; every call is reported to *record*. Calls come one by one, from any thread.

    *view* is the telemetry that they read, None where there is none.
    """

    watch: AlertWatch | None = None
    """The alerts that fire, where there are any."""
    kubeconfig: Path | None = None
    """On a cluster: the agent's own access."""

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
        """Carry out a call of *tool*; return output, status and changed entities; raises OpsAssayError if it fails."""

    def changes(self, tool: Tool, arguments: Mapping[str, Any]) -> bool:
        """Return whether a call of *tool* may change something."""
        del arguments
        return tool.mutating

    def join(self, servers: Sequence[FurtherTools]) -> None:
        """Offer the tools of *servers* too, which change nothing of the system; raises StartError."""
        self._joined = joined_tools(servers, self.own_specs())

    def specs(self, *, changing: bool = True) -> tuple[ToolSpec, ...]:
        """Return the descriptions of the tools for a model; without *changing*, only of tools that change nothing."""
        return (*self.own_specs(changing=changing), *(spec for spec, _ in self._joined.values()))

    def own_specs(self, *, changing: bool = True) -> tuple[ToolSpec, ...]:
        """Return the descriptions of the tools that work on the system, as `specs`."""
        return specs_of(self.tools, changing=changing)

    def close(self) -> None:
        """End the agent's time: refuse all further calls, and end a wait that is under way."""
        self._closed.set()

    def finish(self, timeout_s: float) -> str | None:
        """Wait until the call in progress ends, at most *timeout_s*; return that call's tool, None without one."""
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
