"""The copy of a compose project: it has a name, volumes and networks of its own, and nothing of the user's is touched.

It publishes no port of this machine, writes to copies of folders, and carries no label that something here may act on.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from opsassay.core.errors import ConfigError
from opsassay.testbed.apps.compose_reading import count_of, env_files, own_names

MOST_COPIED_BYTES = 200 * 2**20
DROPPED = (
    "container_name", "ports", "profiles", "labels", "logging", "develop",
    "cpu_count", "cpu_percent", "cpu_period", "cpu_quota", "mem_reservation", "memswap_limit",
)  # fmt: skip
"""Keys of a service that would touch what is the user's, or that speak against the limits of the copy."""
SHARED = {"network_mode": "network", "pid": "processes", "ipc": "memory"}
NOT_COPIED = {
    "external_links": "containers of another project are not in the copy",
    "provider": "it is made by a program of this machine, not by the engine",
    "models": "models are run by this machine, not by the engine",
    "use_api_socket": "it hands the container the engine of this machine",
}
OTHER_RECEIVER = re.compile("OTEL_EXPORTER_OTLP_(TRACES|METRICS|LOGS)_(ENDPOINT|PROTOCOL)")
"""Variables that win over OTEL_EXPORTER_OTLP_ENDPOINT."""
OF_THE_SYSTEM = ("/proc", "/sys", "/dev", "/run", "/var/run", "/boot")
NEXT = "attach to the project that runs (`opsassay system attach`), or change it in a further file (docs/own-system.md)"


class Bind(NamedTuple):
    """A *place* of this machine that a container sees at *target*, and may write to unless it is *read_only*."""

    place: Path
    target: str
    read_only: bool


class ComposeCopy:
    """The copy of the project that *read* describes, whose paths begin at *file*; raises ConfigError.

    *limits* are the cores and MiB of each service; *mount_configs* is for podman-compose, which knows no configs. *content*
    is the file that is run, *copied* the places to copy by name.
    """

    def __init__(
        self, file: Path, read: Mapping[str, Any], limits: Mapping[str, tuple[float, int]], *, mount_configs: bool
    ) -> None:
        self.file, self._mount_configs = file, mount_configs
        self._read, self._services, self._limits = read, read["services"], limits
        self._devices = dict(self._bound_volumes())
        binds = {name: list(self._binds(name, one)) for name, one in self._services.items()}
        self._roots = self._places_to_copy(binds)
        self.copied = {f"copy-{number}": str(place) for number, place in enumerate(self._roots)}
        self._built = {
            one["image"]: self._tag(name)
            for name, one in self._services.items()
            if one.get("build") and one.get("image")
        }
        self.content = self._project_copy()

    def _project_copy(self) -> dict[str, Any]:
        """Return the copy of the whole project; raises ConfigError for what cannot be copied."""
        kept = {key: self._read[key] for key in ("networks", "volumes", "secrets", "configs") if self._read.get(key)}
        for kind, described in kept.items():
            kept[kind] = {name: self._own_part(kind, name, one or {}) for name, one in described.items()}
        return {**kept, "services": {name: self._service_copy(name, one) for name, one in self._services.items()}}

    def _own_part(self, kind: str, name: str, described: Mapping[str, Any]) -> dict[str, Any]:
        """Return the copy's own network, volume, secret or config *name*; raises ConfigError for an external one."""
        if described.get("external"):
            words = "it is external: a copy of the project cannot have one of its own"
            raise self._config_error(f"{kind}.{name}", f"{words}; {NEXT}")
        if kind == "networks":  # a bridge of the copy's own: addresses, names and drivers would be the user's
            return {key: described[key] for key in ("internal",) if described.get(key)}
        if kind == "volumes":
            return (
                {} if name in self._devices else {key: described[key] for key in ("driver_opts",) if key in described}
            )
        own = {key: value for key, value in described.items() if key != "name"}
        return own | ({"file": str(self._resolve_path(own["file"]))} if "file" in own else {})

    def _bound_volumes(self) -> Iterator[tuple[str, str]]:
        """Yield (volume, path) of the volumes that are a folder of this machine; raises ConfigError for remote ones."""
        for name, one in (self._read.get("volumes") or {}).items():
            options = (one or {}).get("driver_opts") or {}
            kind, device = str(options.get("type") or "none"), str(options.get("device") or "")
            if (one or {}).get("driver", "local") != "local" or (kind not in ("none", "bind", "tmpfs") and device):
                raise self._config_error(
                    f"volumes.{name}", f"its data are not on this machine alone, so no copy is made; {NEXT}"
                )
            if device and kind != "tmpfs":
                yield name, device

    def _service_copy(self, name: str, described: Mapping[str, Any]) -> dict[str, Any]:
        """Return the copy of the service *name*, with its limits and where its telemetry goes; raises ConfigError."""
        self._refuse_what_cannot_be_apart(name, described)
        cpu, memory_mb = self._limits[name]
        copy = {key: value for key, value in described.items() if key not in DROPPED}
        given = _environment_as_mapping(described.get("environment"))
        own = {key: value for key, value in given.items() if not OTHER_RECEIVER.fullmatch(key)}
        copy["environment"] = own | _telemetry_environment(name)
        copy |= {"cpus": cpu, "mem_limit": f"{memory_mb}m"}
        if (count := count_of(described)) != 1:
            copy["scale"] = count  # podman-compose reads `deploy.replicas` only next to `mode: replicated`
        if deploy := described.get("deploy"):
            copy["deploy"] = {
                key: value for key, value in deploy.items() if key not in ("resources", "labels", "replicas")
            }
            resources = deploy.get("resources") or {}
            if devices := (resources.get("reservations") or {}).get("devices"):
                copy["deploy"]["resources"] = {"reservations": {"devices": devices}}
            if pids := (resources.get("limits") or {}).get("pids"):
                copy["pids_limit"] = pids
        if volumes := described.get("volumes"):
            copy["volumes"] = [self._volume(one) for one in volumes]
        if self._mount_configs and (configs := copy.pop("configs", None)):
            copy["volumes"] = [*copy.get("volumes", ()), *(self._config_mount(name, one) for one in configs)]
        if build := described.get("build"):
            copy["build"], copy["image"] = self._build_copy(build), self._tag(name)
        elif (image := described.get("image")) in self._built:
            copy["image"] = self._built[image]
        if files := list(env_files(described)):
            copy["env_file"] = [
                {**one, "path": path} if len(one) > 1 else path
                for one in files
                if (path := str(self._resolve_path(one["path"])))
            ]
        if waits := described.get(
            "depends_on"
        ):  # Docker Compose names services of profiles that are off, and refuses them
            here = [one for one in waits if one in self._services]
            copy["depends_on"] = {one: waits[one] for one in here} if isinstance(waits, dict) else here
        if joined := self._networks(name, described):
            copy["networks"] = joined
        return copy

    def _refuse_what_cannot_be_apart(self, name: str, described: Mapping[str, Any]) -> None:
        """Raise ConfigError when the service shares a namespace with others or uses what is not copied."""
        for key, what in SHARED.items():
            if str(described.get(key, "")).split(":")[0] in ("host", "none", "container", "service"):
                words = f"faults need a container with its own {what}, and this one has not"
                raise self._config_error(
                    f"services.{name}.{key}", f"{words}; leave it out in a further file (docs/own-system.md)"
                )
        for key, words in NOT_COPIED.items():
            if described.get(key):
                raise self._config_error(f"services.{name}.{key}", f"{words}; {NEXT}")

    def _networks(self, service: str, described: Mapping[str, Any]) -> dict[str, Any]:
        """Return the networks that *service*, *described* in the file, joins, with its other names as aliases."""
        names = own_names(described) - {service}
        given = described.get("networks") or ({"default": None} if names and not described.get("network_mode") else {})
        joined: dict[str, Any] = {}
        for network, how in (dict.fromkeys(given) if isinstance(given, list) else given).items():
            kept = dict(how or {})
            for address in filter(None, (kept.pop(key, None) for key in ("ipv4_address", "ipv6_address"))):
                if callers := [one for one, other in self._services.items() if _mentions(other, str(address))]:
                    words = f"{callers[0]} calls {service} by the address {address}, which the copy cannot have"
                    raise self._config_error(f"services.{service}.networks", f"{words}; call it by its name")
            if names:
                kept["aliases"] = list(dict.fromkeys([*(kept.get("aliases") or ()), *sorted(names)]))
            joined[network] = kept or None
        return joined

    def _tag(self, service: str) -> str:
        """Return the name of the image that is built for *service*, localhost/opsassay/FOLDER-SERVICE."""
        words = [re.sub(r"[^a-z0-9]+", "-", word.lower()).strip("-") for word in (self.file.parent.name, service)]
        return f"localhost/opsassay/{'-'.join(filter(None, words))}"

    def _build_copy(self, build: Any) -> dict[str, Any]:
        """Return the `build` of a service with absolute paths and without tags, labels and caches to write."""
        given = {"context": build} if isinstance(build, str) else dict(build)
        own = {key: value for key, value in given.items() if key not in ("tags", "cache_to", "labels")}
        own["context"] = self._place_or_address(given.get("context", "."))
        if contexts := given.get("additional_contexts"):
            pairs = contexts.items() if isinstance(contexts, dict) else (str(one).split("=", 1) for one in contexts)
            own["additional_contexts"] = {key: self._place_or_address(value) for key, value in pairs}
        return own

    def _place_or_address(self, context: str) -> str:
        """Return the build *context*: a folder as an absolute path, an address such as a repository unchanged."""
        return context if re.match(r"[\w+.-]+:|[\w.-]+@|github\.com/", context) else str(self._resolve_path(context))

    def _bind(self, volume: Any) -> Bind | None:
        """Return the path of this machine that *volume* mounts, and where; None for a volume that the engine keeps."""
        if isinstance(volume, str):
            parts = volume.split(":")
            source, target = parts[0], parts[1] if len(parts) > 1 else ""
            read_only = "ro" in (parts[2].split(",") if len(parts) > 2 else ())
            if not target or not (source in self._devices or source.startswith((".", "/", "~"))):
                return None
        elif volume.get("type") == "bind" or volume.get("source") in self._devices:
            source, target, read_only = volume["source"], volume["target"], bool(volume.get("read_only"))
        else:
            return None
        return Bind(self._resolve_path(self._devices.get(source, source)), target, read_only)

    def _binds(self, service: str, described: Mapping[str, Any]) -> Iterator[Bind]:
        """Yield the paths of this machine that *service* mounts; raises ConfigError for sockets and system folders."""
        for one in filter(None, map(self._bind, described.get("volumes") or ())):
            where = f"services.{service}.volumes"
            if one.place.is_socket() or one.place.suffix == ".sock":  # the engine's may be absent when nobody needs it
                words = (
                    "it hands the container a socket of this machine, out of reach of every fault and of the clean-up"
                )
                raise self._config_error(where, f"{words}: {one.place}; {NEXT}")
            of_the_system = one.place == Path("/") or any(one.place.is_relative_to(top) for top in OF_THE_SYSTEM)
            if of_the_system and not one.read_only:
                raise self._config_error(
                    where, f"the container may write to {one.place}, which is this machine's; use `:ro`"
                )
            yield one

    def _places_to_copy(self, binds: Mapping[str, list[Bind]]) -> list[Path]:
        """Return the folders that containers may write to (*binds*: by service), each to be copied once.

        A folder around one of them that another container sees takes its place.
        """
        every = [(service, one) for service, ones in binds.items() for one in ones]
        written = {one.place for _, one in every if not one.read_only or not one.place.exists()}
        seen = {one.place: service for service, one in every if any(w.is_relative_to(one.place) for w in written)}
        roots = [place for place in seen if not any(other in seen for other in place.parents)]
        for place in roots:
            if (size := _size_until(place, MOST_COPIED_BYTES)) > MOST_COPIED_BYTES:
                words = f"a container may write to {place} (over {size / 2**20:.0f} MiB), too much to copy"
                raise self._config_error(f"services.{seen[place]}.volumes", f"{words}; use a named volume, or `:ro`")
        return roots

    def _volume(self, volume: Any) -> dict[str, Any] | str:
        """Return *volume* for the copied project: a writable path of this machine is replaced by a copy of it."""
        bind = self._bind(volume)
        if bind is None:
            return volume if isinstance(volume, str) else dict(volume)
        source = str(bind.place)
        for number, root in enumerate(self._roots):
            if bind.place.is_relative_to(root):
                source = str(Path(f"{{copies}}/copy-{number}") / bind.place.relative_to(root))
        return f"{source}:{bind.target}" + (":ro" if bind.read_only and bind.place.exists() else "")

    def _config_mount(self, service: str, config: Any) -> str:
        """Return the volume that shows *config* to a container of *service*, as Docker Compose does it."""
        given = {"source": config} if isinstance(config, str) else config
        file = ((self._read.get("configs") or {}).get(given["source"]) or {}).get("file")
        if not file:
            words = (
                f"podman-compose knows no configs, and only a file can be shown in their place; write {given['source']}"
            )
            raise self._config_error(f"services.{service}.configs", f"{words} into a file")
        return f"{self._resolve_path(file)}:{given.get('target') or '/' + given['source']}:ro"

    def _resolve_path(self, path: str) -> Path:
        """Return *path* as absolute; relative paths start at the folder of the compose file."""
        return (self.file.parent / Path(path).expanduser()).resolve()

    def _config_error(self, field: str, words: str) -> ConfigError:
        """Return the error that *field* of the compose file has the problem *words*."""
        return ConfigError(f"{self.file}: {field}: {words}.")


def _telemetry_environment(service: str) -> dict[str, str]:
    """Return the variables that make OpenTelemetry export under the name *service*."""
    from opsassay.testbed.workload.runtime.program import TELEMETRY  # brings the runtime's libraries

    return {**TELEMETRY, "OTEL_SERVICE_NAME": service}


def _environment_as_mapping(environment: Any) -> dict[str, Any]:
    """Return a compose `environment`, list or mapping, as a mapping; a bare name takes the value it has here."""
    if isinstance(environment, list):
        pairs = (str(one).partition("=") for one in environment)
        return {name: value if given else os.environ.get(name) for name, given, value in pairs}
    return dict(environment or {})


def _mentions(described: Mapping[str, Any], address: str) -> bool:
    """Return whether the service entry *described* contains the text *address* outside its `networks`."""
    return address in json.dumps({**described, "networks": None}, default=str)


def _size_until(place: Path, limit: int) -> int:
    """Return the size of the files in *place*, in bytes; counting ends once it exceeds *limit*."""
    size = 0
    files = (
        [[place]]
        if place.is_file()
        else ([Path(folder) / name for name in names] for folder, _, names in os.walk(place))
    )
    for some in files:
        size += sum(file.stat().st_size for file in some if file.is_file() and not file.is_symlink())
        if size > limit:
            break
    return size
