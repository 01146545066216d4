"""A container engine (Docker or Podman) by its command line, each call with a time limit."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import tempfile
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from opsassay.core.errors import OperationError

CALL_S, LOOK_S = 30.0, 1.0
SYSTEMD = Path("/run/systemd/system")
"""A folder that exists where systemd runs, whose timers Podman's health checks need."""


@dataclass(frozen=True)
class ContainerState:
    """One container's state by its engine; *pid* is 0 unless it runs, *address* and *gateway* are of its first network."""

    id: str
    pid: int
    running: bool
    started_at: str
    exit_code: int
    health: str
    address: str
    gateway: str
    number: int

    @property
    def ended_well(self) -> bool:
        """Whether the container has run and ended with exit status 0."""
        return not self.running and self.exit_code == 0 and not self.started_at.startswith("0001-")

    @classmethod
    def of(cls, inspection: Mapping[str, Any]) -> ContainerState:
        """Return the state in *inspection*, an element of the output of the engine's `inspect`."""
        state, networks = inspection["State"], inspection["NetworkSettings"].get("Networks") or {}
        first: Mapping[str, Any] = next(iter(networks.values()), {})
        health = state.get("Health") or state.get("Healthcheck") or {}
        return cls(
            id=inspection["Id"],
            pid=int(state.get("Pid") or 0),
            running=bool(state.get("Running")),
            started_at=str(state.get("StartedAt", "")),
            exit_code=int(state.get("ExitCode") or 0),
            health=str(health.get("Status") or ""),
            address=str(first.get("IPAddress") or ""),
            gateway=str(first.get("Gateway") or ""),
            number=int(inspection["Config"]["Labels"].get("com.docker.compose.container-number") or 1),
        )


class ContainerEngine:
    """The engine with the command *words*."""

    def __init__(self, words: Sequence[str]) -> None:
        self.words = tuple(words)
        self._lone_podman = Path(words[0]).name == "podman" and not SYSTEMD.exists()

    async def run(self, *arguments: str, with_errors: bool = False) -> str:
        """Run the engine's command with *arguments*; return its output, also stderr if *with_errors*.

        Raises OperationError when it fails or is late.
        """
        return await run_words((*self.words, *arguments), CALL_S, with_errors=with_errors)

    async def inspect(self, container: str) -> ContainerState:
        """Return the state of *container*."""
        return ContainerState.of(json.loads(await self.run("inspect", container))[0])

    async def containers(self, project: str, service: str) -> list[ContainerState]:
        """Return all containers of *service* in the compose *project*, also ended ones, sorted by number."""
        labels = {"project": project, "service": service}
        filters = [f"--filter=label=com.docker.compose.{key}={value}" for key, value in labels.items()]
        ids = (await self.run("ps", "--all", "--quiet", *filters)).split()
        found = [await self.inspect(one) for one in ids]
        return sorted(found, key=lambda one: one.number)

    @contextlib.asynccontextmanager
    async def checking_health(self, project: str) -> AsyncIterator[None]:
        """Run the health checks of *project* during the block, if the engine is a Podman that does not."""
        if not self._lone_podman:
            yield
            return
        checks = asyncio.create_task(self._check_health(project))
        try:
            yield
        finally:
            checks.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await checks

    async def _check_health(self, project: str) -> None:
        """Run the health checks of starting containers of *project* at intervals until cancelled."""
        filters = (f"--filter=label=com.docker.compose.project={project}", "--filter=health=starting")
        while True:
            await asyncio.sleep(LOOK_S)
            with contextlib.suppress(OperationError):  # it has none, fails its check, or is not there any more
                for one in (await self.run("ps", "--quiet", *filters)).split():
                    await self.run("healthcheck", "run", one)


async def run_words(
    command: Sequence[str], limit_s: float, *, with_errors: bool = False, stalled_s: float | None = None
) -> str:
    """Run *command* and return its output, *with_errors* with standard error; it gets at most *limit_s* seconds.

    Raises OperationError with the line that names the error when it fails or is late, or when it has named one and
    prints nothing more for *stalled_s* seconds: some compose programs wait for a container that could not be
    started. Its output goes to files, since children may keep a pipe open after its end.
    """
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        process = await asyncio.create_subprocess_exec(
            *command, stdin=asyncio.subprocess.DEVNULL, stdout=out, stderr=err
        )
        ended, began = await _await_end(process, err, limit_s, stalled_s), f"`{' '.join(command[:4])}`"
        printed, complaints = (_content(file) for file in (out, err))
    if not ended:
        cause = f": {found}" if (found := _named_error(complaints)) else "."
        raise OperationError(
            f"{began} did not end{cause}" if cause != "." else f"{began} did not end in {limit_s:g} s."
        )
    if process.returncode:
        said = (complaints or printed).strip().splitlines()
        cause = _named_error(complaints or printed) or (said[-1] if said else "")
        raise OperationError(f"{began} ended with status {process.returncode}: {cause}")
    return printed + (complaints if with_errors else "")


async def _await_end(
    process: asyncio.subprocess.Process, errors: IO[bytes], limit_s: float, stalled_s: float | None
) -> bool:
    """Wait until *process* ends and return True; kill it and return False after *limit_s*, or when it stalls.

    It stalls when *errors* names an error and has not grown for *stalled_s* seconds (None: never).
    """
    loop = asyncio.get_running_loop()
    deadline, quiet_since, size = loop.time() + limit_s, loop.time(), 0
    while loop.time() < deadline:
        try:
            await asyncio.wait_for(asyncio.shield(process.wait()), min(LOOK_S, deadline - loop.time()))
            return True
        except TimeoutError:
            if (now := os.fstat(errors.fileno()).st_size) != size:
                quiet_since, size = loop.time(), now
            quiet = stalled_s is not None and loop.time() - quiet_since > stalled_s
            if quiet and _named_error(_content(errors)):
                break
    process.kill()
    await process.wait()
    return False


def _content(file: IO[bytes]) -> str:
    """Return the whole text of *file*, without moving the position at which a program writes it."""
    return os.pread(file.fileno(), os.fstat(file.fileno()).st_size, 0).decode(errors="replace")


def _named_error(output: str) -> str:
    """Return the first line of *output* that names an error, '' when none does."""
    return next((line.strip() for line in output.splitlines() if line.lower().startswith("error")), "")
