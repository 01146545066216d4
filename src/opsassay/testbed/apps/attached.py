"""A compose project that runs already, read off its engine: containers are broken and put back, never made or removed."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import urllib.error
import urllib.request
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import psutil

from opsassay.core.errors import NotFoundError, OperationError, RefusedError, UserError
from opsassay.core.schema.compose import ComposeProject, ComposeService
from opsassay.testbed.apps.compose import DescribedProject
from opsassay.testbed.apps.compose_reading import TRY_S

ENGINES = ("docker", "podman")
PROJECT, SERVICE = "com.docker.compose.project", "com.docker.compose.service"
LISTED = (
    "ends containers, and starts the same ones again: their start time differs then, and maybe their address",
    "impairs packets in the networks of containers, and removes the rules",
    "changes limits in the control groups of containers, and writes the former ones back",
    "suspends processes of containers, and lets them go on",
    "leads new connections to services with `sidecar` through an Envoy in the container's network, and ends it",
    "listens on 127.0.0.1:4318 and 4317 in containers for OTLP, where the ports are free, as long as it runs",
)
"""All that OpsAssay does to a project that runs."""


class AttachedProject(DescribedProject):
    """The project *name* as its containers run; raises NotFoundError, RefusedError, OperationError."""

    def __init__(self, name: str, stated: Mapping[str, ComposeService]) -> None:
        self.engine, containers = _find_project(name)
        by_service = defaultdict[str, list[Mapping[str, Any]]](list)
        for one in containers:
            if one["State"]["Running"] and _has_network(one):
                by_service[one["Config"]["Labels"][SERVICE]].append(one)
        if not by_service:
            raise UserError(f"No container of the compose project {name} runs; start it with your compose program.")
        described = {service: _described(ones) for service, ones in sorted(by_service.items())}
        super().__init__(name, f"the compose project {name}", f"attach: {name}", described, stated)
        self.unlimited = tuple(sorted(service for service, ones in by_service.items() if not _has_limits(ones[0])))
        self.containers = {service: [one["Name"].lstrip("/") for one in ones] for service, ones in by_service.items()}
        self._published = {
            int(binding["HostPort"]): service
            for service, ones in by_service.items()
            for one in ones
            for bindings in _bindings(one).values()
            for binding in bindings or ()
            if binding.get("HostPort")
        }

    def as_run(self) -> ComposeProject:
        """Return the compose project that already runs; OpsAssay does not start it."""
        return ComposeProject(engine=self.engine, attached=self.name, unlimited=self.unlimited)

    def request_of(self, page: Page) -> str:
        """Return the user request (``service GET /path``) for *page*, which is at a published port.

        Raises UserError for another port, and for a page that is not answered well.
        """
        service = self._published.get(page.port)
        if service is None:
            known = ", ".join(f"{port} ({name})" for port, name in sorted(self._published.items())) or "none"
            raise UserError(f"No container of {self.name} publishes port {page.port}; published are {known}.")
        try:
            with urllib.request.urlopen(page.url, timeout=TRY_S):  # noqa: S310 - http, as `page_at` has seen
                pass
        except (OSError, urllib.error.URLError) as error:
            words = f"{page.url} is not answered well ({error})"
            raise UserError(f"{words}; give a page that users get from {service}.") from error
        return f"{service} GET {page.path}"


class Page(NamedTuple):
    """A page that users get: its *url*, the *port* of this machine and the *path* with its query."""

    url: str
    port: int
    path: str


def page_at(url: str) -> Page:
    """Return the page of *url*: URL, port, and path with query; raises UserError when *url* is not HTTP."""
    try:
        parts = urlsplit(url)
        port = parts.port or 80
    except ValueError:
        parts, port = urlsplit(""), 0
    if parts.scheme != "http" or not parts.hostname or re.search(r"\s", url):
        raise UserError(f"--entry is a URL such as http://127.0.0.1:8080/, not {url!r}.")
    return Page(url, port, (parts.path or "/") + (f"?{parts.query}" if parts.query else ""))


def _find_project(name: str) -> tuple[tuple[str, ...], Sequence[Mapping[str, Any]]]:
    """Return the engine (docker or podman) that runs the compose project *name*, and `inspect` of its containers."""
    known, asked = set[str](), list[str]()
    for engine in filter(shutil.which, ENGINES):
        try:
            ids = _ask(engine, "ps", "--all", "--quiet", "--no-trunc", f"--filter=label={PROJECT}").split()
            found = json.loads(_ask(engine, "inspect", *ids)) if ids else []
        except OperationError:
            continue  # it is installed and does not run
        asked.append(engine)
        here = [one for one in found if one["Config"]["Labels"][PROJECT] == name]
        if here:
            return (engine,), here
        known |= {one["Config"]["Labels"][PROJECT] for one in found}
    if not asked:
        raise RefusedError(
            "No container engine answers on this machine (tried docker, podman); start the one that you use."
        )
    raise NotFoundError("compose project", name, known, f"Asked: {', '.join(asked)}.")


def _has_network(container: Mapping[str, Any]) -> bool:
    """Tell whether *container* has a network of its own; raises RefusedError when it is in that of another container."""
    mode = str(container["HostConfig"].get("NetworkMode") or "")
    if mode.startswith("container:"):
        words = "is in the network of another container, and would have none after a fault that ends that one"
        raise RefusedError(f"{container['Name'].lstrip('/')} {words}; stop it before you attach.")
    return mode not in ("host", "none")


def _ask(*words: str) -> str:
    """Return what the engine's command *words* prints; raises OperationError when it fails or does not answer."""
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=TRY_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise OperationError(f"`{' '.join(words[:2])}` does not answer: {error}.") from error
    if done.returncode:
        raise OperationError(f"`{' '.join(words[:2])}` fails: {done.stderr.strip()}")
    return done.stdout


def _described(containers: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the service of *containers* in the form of a compose file; without a limit it gets the whole machine."""
    first = containers[0]
    bindings = _bindings(first)
    ports = {int(port.partition("/")[0]): bool(bound) for port, bound in bindings.items() if port.endswith("/tcp")}
    cores, memory_bytes = _limits(first)
    return {
        "image": first["Config"]["Image"],
        "ports": [{"target": port} for port, published in sorted(ports.items()) if published],
        "expose": [port for port, published in sorted(ports.items()) if not published],
        "cpus": cores or os.cpu_count(),
        "mem_limit": memory_bytes or psutil.virtual_memory().total,
        "restart": first["HostConfig"]["RestartPolicy"]["Name"] or "no",
        "scale": len(containers),
        "networks": {name: {"aliases": sorted(aliases)} for name, aliases in _aliases(containers).items()},
    }


def _aliases(containers: Iterable[Mapping[str, Any]]) -> dict[str, set[str]]:
    """Return {network: names of *containers* in it}: the containers' names and their aliases there."""
    found: dict[str, set[str]] = {}
    for one in containers:
        for network, joined in (one["NetworkSettings"].get("Networks") or {}).items():
            found.setdefault(network, set()).update((one["Name"].lstrip("/"), *(joined.get("Aliases") or ())))
    return found


def _bindings(container: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the published ports of *container*, by container port."""
    ports: Mapping[str, Any] = container["NetworkSettings"].get("Ports") or {}
    return ports


def _limits(container: Mapping[str, Any]) -> tuple[float, int]:
    """Return CPU cores and memory in bytes that *container* may use, 0 where it has no limit."""
    host = container["HostConfig"]
    quota = host.get("CpuQuota") or 0
    cores = (host.get("NanoCpus") or 0) / 1e9 or (quota / (host.get("CpuPeriod") or 100_000) if quota > 0 else 0.0)
    return cores, int(host.get("Memory") or 0)


def _has_limits(container: Mapping[str, Any]) -> bool:
    """Return whether *container*, as its engine describes it, has limits of CPU and memory."""
    return all(_limits(container))
