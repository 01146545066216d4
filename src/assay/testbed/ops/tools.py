"""The tools of an operating agent: what each is called, takes and does. An error of a tool is an observation.

Tools are plain data and functions; what serves them to a model, over MCP or in a script, lies above. Every call that is
asked for, also one that is refused, becomes an `Action` on the run's clock.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from pydantic import ValidationError

from assay.errors import AssayError
from assay.model.base import Written
from assay.model.trajectory import Action
from assay.testbed.local.substrate import LocalSystem
from assay.testbed.ops import arguments as args
from assay.testbed.ops import seeing
from assay.testbed.ops.live import LiveAlerts, LiveTelemetry

OUTPUT_LIMIT = 8_000
ARGUMENTS_LIMIT = 2_000
"""What of the arguments is kept in the record of a call: an agent may send anything."""


class Tool(NamedTuple):
    """One tool: the model of its arguments, its verb (None: it looks at telemetry), and whether it changes something."""

    arguments: type[Written]
    verb: str | None = None
    mutating: bool = False


TOOLS: Mapping[str, Tool] = {
    "alerts": Tool(args.Alerts),
    "metrics": Tool(args.Metrics),
    "traces": Tool(args.Traces),
    "search_logs": Tool(args.SearchLogs),
    "summarise": Tool(args.Summarise),
    "wait": Tool(args.Wait),
    "ps": Tool(args.Ps, "ps"),
    "describe": Tool(args.Describe, "describe"),
    "logs": Tool(args.Logs, "logs"),
    "exec_curl": Tool(args.ExecCurl, "exec curl"),
    "config_get": Tool(args.ConfigGet, "config get"),
    "firewall_list": Tool(args.FirewallList, "firewall list"),
    "restart": Tool(args.Restart, "restart", mutating=True),
    "scale": Tool(args.Scale, "scale", mutating=True),
    "config_set": Tool(args.ConfigSet, "config set", mutating=True),
    "config_unset": Tool(args.ConfigUnset, "config unset", mutating=True),
    "release": Tool(args.Release, "release", mutating=True),
    "firewall_delete": Tool(args.FirewallDelete, "firewall delete", mutating=True),
}
"""Every tool by its name; the verb that an oracle writes is the name with blanks."""


class ToolDefinition(NamedTuple):
    """A tool as a model or an MCP client is told of it; *parameters* is a JSON schema."""

    name: str
    description: str
    parameters: dict[str, Any]


def definitions(*, changing: bool = True) -> tuple[ToolDefinition, ...]:
    """Return the tools as a model is told of them, without those that change something unless *changing*."""
    return tuple(
        ToolDefinition(name, (tool.arguments.__doc__ or "").strip(), _schema(tool.arguments))
        for name, tool in TOOLS.items()
        if changing or not tool.mutating
    )


class Outcome(NamedTuple):
    """What a tool answered: *status* is ok or error."""

    output: str
    status: str


class Toolbox:
    """The tools over the running system *running* and its live *telemetry*; every call is told to *record*.

    Calls come one after the other, from whatever thread.
    """

    def __init__(
        self, running: LocalSystem, telemetry: LiveTelemetry, alerts: LiveAlerts, record: Callable[[Action], None]
    ) -> None:
        self._running, self._telemetry, self._alerts, self._record = running, telemetry, alerts, record
        self._turn = threading.Lock()
        self._closed = threading.Event()

    def close(self) -> None:
        """Let no further call through, and end a wait that is under way: the agent's time is over."""
        self._closed.set()

    def call(self, name: str, given: Mapping[str, Any], step_id: int | None = None) -> Outcome:
        """Carry out one call and record it; whatever is wrong with it is told, never raised."""
        with self._turn:
            began_ns = time.time_ns()
            outcome, touched = self._attempt(str(name), given)
            told = Outcome(_cut(outcome.output), outcome.status)
            tool = TOOLS.get(str(name))
            changes = tool is not None and (tool.mutating or given.get("method", "GET") != "GET")
            self._record(
                Action(
                    tool=str(name)[:64],
                    arguments=_kept(given),
                    started_ns=began_ns,
                    ended_ns=time.time_ns(),
                    step_id=step_id,
                    status=told.status,
                    output=told.output,
                    mutating=changes,
                    touched=touched,
                )
            )
            return told

    def _attempt(self, name: str, given: Mapping[str, Any]) -> tuple[Outcome, tuple[str, ...]]:
        tool = TOOLS.get(name)
        if self._closed.is_set():
            return Outcome("Error: the time for repairs is over.", "error"), ()
        if tool is None:
            return Outcome(f"Error: there is no tool {name[:40]!r}; there are {', '.join(TOOLS)}.", "error"), ()
        try:
            asked = tool.arguments.model_validate(dict(given), strict=True)
            if tool.verb is None:
                return Outcome(self._see(asked), "ok"), ()
            result = self._operate(tool.verb, asked)
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            where = ".".join(map(str, first["loc"]))[:80] or "the arguments"
            return Outcome(f"Error: invalid arguments of {name}: {where}: {first['msg']}.", "error"), ()
        except AssayError as error:
            return Outcome(f"Error: {error}", "error"), ()
        return Outcome(seeing.as_json(result), "ok"), _touched(asked, result) if tool.mutating else ()

    def _operate(self, verb: str, asked: Written) -> dict[str, Any]:
        told = asked.model_dump()
        if isinstance(asked, args.ExecCurl):
            url = args.parse_url(asked.url)
            del told["url"]
            told |= {"service": url.service, "port": url.port, "path": url.path}
        return self._running.operate(verb, told)

    def _see(self, asked: Written) -> str:
        if isinstance(asked, args.Wait):
            self._closed.wait(asked.seconds)
            return f"Waited {asked.seconds:g} s."
        if isinstance(asked, args.Alerts):
            return seeing.tell_alerts(self._alerts.firing()[1])
        tables, now_ns = self._telemetry.tables(), time.time_ns()
        if isinstance(asked, args.Metrics):
            return seeing.tell_metrics(tables, asked, now_ns)
        if isinstance(asked, args.Traces):
            return seeing.tell_traces(tables, asked, now_ns)
        if isinstance(asked, args.SearchLogs):
            return seeing.tell_logs(tables, asked, now_ns)
        assert isinstance(asked, args.Summarise)
        return seeing.tell_summary(tables, asked, now_ns)


def _touched(asked: Written, result: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the entities that a change concerned: its target, and the replicas that were stopped, started or added."""
    named = {str(value) for key, value in asked.model_dump().items() if key in ("target", "service")}
    named |= {str(result[key]) for key in ("service", "client") if key in result}
    for key in ("restarted", "added", "removed"):
        named.update(result.get(key, ()))
    return tuple(sorted(named - {"all"}))


def _cut(output: str) -> str:
    if len(output) <= OUTPUT_LIMIT:
        return output
    return output[:OUTPUT_LIMIT] + f"\n... ({len(output) - OUTPUT_LIMIT} more characters; ask for less)"


def _kept(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments as they are recorded: whole unless they are huge or no JSON."""
    try:
        if len(seeing.as_json(dict(given))) <= ARGUMENTS_LIMIT:
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
