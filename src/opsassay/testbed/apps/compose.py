"""A compose project as a system: read by its own compose program, and copied so that the user's own is not touched.

The copy has a name, volumes and networks of its own, publishes no port of this machine, and writes to copies of folders.
"""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
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
from opsassay.testbed.apps.programs import place_load

COMMANDS = (("docker", "compose"), ("docker-compose",), ("podman", "compose"), ("podman-compose",))
"""Compose programs, in the order in which they are tried; each has the engine of its name."""
TRY_S, READ_S = 10.0, 60.0
MOST_COPIED_BYTES = 200 * 2**20
CPU_LIMIT, MEMORY_LIMIT_MB = 1.0, 512
"""What a container may use where its project sets no limit, so that pressure on it has something to exhaust."""
KNOWN_PORTS = {
    "postgres": 5432, "postgis": 5432, "valkey": 6379, "redis": 6379, "nats": 4222, "mysql": 3306, "mariadb": 3306,
    "mongo": 27017, "rabbitmq": 5672, "memcached": 11211, "kafka": 9092, "elasticsearch": 9200, "minio": 9000,
}  # fmt: skip
"""Ports of stores by a part of their image's name: compose files seldom state them."""
UNITS = {"b": 1, "k": 2**10, "m": 2**20, "g": 2**30}


@functools.cache
def compose_program() -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the commands of compose and of its engine on this machine; raises RefusedError when there are none."""
    own = Path(sys.executable).parent
    for words in COMMANDS:
        engine = (words[0].removesuffix("-compose"),)
        found = shutil.which(words[0]) or shutil.which(str(own / words[0]))
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
    try:
        return subprocess.run(words, capture_output=True, timeout=TRY_S, check=False).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


def is_compose_file(path: Path) -> bool:
    """Return whether the file at *path* is a compose file, or a system file that names one."""
    try:
        text = path.read_text(encoding="utf-8")
        require_small(text, str(path))
        document = yaml.safe_load(text)
    except (OSError, ValueError, yaml.YAMLError, ConfigError):
        return False  # the reader of systems says what is wrong
    if not isinstance(document, dict):
        return False
    services = document.get("services")
    described = services.values() if isinstance(services, dict) else ()
    containers = any(isinstance(one, dict) and {"image", "build"} & one.keys() for one in described)
    return bool({"compose", "attach"} & document.keys()) or (containers and "load" not in document)


def load_compose(path: Path) -> System:
    """Return the system of the compose file at *path*, or of the system file at *path* that names a compose file.

    Raises ConfigError for a file that cannot be read or run as a copy, RefusedError where no engine answers.
    """
    document = yaml.safe_load(path.read_text(encoding="utf-8"))
    written = load_yaml(path, ComposeSystem) if {"compose", "attach"} & document.keys() else None
    project = _project_of(path, written)
    services = project.services()
    if unknown := sorted(set(project.stated) - set(services)):
        raise ConfigError(f"{path}: {NotFoundError('service of ' + project.shown, unknown[0], services)}")
    load = place_load(written.load, path) if written else _load_of(project)
    if load.command and not load.mix:
        load = load.model_copy(update={"mix": _load_of(project).mix})
    try:
        return System(
            system=written.system if written else project.name,
            description=written.description if written else f"The compose project {project.name}",
            host_cpu_limit=float(max([os.cpu_count() or 1, *(one.cpu_limit for one in services.values())])),
            host_memory_limit_mb=sum(one.memory_limit_mb * one.replicas for one in services.values()),
            services=services,
            load=load,
            slo=written.slo if written else System.model_fields["slo"].default,
            compose=project.as_run(),
        )
    except ValidationError as error:
        raise ConfigError(f"{path}: {problem(error)}.") from error


def _project_of(path: Path, system_file: ComposeSystem | None) -> DescribedProject:
    """Return the project of the compose file at *path*, or the one that *system_file*, read from *path*, names."""
    if system_file is not None and system_file.attach is not None:
        from opsassay.testbed.apps.attached import AttachedProject

        return AttachedProject(system_file.attach, system_file.services)
    file = path.resolve().parent / system_file.compose if system_file and system_file.compose else path.resolve()
    if not file.is_file():
        raise ConfigError(
            f"{path}: there is no compose file {system_file.compose if system_file else path}; check the path."
        )
    try:
        project = _Project(file, system_file.services if system_file else {})
        project.services()
    except (TypeError, ValueError, KeyError, AttributeError) as error:
        raise ConfigError(f"{file}: a value of it is none that compose files have: {reason(error)}.") from error
    return project


def _load_of(project: DescribedProject) -> Load:
    """Return the default load: a GET of the root path of each service that publishes a port."""
    if not project.published:
        raise ConfigError(
            f"{project.shown}: no service publishes a port, so that users reach none; write a system file with "
            f"`{project.key}` and `load:` (docs/own-system.md)."
        )
    return Load(mix=tuple(LoadMix(request=f"{name} GET /") for name in sorted(project.published)))


class DescribedProject:
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
        self._described = described
        self.ports = {name: list(_ports(one)) for name, one in described.items()}
        self.published = {name for name, one in described.items() if one.get("ports") and not _store_port(one)}

    def as_run(self) -> ComposeProject:
        """Return the project in the form in which a substrate runs it."""
        raise NotImplementedError

    def services(self) -> dict[str, Service]:
        """Return the services of the system; a job that others wait for is left out, since it ends at the start."""
        jobs = {
            name
            for one in self._described.values()
            if isinstance(waits := one.get("depends_on"), dict)
            for name, condition in waits.items()
            if condition and condition.get("condition") == "service_completed_successfully"
        }
        return {name: self._read_service(name, one) for name, one in self._described.items() if name not in jobs}

    def _read_service(self, name: str, described: Mapping[str, Any]) -> Service:
        stated = self.stated.get(name, ComposeService())
        port = stated.port or next(iter(self.ports[name]), 0)
        ready = stated.ready or (Ready(tcp=port) if port else None)
        cpu, memory_mb = _limits(described)
        count = (described.get("deploy") or {}).get("replicas") or described.get("scale") or 1
        policy = str(described.get("restart") or "no").partition(":")[0]
        calls = () if stated.calls is None and _store_port(described) else stated.calls  # a store calls none
        return Service(
            replicas=int(count),
            cpu_limit=cpu,
            memory_limit_mb=memory_mb,
            program=Program(
                container=name,
                ports={"http": port} if port else {},
                ready=ready,
                calls=calls,
                restarts=policy not in ("no", "on-failure"),
            ),
        )


class _Project(DescribedProject):
    """The project of the compose *file*: a copy of it is run."""

    def __init__(self, file: Path, stated: Mapping[str, ComposeService]) -> None:
        self.file = file
        self.compose, self.engine = compose_program()
        self.copied: dict[str, str] = {}
        read = self._read()
        name, key = str(read.get("name") or file.parent.name).lower(), f"compose: {file.name}"
        super().__init__(name, str(file), key, read["services"], stated)
        self.content = self._copy(read)

    def as_run(self) -> ComposeProject:
        """Return the copy of the project that is run."""
        return ComposeProject(
            compose=self.compose,
            engine=self.engine,
            directory=str(self.file.parent),
            content=self.content,
            copied=self.copied,
        )

    def _read(self) -> dict[str, Any]:
        """Return the file as its compose program reads it: merged, extended, variables filled in."""
        words = [*self.compose, "-f", str(self.file), "config"]
        try:
            done = subprocess.run(
                words, capture_output=True, text=True, timeout=READ_S, cwd=self.file.parent, check=False
            )
        except subprocess.TimeoutExpired as error:
            raise ConfigError(f"{self.file}: `{' '.join(words)}` did not end in {READ_S:g} s.") from error
        if done.returncode != 0:
            said = [line for line in (done.stderr or done.stdout).splitlines() if line.strip()]
            raise ConfigError(f"{self.file}: {said[-1].strip() if said else 'its compose program refuses it'}")
        found = yaml.safe_load(done.stdout)
        if not isinstance(found, dict) or not isinstance(found.get("services"), dict) or not found["services"]:
            raise ConfigError(f"{self.file}: it has no services.")
        return found

    def _copy(self, project: Mapping[str, Any]) -> dict[str, Any]:
        """Return the content of the compose file that is run, a copy of *project* with changes."""
        kept = {key: project[key] for key in ("networks", "volumes", "secrets", "configs") if project.get(key)}
        for kind, described in kept.items():
            kept[kind] = {name: self._own_copy_of(kind, name, one or {}) for name, one in described.items()}
        return {**kept, "services": {name: self._service_copy(name, one) for name, one in self._described.items()}}

    def _own_copy_of(self, kind: str, name: str, described: Mapping[str, Any]) -> dict[str, Any]:
        if described.get("external"):
            raise self._config_error(
                f"{kind}.{name}", "it is external: a copy of the project cannot have one of its own"
            )
        own = {key: value for key, value in described.items() if key not in ("name", "ipam")}
        if "file" in own:
            own["file"] = str(self._resolve_path(own["file"]))
        return own

    def _service_copy(self, name: str, described: Mapping[str, Any]) -> dict[str, Any]:
        for key in ("network_mode", "pid", "ipc"):
            if str(described.get(key, "")).split(":")[0] in ("host", "none", "container", "service"):
                raise self._config_error(
                    f"services.{name}.{key}", "it shares what faults need to have apart; leave it out"
                )
        cpu, memory_mb = _limits(described)
        dropped = ("container_name", "ports", "profiles", "hostname")
        copy = {key: value for key, value in described.items() if key not in dropped}
        copy["environment"] = _environment_as_mapping(described.get("environment")) | self._telemetry_environment(name)
        copy |= {"cpus": cpu, "mem_limit": f"{memory_mb}m"}
        if (deploy := copy.get("deploy")) and deploy.get("resources"):
            copy["deploy"] = {key: value for key, value in deploy.items() if key != "resources"}
        if volumes := described.get("volumes"):
            copy["volumes"] = [self._volume(name, one) for one in volumes]
        if build := described.get("build"):
            build = {"context": build} if isinstance(build, str) else dict(build)
            copy["build"] = build | {"context": str(self._resolve_path(build.get("context", ".")))}
            copy["image"] = f"localhost/opsassay/{self.file.parent.name.lower()}-{name}"
        if files := described.get("env_file"):
            copy["env_file"] = [
                str(self._resolve_path(_env_file(one))) for one in (files if isinstance(files, list) else [files])
            ]
        return copy

    def _telemetry_environment(self, name: str) -> dict[str, str]:
        from opsassay.testbed.workload.runtime.program import TELEMETRY  # brings the runtime's libraries

        return {**TELEMETRY, "OTEL_SERVICE_NAME": name}

    def _volume(self, service: str, volume: Any) -> dict[str, Any] | str:
        """Return the *volume* of *service* in the copy: a writable folder is replaced by a copy of it."""
        if isinstance(volume, str):
            parts = volume.split(":")
            if len(parts) == 1 or not parts[0].startswith((".", "/", "~")):
                return volume
            options = parts[2].split(",") if len(parts) > 2 else []
            source, target, read_only = parts[0], parts[1], "ro" in options
        elif volume.get("type") == "bind":
            source, target, read_only = volume["source"], volume["target"], bool(volume.get("read_only"))
        else:
            return dict(volume)
        place = self._resolve_path(source)
        if place.is_socket():
            words = "it hands the container a socket of this machine, out of reach of every fault and of the clean-up"
            raise self._config_error(f"services.{service}.volumes", f"{words}: {place}")
        if not read_only or not place.exists():  # an engine makes a folder that is not there
            size = sum(file.stat().st_size for file in _list_files(place))
            if size > MOST_COPIED_BYTES:
                words = f"the container may write to {place} ({size / 2**20:.0f} MiB), too much to copy"
                raise self._config_error(f"services.{service}.volumes", f"{words}; use a named volume, or `:ro`")
            self.copied[f"copy-{len(self.copied)}"] = str(place)
            return f"{{copies}}/copy-{len(self.copied) - 1}:{target}"
        return f"{place}:{target}:ro"

    def _resolve_path(self, path: str) -> Path:
        return (self.file.parent / Path(path).expanduser()).resolve()

    def _config_error(self, field: str, words: str) -> ConfigError:
        return ConfigError(f"{self.file}: {field}: {words}.")


def _list_files(place: Path) -> Iterator[Path]:
    if place.is_file():
        yield place
    for folder, _, names in os.walk(place):
        yield from (file for name in names if (file := Path(folder) / name).is_file() and not file.is_symlink())


def _ports(described: Mapping[str, Any]) -> Iterator[int]:
    """Yield the ports of a service's containers, published ones first."""
    for one in (*_list_or_nothing(described.get("ports")), *_list_or_nothing(described.get("expose"))):
        text = (
            str(one["target"] if isinstance(one, dict) else one).rpartition(":")[2].partition("/")[0].partition("-")[0]
        )
        if text.isdigit():
            yield int(text)
    if (port := _store_port(described)) is not None:
        yield port


def _store_port(described: Mapping[str, Any]) -> int | None:
    image = str(described.get("image") or "").rpartition("/")[2].partition(":")[0]
    return next((port for name, port in KNOWN_PORTS.items() if name in image), None)


def _limits(described: Mapping[str, Any]) -> tuple[float, int]:
    """Return CPU cores and memory in MiB that a container of the service may use."""
    limits = ((described.get("deploy") or {}).get("resources") or {}).get("limits") or {}
    cpu = float(limits.get("cpus") or described.get("cpus") or CPU_LIMIT)
    memory = limits.get("memory") or described.get("mem_limit")
    return cpu, max(64, _bytes(memory) // 2**20) if memory else MEMORY_LIMIT_MB


def _bytes(size: Any) -> int:
    """Return a size of a compose file (512m, 1gb, 536870912) in bytes."""
    text = str(size).strip().lower().removesuffix("ib").removesuffix("b")
    unit = UNITS.get(text[-1:], 0)
    return int(float(text[:-1]) * unit) if unit else int(float(text))


def _list_or_nothing(value: Any) -> Iterable[Any]:
    return value if isinstance(value, list) else ()


def _environment_as_mapping(environment: Any) -> dict[str, Any]:
    if isinstance(environment, list):
        pairs = (str(one).partition("=") for one in environment)
        return {name: value if given else os.environ.get(name, "") for name, given, value in pairs}
    return dict(environment or {})


def _env_file(entry: Any) -> str:
    return str(entry["path"] if isinstance(entry, dict) else entry)
