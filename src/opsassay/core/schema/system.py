"""System: an application as one YAML file describes it: services, operations, their steps, stores, load and SLO."""

from __future__ import annotations

import re
from typing import Literal, Self

from pydantic import Field, field_validator, model_validator

from opsassay.core.schema.backends import TeamBackends
from opsassay.core.schema.base import Written
from opsassay.core.schema.compose import ComposeProject, ComposeService
from opsassay.core.schema.namespace import ExistingNamespace
from opsassay.core.schema.program import Command, Program, Sidecar

Engine = Literal["postgresql", "valkey", "nats"]
IN_MEMORY: frozenset[Engine] = frozenset({"valkey", "nats"})
"""Stores without data on disk: their content is lost with the process."""
IsolationLevel = Literal["namespaced", "plain", "compose"]
"""The isolation of a local system: network namespaces with real packets, loopback with a relay, or containers."""
DRAWN = re.compile(r"\{int:(\d+)\}")
"""In a request to a program: a number that is drawn from 1 to the given one."""
_PASSWORD = re.compile(r"\{password:([^}]*)\}")
ACTIONS = ("call", "parallel", "sql", "cache", "publish", "compute_ms", "wait_ms", "log")


class Step(Written):
    """One step of an operation: exactly one of the eight actions, with the modifiers that fit it."""

    call: str | None = Field(default=None, description="'service METHOD /route': an HTTP request to another service")
    parallel: tuple[Step, ...] | None = Field(default=None, description="steps that run at the same time")
    sql: str | None = Field(default=None, description="a statement; $1, $2 ... are filled from args")
    cache: Literal["get", "set", "delete"] | None = Field(default=None, description="a cache command on key")
    publish: str | None = Field(default=None, description="subject of a message to the queue")
    compute_ms: float | None = Field(default=None, ge=0, description="CPU work, median milliseconds")
    wait_ms: float | None = Field(default=None, ge=0, description="waiting without CPU, median milliseconds")
    log: str | None = Field(default=None, description="a log line")

    store: str | None = Field(default=None, description="which store; the first of the right engine when left out")
    args: tuple[str, ...] = Field(
        default=(), description="arguments of sql: 'int:N' draws 1..N, 'text:N' a string of N"
    )
    key: str = Field(default="item:{int:1000}", description="key of cache, with drawn parts in braces")
    ttl_s: int = Field(default=60, ge=1, description="time to live of a cache entry, seconds")
    on_miss: tuple[Step, ...] = Field(
        default=(), description="steps that make what `cache: get` misses; then it is set"
    )
    timeout_s: float = Field(default=2.0, gt=0, description="limit of one attempt of a call or statement, seconds")
    retries: int = Field(default=0, ge=0, le=10, description="further attempts of a failed call")
    breaker_failures: int | None = Field(default=None, ge=1, description="failures in a row that open the circuit")
    breaker_open_s: float = Field(default=5.0, gt=0, description="how long an open circuit refuses, seconds")
    optional: bool = Field(default=False, description="a failure here does not fail the operation")
    tail: float = Field(default=0.0, ge=0, le=3, description="sigma of a log-normal factor on compute_ms and wait_ms")
    level: Literal["DEBUG", "INFO", "WARN", "ERROR"] = Field(default="INFO", description="severity of log")

    @model_validator(mode="after")
    def _require_one_action(self) -> Self:
        """Raise ValueError unless exactly one action is given, a call as "service METHOD /route"."""
        given = [name for name in ACTIONS if getattr(self, name) is not None]
        if len(given) != 1:
            raise ValueError(f"a step does exactly one of {', '.join(ACTIONS)}; this one has {given or 'none'}")
        if self.call is not None and len(self.call.split()) != 3:
            raise ValueError(f"call must read 'service METHOD /route', not {self.call!r}")
        return self

    @property
    def callee(self) -> str | None:
        """The name of the service that this step calls; None unless it is a `call`."""
        return self.call.split()[0] if self.call else None


class Operation(Written):
    """The steps of a service for one kind of request or message."""

    steps: tuple[Step, ...] = ()

    def walk(self) -> list[Step]:
        """Return all steps of the operation in order, each followed by its inner ones (`parallel`, `on_miss`)."""
        found: list[Step] = []
        for step in self.steps:
            found += [step, *Operation(steps=step.parallel or step.on_miss).walk()]
        return found


class Release(Written):
    """Another version of a service's code: the operations that differ."""

    operations: dict[str, Operation] = Field(
        default_factory=dict, description="'METHOD /route' to steps, those that differ"
    )
    consumes: dict[str, Operation] = Field(
        default_factory=dict, description="queue subject to steps, those that differ"
    )


class Service(Written):
    """A service: its host, size and operations."""

    replicas: int = Field(default=1, ge=1, le=20)
    host: str | None = Field(default=None, description="host of its replicas; spread over all hosts when left out")
    cpu_limit: float = Field(default=0.5, gt=0, description="cores that a replica may use")
    memory_limit_mb: int = Field(default=256, ge=6, description="memory that a replica may use, MiB")
    pool: int = Field(default=8, ge=1, description="connections that a replica keeps to each callee and store")
    program: Program | None = Field(default=None, description="a program of your own that the service runs")
    sidecar: Sidecar = None
    operations: dict[str, Operation] = Field(default_factory=dict, description="'METHOD /route' to steps")
    consumes: dict[str, Operation] = Field(default_factory=dict, description="queue subject to steps")
    periodic: dict[str, PeriodicJob] = Field(default_factory=dict, description="benign background jobs by name")
    config: dict[str, str] = Field(default_factory=dict, description="settings that its processes read when they start")
    required: tuple[str, ...] = Field(default=(), description="settings without which a process ends at once")
    gateway: bool = Field(default=False, description="it answers 502 when what it calls cannot be reached or fails")
    release: str = Field(default="v1", description="the version that runs")
    releases: dict[str, Release] = Field(default_factory=dict, description="further versions by name")
    start_s: float = Field(
        default=0.0, ge=0, le=30, description="how long a process takes to warm up before it is ready"
    )
    drain_s: float = Field(
        default=0.0, ge=0, le=60, description="how long one that is stopped finishes what it has begun"
    )

    @model_validator(mode="after")
    def _require_one_kind(self) -> Self:
        """Raise ValueError for a program with settings of built-in services, too little memory, a needless sidecar."""
        described = ("operations", "consumes", "periodic", "releases", "required", "gateway", "pool", "start_s")
        defaults = {name: type(self).model_fields[name].get_default(call_default_factory=True) for name in described}
        if self.program and (both := [name for name in described if getattr(self, name) != defaults[name]]):
            raise ValueError(f"a service with a program has no {both[0]}: the program does what it does")
        if self.program is None and self.memory_limit_mb < 64:
            raise ValueError("memory_limit_mb is 64 or more, but for a program of your own")
        if self.sidecar is not None and not (self.program is not None and self.program.ports):
            raise ValueError("a sidecar stands in front of a program's first port; this service has none")
        return self

    def steps(self) -> list[Step]:
        """Return every step of the service's operations, consumers and periodic jobs, and of all its releases."""
        sources: list[Operation] = [*self.operations.values(), *self.consumes.values(), *self.periodic.values()]
        for release in self.releases.values():
            sources += [*release.operations.values(), *release.consumes.values()]
        return [step for operation in sources for step in operation.walk()]

    def versions(self) -> tuple[str, ...]:
        """Return the names of all releases of this service, sorted."""
        return tuple(sorted({self.release, *self.releases}))

    def at_version(self, version: str) -> Service:
        """Return a copy of this service with the operations and consumers of the release *version* in place of its own."""
        other = self.releases.get(version, Release())
        operations, consumes = {**self.operations, **other.operations}, {**self.consumes, **other.consumes}
        return self.model_copy(update={"operations": operations, "consumes": consumes})


class PeriodicJob(Operation):
    """Work that a service does on its own: a harmless distractor."""

    every_s: float = Field(gt=0)


class Store(Written):
    """A backing store: a real server."""

    engine: Engine
    setup: tuple[str, ...] = Field(default=(), description="SQL that creates and fills the tables")
    password: str | None = Field(default=None, description="PostgreSQL: what services need in <STORE>_PASSWORD")
    config: dict[str, str] = Field(default_factory=dict, description="Valkey: settings such as maxmemory")


class Slo(Written):
    """The promises to users, which are also the thresholds of the golden-signal alerts.

    *error_rate* is a share of the requests, *saturation* a share of the limit of CPU or memory.
    """

    error_rate: float = Field(default=0.05, gt=0, lt=1)
    latency_p99_ms: float = Field(default=1000.0, gt=0)
    latency_ratio: float = Field(default=3.0, gt=1, description="p99 over its usual value that raises an alert")
    traffic_ratio: float = Field(
        default=0.5, gt=0, lt=1, description="traffic under this share of the usual is an alert"
    )
    saturation: float = Field(default=0.8, gt=0, le=1)


class LoadMix(Written):
    """One kind of user request and its relative frequency."""

    request: str = Field(description="'service METHOD /route'; to a program, {int:N} in it is drawn from 1 to N")
    weight: float = Field(default=1.0, gt=0)
    body: str | None = Field(default=None, description="JSON that is sent to a program, with drawn parts")

    @field_validator("request")
    @classmethod
    def _require_three_words(cls, value: str) -> str:
        """Raise ValueError unless the request reads "service METHOD /route"."""
        if len(value.split()) != 3:
            raise ValueError(f"request must read 'service METHOD /route', not {value!r}")
        return value


class Load(Command):
    """Open-loop Poisson load, or a *command* of the user's own that sends requests, which OpsAssay does not count."""

    rate_rps: float = Field(default=20.0, gt=0)
    timeout_s: float = Field(default=5.0, gt=0)
    mix: tuple[LoadMix, ...] = Field(default=(), description="what users send; with a command, what probes send")

    @model_validator(mode="after")
    def _require_one_generator(self) -> Self:
        """Raise ValueError without a mix or a command, and for a setting that does not go with the one given."""
        if not self.command and "mix" not in self.model_fields_set:
            raise ValueError("mix is missing: what users send; or command, a load generator of your own")
        theirs, ours = ("directory", "environment", "folders"), ("rate_rps", "timeout_s")
        for name in ours if self.command else theirs:
            if getattr(self, name) != type(self).model_fields[name].get_default(call_default_factory=True):
                words = "its command says that itself" if self.command else "it goes with a command, and there is none"
                raise ValueError(f"{name}: {words}; leave it out")
        return self

    @property
    def command_line(self) -> str:
        """The command that sends the load, in backquotes; '' when OpsAssay's own load generator sends it."""
        return f"`{' '.join(self.command)}`" if self.command else ""


class System(Written):
    """A running application with a topology."""

    system: str
    description: str = ""
    hosts: tuple[str, ...] = ("host-a",)
    host_cpu_limit: float = Field(default=1.0, gt=0, description="cores that the replicas of a host may use together")
    host_memory_limit_mb: int = Field(default=1024, ge=64, description="memory that they may use together, MiB")
    stores: dict[str, Store] = Field(default_factory=dict)
    services: dict[str, Service]
    load: Load
    slo: Slo = Slo()
    compose: ComposeProject | None = Field(default=None, description="the project whose containers the services are")
    backends: TeamBackends | None = Field(default=None, description="where a team's own backends hold its telemetry")
    namespace: ExistingNamespace | None = Field(
        default=None, description="the namespace whose deployments the services are"
    )

    @model_validator(mode="after")
    def _require_known_names(self) -> Self:
        """Raise ValueError when the system's file refers to a name that it does not define, or a value does not fit."""
        for name, service in self.services.items():
            if service.host is not None and service.host not in self.hosts:
                raise ValueError(f"services.{name}.host: {service.host!r} is not one of hosts {', '.join(self.hosts)}")
            if service.cpu_limit > self.host_cpu_limit:
                raise ValueError(
                    f"services.{name}.cpu_limit: {service.cpu_limit:g} is more than a host's {self.host_cpu_limit:g}; "
                    "raise host_cpu_limit"
                )
            for step in service.steps():
                self._check_step(name, step)
        for kind in self.load.mix:
            self._check_route(f"load.mix: {kind.request!r}", kind.request)
        for name in self.programs():
            self._check_program(name)
        if self.namespace is not None:
            self._check_namespace()
        self._check_passwords("load.environment", self.load)
        if self.load.command:
            self._check_load_command()
        return self

    def _check_namespace(self) -> None:
        """Raise ValueError for a sidecar or a load command: neither runs in, or next to, a namespace that exists."""
        if both := sorted(name for name, one in self.services.items() if one.sidecar is not None):
            raise ValueError(
                f"services.{both[0]}.sidecar: nothing of ours goes into the pods of a namespace that exists"
            )
        if self.load.command:
            raise ValueError("load.command: OpsAssay's own load generator sends the load of a namespace; give a mix")

    def _check_load_command(self) -> None:
        """Raise ValueError unless the load command has a service to call, and each that it calls is a user's program."""
        if not self.entries():
            raise ValueError("load.command: no service listens, so that it reaches none")
        if ours := sorted(name for name in self.entries() if self.services[name].program is None):
            raise ValueError(f"load.command: {ours[0]} is no program; OpsAssay's own services listen at changing ports")

    def _check_program(self, name: str) -> None:
        """Raise ValueError when the program of service *name* calls an unknown name or asks for an unknown password."""
        program = self.services[name].program
        assert program is not None
        for called in program.calls or ():
            if called == name or called not in {*self.services, *self.stores}:
                known = ", ".join(sorted({*self.services, *self.stores} - {name}))
                raise ValueError(f"services.{name}.program.calls: {called!r} is not one of {known or 'no others'}")
        self._check_passwords(f"services.{name}.program.environment", program)

    def _check_passwords(self, where: str, command: Command) -> None:
        """Raise ValueError, naming the field *where*, when *command* uses a password that its store does not have."""
        for key, value in command.environment.items():
            for store in _PASSWORD.findall(value):
                if store not in self.stores or self.stores[store].password is None:
                    raise ValueError(f"{where}.{key}: there is no store {store!r} with a password")

    @property
    def unlimited(self) -> tuple[str, ...]:
        """The services of others' containers that may use all that their machine has."""
        return (self.compose or self.namespace or ExistingNamespace(name="none")).unlimited

    def programs(self) -> list[str]:
        """Return the names of the services that run the user's own program, not one made by OpsAssay."""
        return [name for name, service in self.services.items() if service.program is not None]

    def _check_step(self, service: str, step: Step) -> None:
        """Raise ValueError when *step* of *service* calls an unknown operation or needs a store that the system lacks."""
        if step.call:
            self._check_route(f"services.{service}: call {step.call!r}", step.call)
        for action, engine in (("sql", "postgresql"), ("cache", "valkey"), ("publish", "nats")):
            if getattr(step, action) is not None and self.store_of(step, engine) is None:
                raise ValueError(
                    f"services.{service}: {action} needs a {engine} store; there is no {step.store or 'one'}"
                )

    def _check_route(self, where: str, target: str) -> None:
        """Raise ValueError unless *target*, "SERVICE METHOD /route", exists; *where* is the field for the message."""
        callee, route = target.split(maxsplit=1)
        if callee not in self.services:
            raise ValueError(f"{where}: there is no service {callee!r}")
        if self.namespace is not None and not self.programs():
            return
        if (program := self.services[callee].program) is not None:
            if not program.ports:
                raise ValueError(f"{where}: {callee} has no port at which it listens")
            return
        if route not in self.services[callee].operations:
            known = ", ".join(self.services[callee].operations)
            raise ValueError(f"{where}: {callee} has no operation {route!r}; it has {known or 'none'}")

    def variables(self, program: Command) -> dict[str, str]:
        """Return the environment variables of *program*, with the passwords of stores filled in."""

        def password(found: re.Match[str]) -> str:
            return self.stores[found[1]].password or ""

        return {key: _PASSWORD.sub(password, value) for key, value in program.environment.items()}

    def store_of(self, step: Step, engine: str) -> str | None:
        """Return the store that *step* uses: the one it names, else the first; None when there is none of type *engine*."""
        if step.store is not None:
            return step.store if step.store in self.stores and self.stores[step.store].engine == engine else None
        return next((name for name, store in self.stores.items() if store.engine == engine), None)

    def calls(self) -> set[tuple[str, str]]:
        """Return all (caller, callee) pairs of services, from call steps and from the programs' lists."""
        written = {(name, s.callee) for name, service in self.services.items() for s in service.steps() if s.callee}
        return written | {(name, callee) for name, callee in self._program_calls() if callee in self.services}

    def _program_calls(self) -> set[tuple[str, str]]:
        """Return (service, callee) for services that run a program: its listed callees, else everything that listens."""
        listening = {*self._listening(), *self.stores}
        return {
            (name, callee)
            for name, service in self.services.items()
            if (program := service.program) is not None
            for callee in (listening - {name} if program.calls is None else program.calls)
        }

    def uses(self) -> set[tuple[str, str]]:
        """Return all (service, store) pairs; a service that consumes messages uses the queue."""
        engines = {"sql": "postgresql", "cache": "valkey", "publish": "nats"}
        pairs = {
            (name, store)
            for name, service in self.services.items()
            for step in service.steps()
            for action, engine in engines.items()
            if getattr(step, action) is not None and (store := self.store_of(step, engine))
        }
        pairs |= {(name, callee) for name, callee in self._program_calls() if callee in self.stores}
        queue = next((name for name, store in self.stores.items() if store.engine == "nats"), None)
        return pairs | {(name, queue) for name, service in self.services.items() if service.consumes and queue}

    def _listening(self) -> list[str]:
        """Return the names of services that accept requests: programs with a port, and all that are no program."""
        return [name for name, service in self.services.items() if not service.program or service.program.ports]

    def looked_up_by(self, service: str) -> list[str]:
        """Return the sorted DNS names that *service* looks up: services that it calls, and for a program its stores too."""
        pairs = self.calls() | (self.uses() if self.services[service].program is not None else set())
        return sorted({callee for caller, callee in pairs if caller == service})

    def probe_paths(self) -> dict[str, str]:
        """Return entry service to the path of its most frequent GET by users, "/" without one; random parts become 1."""
        rarest_first = sorted(self.load.mix, key=lambda kind: kind.weight)
        gets = {kind.request.split()[0]: kind.request.split()[2] for kind in rarest_first if " GET /" in kind.request}
        return {entry: DRAWN.sub("1", gets.get(entry, "/")) for entry in sorted(self.entries())}

    def entries(self) -> set[str]:
        """Return the services that users call; for a load command without a mix, the first service that listens."""
        named = {kind.request.split()[0] for kind in self.load.mix}
        return named or set(self._listening()[:1] if self.load.command else ())

    def asked(self) -> set[str]:
        """Return the services that users call, or that a probe asks in their place: of a namespace that exists."""
        return self.entries() | set(self.namespace.probes if self.namespace is not None else ())

    def seen_at(self) -> set[str]:
        """Return the services whose server spans count as user requests: the entries if the load is a command, or none."""
        return self.entries() if self.load.command else set()


class ComposeSystem(Written):
    """A compose project with the load of its users: a system file that names a compose file or a running project."""

    system: str
    description: str = ""
    compose: str | tuple[str, ...] | None = Field(
        default=None,
        min_length=1,
        description="the compose file, or several to be merged, from the folder of this file",
    )
    attach: str | None = Field(default=None, description="in place of it, a project whose containers run already")
    services: dict[str, ComposeService] = Field(default_factory=dict, description="what the compose file does not say")
    load: Load | None = Field(default=None, description="a GET of the root of each published service when left out")
    backends: TeamBackends | None = Field(
        default=None, description="of a project that runs: what recordings take from the team's own backends"
    )
    slo: Slo = Slo()

    @model_validator(mode="after")
    def _one_project(self) -> Self:
        if self.backends is not None:
            if self.attach is None:
                raise ValueError("backends go with attach: a copy sends them nothing")
            spans = self.backends.tempo or self.backends.jaeger
            if spans and (both := [name for name, one in self.services.items() if one.sidecar]):
                raise ValueError(
                    f"services.{both[0]}.sidecar: its spans are in a backend already; leave one of both out"
                )
        if (self.compose is None) == (self.attach is None):
            raise ValueError("give either compose, a file that is copied, or attach, a project that runs")
        return self
