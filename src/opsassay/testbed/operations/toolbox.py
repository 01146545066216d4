"""What every set of operator's tools has in common: arguments are checked, each call is recorded, an error is reported.

A call that is asked for, also one that is refused, becomes an `Action` on the run's clock.
"""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from pydantic import ValidationError

from opsassay.core.errors import OpsAssayError
from opsassay.core.schema.base import Written
from opsassay.core.schema.trajectory import Action
from opsassay.testbed.operations import telemetry_queries as seeing

if TYPE_CHECKING:
    from opsassay.testbed.operations.telemetry_view import TelemetryView

OUTPUT_LIMIT = 8_000
ARGUMENTS_LIMIT = 2_000
"""What of the arguments is kept in the record of a call: an agent may send anything."""
CALLS_LIMIT = 2_000
"""Calls of one agent; what comes after them is refused and not even recorded, so that nobody fills a disk."""


class Tool(NamedTuple):
    """One tool: the model of its arguments, its verb where it has one, and whether it changes something."""

    arguments: type[Written]
    verb: str | None = None
    mutating: bool = False


class ToolDefinition(NamedTuple):
    """A tool as a model or an MCP client sees it; *parameters* is a JSON schema."""

    name: str
    description: str
    parameters: dict[str, Any]


class ToolOutcome(NamedTuple):
    """What a tool answered: *status* is ok or error."""

    output: str
    status: str


class Done(NamedTuple):
    """What a tool did: its answer, what it touched, and whether it may have changed something."""

    output: str
    touched: tuple[str, ...] = ()
    status: str = "ok"


def definitions_of(tools: Mapping[str, Tool], *, changing: bool = True) -> tuple[ToolDefinition, ...]:
    """Return *tools* as a model sees them, without those that change something unless *changing*."""
    return tuple(
        ToolDefinition(name, (tool.arguments.__doc__ or "").strip(), _schema(tool.arguments))
        for name, tool in tools.items()
        if changing or not tool.mutating
    )


class BaseToolbox(ABC):
    """The *tools* of an operator; every call is reported to *record*. Calls come one by one, from whatever thread.

    *sight* is what those that look at telemetry see, None where there is none.
    """

    def __init__(
        self, tools: Mapping[str, Tool], record: Callable[[Action], None], sight: TelemetryView | None = None
    ) -> None:
        self.tools, self.record, self.sight = tools, record, sight
        self._turn = threading.Lock()
        self._calls = self._late = 0
        self._under_way: str | None = None
        self._closed = threading.Event()

    @abstractmethod
    def carry_out(self, tool: Tool, asked: Written) -> Done:
        """Return what came of a call whose arguments are sound; raises OpsAssayError for what is refused or fails."""

    def changes(self, tool: Tool, given: Mapping[str, Any]) -> bool:
        """Tell whether a call may change something."""
        del given
        return tool.mutating

    def definitions(self, *, changing: bool = True) -> tuple[ToolDefinition, ...]:
        """Return the tools as a model sees them, without those that change something unless *changing*."""
        return definitions_of(self.tools, changing=changing)

    def close(self) -> None:
        """Let no further call through, and end a wait that is under way: the agent's time is over."""
        self._closed.set()

    def finish(self, timeout_s: float) -> str | None:
        """Wait until the call that is under way is done and recorded; return which tool it was, None when there is none."""
        under_way = self._under_way
        if self._turn.acquire(timeout=timeout_s):
            self._turn.release()
        return under_way

    @property
    def calls(self) -> int:
        """How many calls there were, refused ones included."""
        return self._calls

    @property
    def late_calls(self) -> int:
        """How many of them came when the agent's time was over."""
        return self._late

    def call(self, name: str, given: Mapping[str, Any], step_id: int | None = None) -> ToolOutcome:
        """Carry out one call and record it; whatever is wrong with it is reported, never raised."""
        with self._turn:
            self._calls += 1
            if self._calls > CALLS_LIMIT:
                return ToolOutcome(f"Error: there are no more than {CALLS_LIMIT} calls.", "error")
            began_ns = time.time_ns()
            self._late += self._closed.is_set()
            self._under_way = str(name)[:64]
            done = self._attempt(str(name), given)
            payload = ToolOutcome(_cut(done.output), done.status)
            tool = self.tools.get(str(name))
            self.record(
                Action(
                    tool=str(name)[:64],
                    arguments=kept(given),
                    started_ns=began_ns,
                    ended_ns=time.time_ns(),
                    step_id=step_id,
                    status=payload.status,
                    output=payload.output,
                    mutating=tool is not None and self.changes(tool, given),
                    touched=done.touched,
                )
            )
            self._under_way = None
            return payload

    def _attempt(self, name: str, given: Mapping[str, Any]) -> Done:
        tool = self.tools.get(name)
        if self._closed.is_set():
            return _error("the time for repairs is over.")
        if tool is None:
            return _error(f"there is no tool {name[:40]!r}; there are {', '.join(self.tools)}.")
        try:
            return self.carry_out(tool, tool.arguments.model_validate(dict(given), strict=True))
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            where = ".".join(map(str, first["loc"]))[:80] or "the arguments"
            return _error(f"invalid arguments of {name}: {where}: {first['msg']}.")
        except OpsAssayError as error:
            return _error(str(error))

    def pause(self, seconds: float) -> str:
        """Wait, at most until the agent's time is over; return what hears of it."""
        self._closed.wait(seconds)
        return f"Waited {seconds:g} s."


def _error(message: str) -> Done:
    return Done(f"Error: {message}", status="error")


def _cut(output: str) -> str:
    if len(output) <= OUTPUT_LIMIT:
        return output
    return output[:OUTPUT_LIMIT] + f"\n... ({len(output) - OUTPUT_LIMIT} more characters; ask for less)"


def kept(given: Mapping[str, Any], limit: int = ARGUMENTS_LIMIT) -> dict[str, Any]:
    """Return the arguments as they are recorded: whole unless they are longer than *limit* characters, or no JSON."""
    try:
        if len(seeing.as_json(dict(given))) <= limit:
            return dict(given)
    except (TypeError, ValueError, RecursionError):
        return {"unreadable": True}
    return {str(key)[:64]: str(value)[:200] for key, value in list(given.items())[:20]}


def _schema(model: type[Written]) -> dict[str, Any]:
    """Return the JSON schema of a tool's arguments without what only repeats the name."""
    schema = model.model_json_schema()
    schema.pop("description", None)
    schema.pop("title", None)
    for about in schema.get("properties", {}).values():
        about.pop("title", None)
    return schema
