"""Program: a user's own program as a service of a system: command, environment, readiness."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, field_validator, model_validator

from opsassay.core.schema.base import Written

Runtime = Literal["node", "python"]
ENVOY = "envoy"
"""The only sidecar that is known by name."""
FAKETIME = "faketime"
"""The only clock library that is known by name."""


def _require_known_sidecar(value: str | None) -> str | None:
    """Return *value*; raises ValueError unless it is None, "envoy" or an absolute path."""
    if value is not None and value != ENVOY and not value.startswith("/"):
        raise ValueError(f"sidecar is {ENVOY}, or the absolute path of one, not {value!r}")
    return value


Sidecar = Annotated[
    str | None,
    AfterValidator(_require_known_sidecar),
    Field(default=None, description="'envoy', or the path of one: it stands in front of the program's first port"),
]


def _require_known_library(value: str | None) -> str | None:
    """Return *value*; raises ValueError unless it is None, "faketime" or a path under /usr."""
    if value is not None and value != FAKETIME and not value.startswith("/usr/"):
        raise ValueError(f"clock is {FAKETIME}, or the path of libfaketimeMT.so.1 under /usr, not {value!r}")
    return value


class Ready(Written):
    """The condition under which a program is ready: exactly one of the three."""

    http: str | None = Field(default=None, description="'GET /healthz': answered with a status below 400")
    tcp: int | None = Field(default=None, ge=1, le=65535, description="a port that accepts connections")
    log: str | None = Field(default=None, min_length=1, description="a text that its output has in a line")

    @model_validator(mode="after")
    def _require_one_way(self) -> Self:
        """Raise ValueError unless exactly one of http, tcp and log is given, http as "METHOD /path"."""
        given = [name for name in ("http", "tcp", "log") if getattr(self, name) is not None]
        if len(given) != 1:
            raise ValueError(f"ready is exactly one of http, tcp and log; this one has {', '.join(given) or 'none'}")
        if self.http is not None and (len(self.http.split()) != 2 or not self.http.split()[1].startswith("/")):
            raise ValueError(f"ready.http must read 'METHOD /path', not {self.http!r}")
        return self

    @property
    def awaited(self) -> str:
        """The unmet condition in words, for a program that is not ready yet, such as "port 80 accepts no connection"."""
        if self.http is not None:
            return f"{self.http} is not answered with a status below 400"
        return f"port {self.tcp} accepts no connection" if self.tcp else f"its output has no line with {self.log!r}"


class Command(Written):
    """A user's own program and all that it needs to start."""

    command: tuple[str, ...] = Field(default=(), description="the program and its arguments; no shell reads them")
    directory: str = Field(default=".", description="where it starts, from the folder of this file; it reads it only")
    environment: dict[str, str] = Field(
        default_factory=dict, description="its variables; {password:STORE} is that store's password"
    )
    folders: tuple[str, ...] = Field(default=(), description="further folders that it may read, from that of this file")


class Program(Command):
    """A program that a service runs, in its own network, file system and control group."""

    container: str | None = Field(default=None, description="in place of a command: the service of a compose project")
    aliases: tuple[str, ...] = Field(default=(), description="further names by which others call a container")
    restarts: bool = Field(default=True, description="whether it is started again when it has ended well: a job is not")
    ports: dict[str, int] = Field(default_factory=dict, description="where it listens by name; users call the first")
    ready: Ready | None = None
    runtime: Runtime | None = Field(default=None, description="adds this language's OpenTelemetry instrumentation")
    clock: Annotated[str | None, AfterValidator(_require_known_library)] = Field(
        default=None, description="'faketime': libfaketime is preloaded, so that a fault can set its clock wrong"
    )
    calls: tuple[str, ...] | None = Field(
        default=None, description="the services and stores that it calls; all others when left out"
    )

    @field_validator("ports")
    @classmethod
    def _require_real_ports(cls, value: dict[str, int]) -> dict[str, int]:
        """Raise ValueError for a port outside of 1 to 65535, and for two equal ones."""
        if wrong := [f"{name}: {port}" for name, port in value.items() if not 0 < port < 65536]:
            raise ValueError(f"a port is 1 to 65535, not {wrong[0]}")
        if len({*value.values()}) < len(value):
            raise ValueError("two ports are the same")
        return value

    @model_validator(mode="after")
    def _require_startable(self) -> Self:
        """Raise ValueError when the command, the readiness check or the port that it needs is missing."""
        if not self.command and self.container is None:
            raise ValueError("command is missing: the program and its arguments")
        if self.ready is None and self.container is None:
            raise ValueError("ready is missing: one of http, tcp and log")
        if self.ready is not None and self.ready.http is not None and not self.ports:
            raise ValueError("ready.http needs a port in ports")
        return self

    @property
    def port(self) -> int:
        """The port that users and other services call; 0 for a program that only calls others."""
        return next(iter(self.ports.values()), 0)

    @property
    def is_store(self) -> bool:
        """Whether it is a container that calls no other, as those of known stores are."""
        return self.container is not None and self.calls == ()
