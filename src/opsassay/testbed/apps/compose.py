"""A compose project as a system: what is read of its files, or of its containers that run."""

from __future__ import annotations

import functools
import math
import os
import re
import shutil
import subprocess
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from opsassay.core.errors import ConfigError, NotFoundError, RefusedError
from opsassay.core.schema.compose import ComposeProject, ComposeService
from opsassay.core.schema.files import load_yaml, require_small
from opsassay.core.schema.program import Program, Ready
from opsassay.core.schema.system import ComposeSystem, Load, LoadMix, Service, System
from opsassay.core.schema.validation_errors import problem, reason
from opsassay.testbed.apps.compose_copy import ComposeCopy
from opsassay.testbed.apps.compose_reading import (
    KEYS,
    TRY_S,
    aliases_of,
    count_of,
    files_of,
    leaves_open,
    outline,
    own_program,
    read_project,
)
from opsassay.testbed.apps.programs import place_load, place_sidecar

COMMANDS = (("docker", "compose"), ("docker-compose",), ("podman", "compose"), ("podman-compose",))
"""Compose programs, in the order in which they are tried; each has the engine of its name."""
CPU_LIMIT, MEMORY_LIMIT_MB = 1.0, 512
"""What a container may use where its project sets no limit, so that pressure on it has something to exhaust."""
KNOWN_PORTS = {
    "postgres": 5432, "postgis": 5432, "valkey": 6379, "redis": 6379, "nats": 4222, "mysql": 3306, "mariadb": 3306,
    "mongo": 27017, "mongodb": 27017, "rabbitmq": 5672, "memcached": 11211, "kafka": 9092, "elasticsearch": 9200,
    "minio": 9000, "postgresql": 5432, "pgvector": 5432, "timescaledb": 5432, "zookeeper": 2181, "opensearch": 9200,
    "cassandra": 9042, "clickhouse": 8123, "etcd": 2379, "mosquitto": 1883,
}  # fmt: skip
"""Ports of stores by the last word of their image's name: compose files seldom state them."""
EDITIONS = re.compile(r"[-_](server|stack|community|alpine|single|node|oss|ha|cluster|broker)$")
"""What images of stores have after the store's name; `exporter`, `express` or `ui` is another program."""
NOT_HTTP = {22, 25, 53, 465, 587, 1025, 9092, 9042} | {p for p in KNOWN_PORTS.values() if p not in (9000, 9200, 8123)}
"""Ports at which nobody gets a page."""
UNITS = {"b": 1, "k": 2**10, "m": 2**20, "g": 2**30}


@functools.cache
def compose_program() -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the commands of compose and of its engine on this machine; raises RefusedError when there are none."""
    for words in COMMANDS:
        engine = (words[0].removesuffix("-compose"),)
        found = own_program(words[0])
        if (
            found
            and shutil.which(engine[0])
            and _exits_with_0(engine[0], "info")
            and _exits_with_0(found, *words[1:], "version")
        ):
            return (found, *words[1:]), engine
    tried = ", ".join(" ".join(words) for words in COMMANDS)
    raise RefusedError(
        f"No compose program with an engine answers on this machine (tried {tried}); start Docker, or install podman and "
        "podman-compose."
    )


def _exits_with_0(*words: str) -> bool:
    """Return whether the command *words* exits with status 0 in time; False when there is no such program."""
    try:
        return subprocess.run(words, capture_output=True, timeout=TRY_S, check=False).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


def is_compose_file(path: Path) -> bool:
    """Return whether the file at *path* is a compose file, or a system file that names one."""
    try:
        text = path.read_text(encoding="utf-8")
        require_small(text, str(path))
        document = outline(text)
    except (OSError, ValueError, yaml.YAMLError, ConfigError):
        return False  # the reader of systems says what is wrong
    if not isinstance(document, dict):
        return False
    services = document.get("services")
    described = [one for one in services.values() if isinstance(one, dict)] if isinstance(services, dict) else []
    ours = any(one.keys() & Service.model_fields.keys() for one in described)
    of_compose = all(str(key) in KEYS or str(key).startswith("x-") for key in document)
    return bool({"compose", "attach"} & document.keys()) or (
        of_compose and not ours and bool(described or "include" in document)
    )


def load_compose(path: Path) -> System:
    """Return the system of the compose file at *path*, or of the system file at *path* that names a compose file.

    Raises ConfigError for a file that cannot be read or run as a copy, RefusedError where no engine answers.
    """
    document = outline(path.read_text(encoding="utf-8"))
    written = load_yaml(path, ComposeSystem) if {"compose", "attach"} & document.keys() else None
    project = _project_of(path, written)
    services = {name: place_sidecar(name, one, path) for name, one in project.services().items()}
    if unknown := sorted(set(project.stated) - set(services)):
        raise ConfigError(f"{path}: {NotFoundError('service of ' + project.shown, unknown[0], services)}")
    load = place_load(written.load, path) if written and written.load else _load_of(project)
    if load.command and not load.mix:
        load = load.model_copy(update={"mix": _load_of(project).mix})
    try:
        return System(
            system=written.system if written else project.name,
            description=written.description if written else f"The compose project {project.name}",
            host_cpu_limit=float(max([os.cpu_count() or 1, *(one.cpu_limit for one in services.values())])),
            host_memory_limit_mb=max(64, sum(one.memory_limit_mb * one.replicas for one in services.values())),
            services=services,
            load=load,
            slo=written.slo if written else System.model_fields["slo"].default,
            compose=project.as_run(),
            backends=written.backends if written else None,
        )
    except ValidationError as error:
        raise ConfigError(f"{path}: {problem(error).replace('.program.', '.')}.") from error


def _project_of(path: Path, system_file: ComposeSystem | None) -> DescribedProject:
    """Return the project of the compose file at *path*, or the one that *system_file*, read from *path*, names."""
    if system_file is not None and system_file.attach is not None:
        from opsassay.testbed.apps.attached import AttachedProject

        return AttachedProject(system_file.attach, system_file.services)
    named = system_file.compose if system_file and system_file.compose else path.name
    files = [path.resolve().parent / one for one in ([named] if isinstance(named, str) else named)]
    if absent := [file for file in files if not file.is_file()]:
        raise ConfigError(f"{path}: there is no compose file {absent[0].name}; check the path.")
    file = files[0]
    try:
        project = _Project(files_of(file) if len(files) == 1 else files, system_file.services if system_file else {})
        project.services()
    except (TypeError, ValueError, KeyError, AttributeError) as error:
        raise ConfigError(f"{file}: a value of it is none that compose files have: {reason(error)}.") from error
    return project


def _load_of(project: DescribedProject) -> Load:
    """Return the default load: a GET of the root path of each service that publishes a port."""
    pages = project.published & project.services().keys()
    if not pages:
        raise ConfigError(
            f"{project.shown}: no service publishes a port, so that users reach none; write a system file with "
            f"`{project.key}` and `load:` (docs/own-system.md)."
        )
    return Load(mix=tuple(LoadMix(request=f"{name} GET /") for name in sorted(pages)))


class DescribedProject(ABC):
    """A project whose services are *described* as in compose files, with what the user's system file has *stated* of them.

    *name* is its name, *shown* what it is called in messages, *key* what names it in a system file.
    """

    def __init__(
        self,
        name: str,
        shown: str,
        key: str,
        described: Mapping[str, dict[str, Any]],
        stated: Mapping[str, ComposeService],
    ) -> None:
        self.name, self.shown, self.key, self.stated = name, shown, key, stated
        for service, one in described.items():
            _require_usable(f"{shown}: services.{service}", service, one)
        self._described = described
        self.ports = {name: list(_ports(one)) for name, one in described.items()}
        self.published = {
            name
            for name, one in described.items()
            if one.get("ports") and not store_port(one) and self.ports[name] and self.ports[name][0] not in NOT_HTTP
        }

    @abstractmethod
    def as_run(self) -> ComposeProject:
        """Return the project in the form in which a substrate runs it."""

    def services(self) -> dict[str, Service]:
        """Return the services of the system; a job that others wait for is left out, since it ends at the start."""
        jobs = {
            name
            for one in self._described.values()
            if isinstance(waits := one.get("depends_on"), dict)
            for name, condition in waits.items()
            if condition and condition.get("condition") == "service_completed_successfully"
        }
        return {
            name: self._read_service(name, one)
            for name, one in self._described.items()
            if name not in jobs and count_of(one) > 0
        }

    def _read_service(self, name: str, described: Mapping[str, Any]) -> Service:
        """Return the service *name* of the compose file; *described* is its entry there."""
        stated = self.stated.get(name, ComposeService())
        port = stated.port or next(iter(self.ports[name]), 0)
        ready = stated.ready or (Ready(tcp=port) if port else None)
        if ready is not None and ready.http is not None and not port:
            raise ConfigError(f"{self.shown}: services.{name}.ready: its http needs a port; say which with `port`.")
        if stated.sidecar is not None and (not port or port in NOT_HTTP or store_port(described)):
            words = f"port {port} takes no HTTP" if port else "it has no port; say which with `port`"
            raise ConfigError(f"{self.shown}: services.{name}.sidecar: {words}.")
        cpu, memory_mb = _limits(described)
        policy = str(described.get("restart") or "no").partition(":")[0]
        calls = () if stated.calls is None and store_port(described) else stated.calls  # a store calls none
        return Service(
            replicas=count_of(described),
            cpu_limit=cpu,
            memory_limit_mb=memory_mb,
            sidecar=stated.sidecar,
            program=Program(
                container=name,
                aliases=aliases_of(name, self._described),
                ports={"http": port} if port else {},
                ready=ready,
                calls=calls,
                restarts=policy not in ("no", "on-failure"),
            ),
        )


class _Project(DescribedProject):
    """The project of the compose *files*: a copy of it is run."""

    def __init__(self, files: Sequence[Path], stated: Mapping[str, ComposeService]) -> None:
        self.file = files[0]
        self.compose, self.engine = compose_program()
        read = read_project(files, self.compose)
        name, key = str(read.get("name") or self.file.parent.name).lower(), f"compose: {self.file.name}"
        super().__init__(name, str(self.file), key, read["services"], stated)
        limits = {service: _limits(one) for service, one in self._described.items()}
        self.copy = ComposeCopy(self.file, read, limits, mount_configs=leaves_open(self.compose))

    def as_run(self) -> ComposeProject:
        """Return the copy of the project that is run."""
        return ComposeProject(
            compose=self.compose,
            engine=self.engine,
            directory=str(self.file.parent),
            content=self.copy.content,
            copied=self.copy.copied,
        )


def _ports(described: Mapping[str, Any]) -> Iterator[int]:
    """Yield the TCP ports of a service inside its containers: published ones first, of these those of web pages."""
    published, exposed = (list(_tcp_ports(described.get(key))) for key in ("ports", "expose"))
    yield from sorted(published, key=NOT_HTTP.__contains__)
    yield from exposed
    if (port := store_port(described)) is not None:
        yield port


def _require_usable(where: str, name: str, described: Mapping[str, Any]) -> None:
    """Raise ConfigError, naming the key of the user's file, for a value that no container can have; 0 is no limit."""
    if not re.fullmatch(r"[\w.-]+", name):
        raise ConfigError(f"{where}: this is no name of a service; use letters, digits and -._ alone.")
    for key, (read, least, most, words) in NUMBERS.items():
        value: Any = described
        for part in key.split("."):
            value = value.get(part) if isinstance(value, Mapping) else None
        try:
            fits = not value or not float(read(value)) or least <= read(value) <= most
        except (TypeError, ValueError):
            fits = False
        if not fits:
            raise ConfigError(f"{where}.{key}: {value!r} is not {words}.")
    for key in ("ports", "expose"):
        if wrong := [port for port in _tcp_ports(described.get(key)) if not 0 < port < 65536]:
            raise ConfigError(f"{where}.{key}: {wrong[0]} is no port; one is 1 to 65535.")


def _tcp_ports(listed: Any) -> Iterator[int]:
    """Yield the TCP ports inside the container from *listed*, the `ports` or `expose` of a service."""
    for one in listed if isinstance(listed, list) else ():
        text = f"{one['target']}/{one.get('protocol') or 'tcp'}" if isinstance(one, dict) else str(one)
        port, _, protocol = text.rpartition(":")[2].partition("/")
        if protocol in ("", "tcp") and (first := port.partition("-")[0]).isdigit():
            yield int(first)


def store_port(described: Mapping[str, Any]) -> int | None:
    """Return the port of the store (database, cache, queue) whose image the service has; None for another image."""
    image = re.split(r"[:@]", str(described.get("image") or "").rpartition("/")[2].lower())[0]
    while (shorter := EDITIONS.sub("", image)) != image:
        image = shorter
    return KNOWN_PORTS.get(re.split(r"[-_.]", image)[-1])


def _limits(described: Mapping[str, Any]) -> tuple[float, int]:
    """Return CPU cores and memory in MiB that a container of the service may use."""
    limits = ((described.get("deploy") or {}).get("resources") or {}).get("limits") or {}
    quota = float(described.get("cpu_quota") or 0) / float(described.get("cpu_period") or 100_000)
    cpu = float(limits.get("cpus") or 0) or float(described.get("cpus") or 0) or max(quota, 0) or CPU_LIMIT
    memory = _bytes(limits.get("memory") or described.get("mem_limit") or 0)
    return cpu, memory // 2**20 if memory else MEMORY_LIMIT_MB


def _bytes(size: Any) -> int:
    """Return a size of a compose file (512m, 1gb, 536870912) in bytes."""
    text = str(size).strip().lower().removesuffix("ib").removesuffix("b")
    unit = UNITS.get(text[-1:], 0)
    return int(float(text[:-1]) * unit) if unit else int(float(text))


NUMBERS: Mapping[str, tuple[Callable[[Any], float], float, float, str]] = {
    **dict.fromkeys(
        ("deploy.resources.limits.memory", "mem_limit"),
        (_bytes, 6 * 2**20, math.inf, "an amount of memory of 6 MiB or more, such as 64m"),
    ),
    **dict.fromkeys(("deploy.resources.limits.cpus", "cpus"), (float, 0, math.inf, "a number of cores, such as 0.5")),
    **dict.fromkeys(("cpu_quota", "cpu_period"), (float, -math.inf, math.inf, "a number of microseconds")),
    **dict.fromkeys(("deploy.replicas", "scale"), (int, 0, 20, "a number of containers, 20 at most")),
}
"""Keys of a service that hold numbers: how each is read, the least and the most that it may say, what that is."""
