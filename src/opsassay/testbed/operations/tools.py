"""The tools of an operating agent on a local system: names, arguments and actions. Errors are returned as output."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from opsassay.core.errors import NotFoundError
from opsassay.core.schema.base import Written
from opsassay.core.schema.system import System
from opsassay.core.schema.trajectory import Action
from opsassay.testbed.operations import arguments as args
from opsassay.testbed.operations import telemetry_queries
from opsassay.testbed.operations.docker import Docker, changes_something, parse_docker
from opsassay.testbed.operations.rollback import UNDO, RollbackJournal, UndoLast
from opsassay.testbed.operations.telemetry_view import LOOKS, Look, TelemetryView
from opsassay.testbed.operations.tool_session import Done, OperatorToolSession, Tool

TOOLS: dict[str, Tool] = {
    **LOOKS,
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
    "release": Tool(args.ReleaseVersion, "release", mutating=True),
    "kill": Tool(args.KillProcess, "kill", mutating=True),
    "firewall_delete": Tool(args.FirewallDelete, "firewall delete", mutating=True),
}
"""Every tool by name; oracles write a tool's verb, which is its name with blanks."""

ON_PROGRAMS: dict[str, Tool] = {
    "start": Tool(args.Start, "start", mutating=True),
    "stop": Tool(args.Stop, "stop", mutating=True),
}
"""Further tools for a team's own programs and containers."""
ON_CONTAINERS: dict[str, Tool] = ON_PROGRAMS | {"docker": Tool(Docker)}
"""Further tools for containers, with their usual command line; each of its commands is one of the verbs."""
NOT_ON_CONTAINERS = frozenset({"scale", "release", "kill", "firewall_list", "firewall_delete"})
"""Tools that containers lack: the compose file sets count and image; firewall and side processes are ours."""


def operator_tools(system: System) -> Mapping[str, Tool]:
    """Return {name: tool} of the tools that an operator of *system* has."""
    if not system.programs():
        return TOOLS
    if system.compose is None:
        return TOOLS | ON_PROGRAMS
    return {name: tool for name, tool in (TOOLS | ON_CONTAINERS).items() if name not in NOT_ON_CONTAINERS}


class OperatedSystem(Protocol):
    """A system that carries out an operator's verbs."""

    def operate(self, verb: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Carry out the operator's *verb* ("scale") with *arguments* and return its result; raises OpsAssayError."""
        ...


class VerbToolSession(OperatorToolSession):
    """The *tools* over the system *running* and the *view* of its telemetry; every call is passed to *record*."""

    def __init__(
        self,
        running: OperatedSystem,
        view: TelemetryView,
        record: Callable[[Action], None],
        tools: Mapping[str, Tool] = TOOLS,
    ) -> None:
        super().__init__(tools, record, view)
        self.running = running
        self.journal: RollbackJournal | None = None

    def allow_undo(self) -> None:
        """Give the agent the tool that undoes its own changes."""
        self.tools, self.journal = {**self.tools, **UNDO}, RollbackJournal(self.running.operate)

    def carry_out(self, tool: Tool, arguments: Written) -> Done:
        """Carry out a query, wait, undo or verb; return output, changed entities and status; raises OpsAssayError."""
        if isinstance(arguments, args.Wait):
            return Done(self.pause(arguments.seconds))
        if isinstance(arguments, Look):
            assert self.view is not None
            return Done(self.view.answer_query(arguments))
        if isinstance(arguments, Docker):
            return self._run_docker(arguments)
        if isinstance(arguments, UndoLast):
            return self._undo_last()
        assert tool.verb is not None
        journal = self.journal if tool.mutating else None
        inverse = journal.inverse(tool.verb, arguments.model_dump()) if journal is not None else None
        changes = self.changes(tool, arguments.model_dump())
        reached = self._answering_service(arguments) if changes else ()
        result = self._operate_verb(tool.verb, arguments)
        if journal is not None:
            journal.note(tool.verb, inverse)
        touched = {*_touched(arguments, result), *reached} if changes else ()
        return Done(telemetry_queries.as_json(result), tuple(sorted(touched)))

    def changes(self, tool: Tool, arguments: Mapping[str, Any]) -> bool:
        """Return whether a call of *tool* may change something; an HTTP request does unless it is a GET."""
        if tool.arguments is Docker:
            return changes_something(arguments.get("args", ()))
        return tool.mutating or arguments.get("method", "GET") != "GET"

    def _undo_last(self) -> Done:
        """Undo the agent's last journalled change; return what was undone."""
        assert self.journal is not None
        (verb, given), result = self.journal.undo()
        asked = next(tool.arguments for tool in self.tools.values() if tool.verb == verb).model_validate(given)
        return Done(telemetry_queries.as_json({"undone by": verb, **given, **result}), _touched(asked, result))

    def _run_docker(self, command: Docker) -> Done:
        """Carry out the verbs of the docker *command*, return their joined results; containers are replicas or services."""
        calls = parse_docker(command.args)
        of_service = {row["replica"]: row["service"] for row in self.running.operate("ps", {})["replicas"]}
        done = []
        for named in (call.arguments.get("target", call.arguments.get("source")) for call in calls):
            if named is not None and named not in {*of_service, *of_service.values()}:
                raise NotFoundError("container", named, of_service)
        for call in calls:
            tool, given = self.tools[call.tool], dict(call.arguments)
            if call.tool in ("describe", "config_set"):
                given["target"] = of_service.get(given["target"], given["target"])
            done.append(self.carry_out(tool, tool.arguments.model_validate(given, strict=True)))
        return Done(
            "\n".join(one.output for one in done), tuple(sorted({name for one in done for name in one.touched}))
        )

    def _answering_service(self, arguments: Written) -> tuple[str, ...]:
        """Return the service to which the name in the URL of *arguments* leads at present, () without a URL."""
        if not isinstance(arguments, args.ExecCurl):
            return ()
        asked = args.parse_url(arguments.url).service
        records = self.running.operate("config get", {"target": "names"}).get("settings", {})
        return (records.get(asked) or asked,)

    def _operate_verb(self, verb: str, arguments: Written) -> dict[str, Any]:
        """Carry out *verb* with *arguments* on the running system, a URL split into its parts; return its result."""
        return self.running.operate(verb, without_url(arguments.model_dump()))


def without_url(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return *arguments* with ``url`` replaced by service, port and path; raises UserError for an invalid URL."""
    if "url" not in arguments:
        return dict(arguments)
    payload = args.ExecCurl.model_validate(arguments).model_dump()
    return payload | args.parse_url(payload.pop("url"))._asdict()


def _touched(arguments: Written, result: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the sorted entities that a call changed: its target, and the replicas that *result* lists as affected."""
    if isinstance(arguments, args.ExecCurl):
        return (args.parse_url(arguments.url).service,)
    named = {str(value) for key, value in arguments.model_dump().items() if key in ("target", "service")}
    named |= {str(result[key]) for key in ("service", "client") if key in result}
    for key in ("restarted", "started", "stopped", "added", "removed"):
        named.update(result.get(key, ()))
    return tuple(sorted(named - {"all"}))
