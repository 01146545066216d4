"""The `compose` level: the containers of a compose project, run by their engine; real packets between them.

The project is a copy with a name of its own, or one that runs already. A guard, a process that outlives the supervisor,
takes the copy down, or puts the other back as it was, when the supervisor ends, whatever ended it.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import re
import secrets
import sys
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any, ClassVar

import yaml

from opsassay.core.errors import OperationError, RefusedError, StartError
from opsassay.core.schema.system import IsolationLevel
from opsassay.testbed.core.fleet import LOAD_GENERATOR, Fleet, Replica
from opsassay.testbed.core.networks import LOOPBACK, Endpoint, Site
from opsassay.testbed.core.state import SystemState
from opsassay.testbed.kernel.cgroups import CPU, Group, Usage, memberships, mounted_groups
from opsassay.testbed.kernel.network import DATA_INTERFACE, Place, peer_of
from opsassay.testbed.substrates.local.impairing import Impairing
from opsassay.testbed.substrates.local.put_back import written_down
from opsassay.testbed.substrates.local.undo_guard import UndoGuard
from opsassay.testbed.workload.containers import Containers
from opsassay.testbed.workload.engine import ContainerEngine, ContainerState, run_words
from opsassay.testbed.workload.processes import Channels, Template

COPY_S, UP_S = 60.0, 540.0
"""How long a folder may take to be copied, and a project to start, images built and fetched included."""
STALLED_S = 30.0
"""How long a compose program that has named an error may be silent until it is taken to wait for what will not come."""
NO_NAMESPACE = -1


class ComposeNetwork(Impairing):
    """The networks that the engine makes; users and telemetry of ours stay in the namespace of this machine."""

    level: ClassVar[IsolationLevel] = "compose"
    interface: ClassVar[str | None] = DATA_INTERFACE
    home = LOOPBACK

    def __init__(
        self,
        state: SystemState,
        fleet: Fleet,
        template: Template,
        channels: Channels,
        kernel_can: Collection[str],
        expect_exit: Callable[[int], None],
    ) -> None:
        super().__init__(state, template, channels, kernel_can, expect_exit)
        project = fleet.system.compose
        assert project is not None
        self._fleet, self._project = fleet, project
        self._engine = ContainerEngine(project.engine)
        self._file = state.dir / "compose.yaml"
        self._name = project.attached or project_name(state.name)
        self._ports: dict[str, int | None] = {}
        self._guard: UndoGuard | None = None
        self.resolver = f"127.{secrets.randbelow(254) + 1}.{secrets.randbelow(254) + 1}.{secrets.randbelow(254) + 1}"
        self.containers: dict[str, str] = {}
        """The container of each replica."""

    async def prepare(self) -> None:
        """Start the compose project, or attach to it if it runs; a guard process undoes that; raises StartError."""
        if self._project.attached:
            await self._attach()
            return
        try:
            self._file.write_text(yaml.safe_dump(await self._content(), sort_keys=False))
        except OperationError as error:
            raise StartError(f"A folder of the project cannot be copied: {error}") from error
        await self._guard_with(self._words("down", "--volumes", "--remove-orphans", "--timeout", "2"))
        try:
            async with self._engine.checking_health(self._name):
                variables = Path(self._project.directory, ".env")  # of secrets that are variables
                named = ["--env-file", str(variables)] if await asyncio.to_thread(variables.is_file) else []
                await run_words(self._words(*named, "up", "--detach", "--build"), UP_S, stalled_s=STALLED_S)
            await self._find_containers()
        except OperationError as error:
            raise StartError(f"The compose project does not start: {error}") from error

    async def _attach(self) -> None:
        """Find the containers of the running project, record their state, and start the guard that restores it."""
        before = self._state.dir / "before.json"
        try:
            running = await self._find_containers()
            before.write_text(json.dumps(written_down(self._engine.words, running)))
        except (OSError, OperationError) as error:
            raise StartError(f"The compose project {self._name} cannot be attached to: {error}") from error
        await self._guard_with([sys.executable, "-m", "opsassay.testbed.substrates.local.put_back", str(before)])

    async def _guard_with(self, undo_command: Sequence[str]) -> None:
        """Start the guard, which runs *undo_command* when this process ends, however it ends."""
        self._guard = UndoGuard(self._state, undo_command)
        await self._guard.start()

    async def _find_containers(self) -> list[ContainerState]:
        """Record the container of each replica; return those that run; raises StartError if there are too few."""
        running = list[ContainerState]()
        for service, spec in self._fleet.system.services.items():
            found = await self._engine.containers(self._name, service)
            if self._project.attached:
                found = [one for one in found if one.running]
            if len(found) < spec.replicas:
                raise StartError(f"The engine made {len(found)} of {spec.replicas} containers of {service}.")
            for number, one in enumerate(found[: spec.replicas]):
                self.containers[f"{service}-{number}"] = one.id
                if one.ended_well and spec.program is not None and not spec.program.restarts:
                    self._fleet.replicas[f"{service}-{number}"].done = True
            running += [one for one in found if one.running]
        return running

    async def _content(self) -> dict[str, Any]:
        """Return the compose file to start, with writable folders replaced by copies, which it makes."""
        copies = self._state.dir / "copies"
        copies.mkdir()
        for name, source in self._project.copied.items():
            if await asyncio.to_thread(Path(source).exists):
                await run_words(["cp", "-a", source, str(copies / name)], COPY_S)
            else:
                (copies / name).mkdir()
        content = self._project.content
        for service in content["services"].values():
            volumes = service.get("volumes", [])
            service["volumes"] = [
                one.replace("{copies}", str(copies)) if isinstance(one, str) else one for one in volumes
            ]
        return content

    def _words(self, *verb: str) -> list[str]:
        """Return the compose command with the arguments *verb* for this project."""
        return [*self._project.compose, "-p", self._name, "-f", str(self._file), *verb]

    async def open(self, stores: dict[str, int]) -> None:
        """Do nothing: the container engine has made everything reachable."""

    async def admit(self, name: str, host: str) -> None:  # noqa: ARG002 - the engine chooses the host
        """Raise RefusedError: the project's file decides how many containers a service has."""
        raise RefusedError(f"{name} would be a further container; the compose file says how many there are.")

    async def look_at(self, name: str) -> ContainerState:
        """Return the present state of the container of the replica *name*, and store its address and namespace."""
        state = await self._engine.inspect(self.containers[name])
        if state.pid:
            namespace = f"/proc/{state.pid}/ns/net"
            try:
                peer = await asyncio.to_thread(peer_of, namespace)
            except OSError:
                return state  # it has just ended, which its watcher reports
            host = self._fleet.replicas[name].host
            self._places[name] = Place(name, host, NO_NAMESPACE, namespace, state.address, LOOPBACK, peer)
            users = Place(
                LOAD_GENERATOR, host, NO_NAMESPACE, f"/proc/{os.getpid()}/ns/net", state.gateway, LOOPBACK, ""
            )
            self._places.setdefault(LOAD_GENERATOR, users)
        return state

    def site(self, name: str) -> Site:
        """Return where the replica *name* listens: the container's address and namespace; loopback if unknown."""
        place = self._places.get(name)
        if name == LOAD_GENERATOR or place is None:
            return Site(LOOPBACK, LOOPBACK)
        return Site(place.data_address, LOOPBACK, place.path)

    def place(self, name: str) -> Place:
        """Return the network namespace and addresses of the replica *name*."""
        return self._places[name]

    async def listens(self, name: str, port: int | None) -> None:
        """Record the *port* of the replica *name*, and its address, which may change with each start."""
        self._ports[name] = port
        if port is not None:
            await self.look_at(name)

    def endpoint(self, caller: str, callee: str) -> Endpoint | None:  # noqa: ARG002 - every packet finds its way
        """Return the address of *callee*, the same for every caller."""
        port = self._ports.get(callee)
        return (self._places[callee].data_address, port) if port and callee in self._places else None

    def entrances(self, entry: str) -> list[Endpoint]:
        """Return the addresses of the containers of *entry*."""
        found = (self.endpoint(LOAD_GENERATOR, replica.id) for replica in self._fleet.replicas_of(entry))
        return [one for one in found if one is not None]

    def probe(self) -> dict[str, Any] | None:
        """Return None: a probe reaches containers from anywhere on this machine."""
        return None

    async def close(self) -> None:
        """Have the guard remove or restore the project, and wait for that; raises OperationError if it cannot be."""
        if self._guard is not None:
            await self._guard.close()


def project_name(system: str) -> str:
    """Return the compose project name for the copy of *system*: valid for engines, with a digest if it was changed."""
    plain = re.sub(r"[^a-z0-9_-]", "-", system.lower())
    digest = hashlib.sha256(system.encode()).hexdigest()[:8]
    return f"opsassay-{plain}" if plain == system else f"opsassay-{plain}-{digest}"


class ComposeContainers(Containers):
    """The control groups in which the engine keeps the containers."""

    def __init__(self, state: SystemState, fleet: Fleet) -> None:
        super().__init__(state, fleet, mounted_groups())

    def make(self) -> None:
        """Make the control group of the user's load generator, if any; the engine makes those of containers."""
        if self._fleet.system.load.command:
            self.make_load()

    def make_for(self, replica: Replica) -> None:
        """Set the limits of *replica* in its container's control group files, since `update` cannot be undone."""
        if self._groups is not None and (path := self.group_of(replica)):
            memory_bytes = replica.spec.memory_limit_mb * 2**20
            Group(path, self._groups).set_limits(cpu_cores=replica.spec.cpu_limit, memory_bytes=memory_bytes)

    def group_of(self, replica: Replica) -> str:
        """Return the control group path of the replica's container, '' while it does not run."""
        try:
            groups = memberships(Path(f"/proc/{replica.pid}/cgroup").read_text(encoding="utf-8"))
        except OSError:
            return ""
        return groups.get(CPU, groups.get("", "/")).strip("/")

    def usage(self, path: str) -> Usage | None:
        """Return the resource usage of the container in the group *path*; None when it has ended, or for ''."""
        try:
            return super().usage(path) if path else None
        except OSError:
            return None

    def threads(self, path: str) -> list[int]:
        """Return the thread ids in the container's group *path*; [] when it has ended."""
        try:
            return super().threads(path) if path else []
        except OSError:
            return []

    def of_host(self, host: str) -> str:  # noqa: ARG002 - containers of others are on this machine too
        """Return '': the containers of a host have no control group in common."""
        return ""
