"""The command line of `docker`, as far as the verbs of a compose project implement it."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, NamedTuple

import click
from pydantic import Field, ValidationError

from opsassay.core.errors import UserError
from opsassay.core.schema.base import Written

Word = Annotated[str, Field(max_length=300)]
MEGABYTES = {"b": 2.0**-20, "": 2.0**-20, "k": 2.0**-10, "m": 1.0, "g": 2.0**10}
"""Unit of `--memory` to its size in MiB; a number without a unit is bytes."""
CHANGES = frozenset({"restart", "start", "stop", "config_set"})


class Docker(Written):
    """Run docker: ps, inspect NAME, logs NAME, restart|start|stop NAME, update NAME, exec NAME curl URL. No shell."""

    args: list[Word] = Field(min_length=1, max_length=40, description='such as ["restart", "orders-0"]')


class VerbCall(NamedTuple):
    """A call of another tool: its name and its arguments."""

    tool: str
    arguments: dict[str, Any]

    @property
    def mutating(self) -> bool:
        """Whether the call may change something; an HTTP request does unless it is a GET."""
        return self.tool in CHANGES or self.arguments.get("method", "GET") != "GET"


def parse_docker(arguments: Sequence[str]) -> list[VerbCall]:
    """Return the verb calls that `docker` (or `docker compose`) with *arguments* stands for; raises UserError."""
    verb, *rest = arguments[1:] if arguments[0] in ("compose", "container") and len(arguments) > 1 else arguments
    if verb not in _COMMANDS:
        raise UserError(f"There is no `docker {verb[:40]}` here; there are {', '.join(_COMMANDS)}.")
    parameters, calls = _COMMANDS[verb]
    return calls(_parse(f"docker {verb}", parameters, rest))


def changes_something(arguments: Any) -> bool:
    """Return whether `docker` with *arguments* may change something; False for arguments that are refused."""
    try:
        return any(call.mutating for call in parse_docker(Docker.model_validate({"args": arguments}).args))
    except (ValidationError, UserError):
        return False


def _parse(name: str, parameters: Sequence[click.Parameter], arguments: Sequence[str]) -> dict[str, Any]:
    """Return {parameter: value} of *arguments*, parsed by click *parameters* of the command *name*; raises UserError."""
    command = click.Command(name, params=list(parameters), add_help_option=False)
    command.allow_interspersed_args = name != "docker exec"
    try:
        return command.make_context(name, list(arguments)).params
    except click.ClickException as error:
        raise UserError(f"{name}: {error.format_message().rstrip('.')}.") from error


def _read_update(options: Mapping[str, Any]) -> list[VerbCall]:
    """Return the calls of `docker update`, one per container and limit; raises UserError without a limit."""
    limits = {"cpu_limit": options["cpus"], "memory_limit_mb": _parse_megabytes(options["memory"])}
    changed = [(key, value) for key, value in limits.items() if value is not None]
    if not changed:
        raise UserError("docker update: say --cpus or --memory.")
    return [
        VerbCall("config_set", {"target": name, "key": key, "value": f"{value:g}"})
        for name in options["names"]
        for key, value in changed
    ]


def _parse_megabytes(size: str | None) -> int | None:
    """Return *size*, such as 512m or 1g, in MB; None for None; raises UserError."""
    if size is None:
        return None
    parts = re.fullmatch(r"(\d{1,15})([bkmg]?)b?", size.lower())
    if parts is None:
        raise UserError(f"docker update: {size[:40]} is no size of memory; write 512m or 1g.")
    return int(int(parts[1]) * MEGABYTES[parts[2]])


def _read_exec(options: Mapping[str, Any]) -> list[VerbCall]:
    """Return the call of `docker exec NAME curl ...` as a one-element list; raises UserError for any other program."""
    program, *words = options["command"]
    if program != "curl":
        raise UserError(f"docker exec: {program[:40]} is not run here; curl is.")
    asked = _parse("curl", _CURL, words)
    limit = {} if asked["max_time"] is None else {"timeout_s": asked["max_time"]}
    called = {"source": options["name"], "url": asked["url"], "method": asked["request"], **limit}
    return [VerbCall("exec_curl", called)]


def _call_for_each(tool: str) -> Callable[[Mapping[str, Any]], list[VerbCall]]:
    """Return a function that makes, from parsed options, one call of *tool* for each container that they name."""
    return lambda given: [VerbCall(tool, {"target": name}) for name in given["names"]]


def _make_flag(*names: str) -> click.Option:
    """Return the click option that is True when one of *names* is given."""
    return click.Option(names, is_flag=True)


_NAME, _NAMES = click.Argument(["name"]), click.Argument(["names"], nargs=-1, required=True)
_GRACE = click.Option(["-t", "--time", "--timeout"], type=click.IntRange(0, 60))
_CURL = (
    *map(
        _make_flag,
        ("-s", "--silent"),
        ("-S", "--show-error"),
        ("-i", "--include"),
        ("-f", "--fail"),
        ("-v", "--verbose"),
    ),
    click.Option(["-X", "--request"], default="GET"),
    click.Option(["-m", "--max-time"], type=float),
    click.Argument(["url"]),
)
_COMMANDS: Mapping[str, tuple[Sequence[click.Parameter], Callable[[Mapping[str, Any]], list[VerbCall]]]] = {
    "ps": ([_make_flag("-a", "--all")], lambda _: [VerbCall("ps", {})]),
    "inspect": ([_NAMES], _call_for_each("describe")),
    "logs": (
        [click.Option(["-n", "--tail"], default=50, type=click.IntRange(1, 200)), _NAME],
        lambda given: [VerbCall("logs", {"target": given["name"], "lines": given["tail"]})],
    ),
    "restart": ([_GRACE, _NAMES], _call_for_each("restart")),
    "start": ([_NAMES], _call_for_each("start")),
    "stop": ([_GRACE, _NAMES], _call_for_each("stop")),
    "update": ([click.Option(["--cpus"], type=float), click.Option(["-m", "--memory"]), _NAMES], _read_update),
    "exec": (
        [
            _make_flag("-i", "--interactive"),
            _make_flag("-t", "--tty"),
            _NAME,
            click.Argument(["command"], nargs=-1, required=True),
        ],
        _read_exec,
    ),
}
"""Docker command to its click parameters and a function from the parsed options to the verb calls."""
